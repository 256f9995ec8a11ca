"""Databases for single tests: one per worker that every test finds empty, and clones of a template."""

from dataclasses import dataclass
from typing import Any

import psycopg

from tests.postgres.servers import Server

LOCK_LIMIT = "5s"
"""How long emptying waits for the locks of a session that a test has left behind."""

EMPTY = """
do $$
declare
    one record;
    filled boolean;
    anew text;
    others text;
begin
    perform set_config('synchronous_commit', 'off', true);
    for one in
        select
            format('%I', tablename) as name,
            tablename ~ '^(counterfoil|procrastinate)_' as is_ours,
            exists (select from pg_trigger where tgrelid = format('%I', tablename)::regclass) as hears
        from pg_tables
        where schemaname = 'public' and tablename <> 'counterfoil_migration'
    loop
        if one.is_ours then
            execute 'select exists (select from ' || one.name || ')' into filled;
            if filled then
                if not one.hears and pg_table_size(one.name) < 1000000 then
                    execute 'lock table ' || one.name || ' in access exclusive mode';
                    execute 'delete from ' || one.name;
                else
                    anew := concat_ws(', ', anew, one.name);
                end if;
            end if;
        else
            others := concat_ws(', ', others, one.name);
        end if;
    end loop;
    if anew is not null then
        execute 'truncate ' || anew || ' cascade';
    end if;
    if others is not null then
        execute 'drop table ' || others || ' cascade';
    end if;
    perform setval(format('%I', sequencename)::regclass, start_value, false)
    from pg_sequences
    where schemaname = 'public' and last_value is not null;
end $$
"""
"""Our tables and the engine's lose their rows, all that a test has made itself goes.

To truncate a table takes longer than most tests, since it makes its files anew: that is for those that have grown, and
for those whose triggers, or references, would hear of rows that are deleted.
"""

LEFT = """
select coalesce(string_agg(format('%s: %s', state, left(query, 80)), '; '), 'nobody any more')
from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""
END_SESSIONS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


class LeftOpen(AssertionError):
    """A test has left a transaction open; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One database on a server."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, outside any transaction, and return its rows."""
        return self.server.execute(statement, *parameters, database=self.name)

    def empty(self) -> None:
        """Remove what a test has written, or say who still holds it."""
        try:
            self._empty()
        except psycopg.errors.LockNotAvailable:
            holders = self.execute(LEFT)[0][0]
            self.execute(END_SESSIONS)
            self._empty()
            raise LeftOpen(f"The test has left a transaction open on {self.name}: {holders}.") from None

    def _empty(self) -> None:
        with self.sweeping() as connection:
            connection.execute(EMPTY)

    def sweeping(self) -> "psycopg.Connection[Any]":
        """Begin a session that empties."""
        return psycopg.connect(self.url, autocommit=True, options=f"-c lock_timeout={LOCK_LIMIT}")


class Sweeper:
    """Empties one database after each test in one session: another one would have to read the catalogue first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: psycopg.Connection[Any] | None = None

    def empty(self) -> None:
        """Remove what a test has written, or say who still holds it."""
        try:
            self._session = self._session or self._database.sweeping()
            self._session.execute(EMPTY)
        except psycopg.OperationalError:  # a lock that somebody holds, or the test has ended all sessions
            self.close()
            self._database.empty()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

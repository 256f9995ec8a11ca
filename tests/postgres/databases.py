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
    ours text;
    others text;
begin
    for one in
        select format('%I', tablename) as name, tablename ~ '^(counterfoil|procrastinate)_' as is_ours
        from pg_tables
        where schemaname = 'public' and tablename <> 'counterfoil_migration'
    loop
        if one.is_ours then
            execute 'select exists (select from ' || one.name || ')' into filled;
            if filled then
                ours := concat_ws(', ', ours, one.name);
            end if;
        else
            others := concat_ws(', ', others, one.name);
        end if;
    end loop;
    if ours is not null then
        execute 'truncate ' || ours || ' restart identity cascade';
    end if;
    if others is not null then
        execute 'drop table ' || others || ' cascade';
    end if;
end $$
"""
"""Our tables and the engine's lose their rows, all that a test has made itself goes."""

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
        with psycopg.connect(self.url, autocommit=True, options=f"-c lock_timeout={LOCK_LIMIT}") as connection:
            connection.execute(EMPTY)

"""Whoever asks a store says for which tenant; for all of them, or for none, only where the tables below say why.

Row security goes by what is said here, so a call that says nothing finds nothing where the role is held, and one that
says "all" has no second wall. Both colours do the same in the same place, which therefore stands here once.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "counterfoil"
STORES = frozenset({"store", "async_store", "raw_store", "look"})
"""What the objects are called that run scripts, apart from an underscore before it."""
WAYS = frozenset({"read", "look", "write", "write_alone", "write_lent", "renew"})

# ---- the tables: extend them here ----

OPERATOR = "an operator who holds the database names no tenant, and means all"
SEARCH = "a worker searches for whoever asked; what it does with a find it does under that one's tenant"
LIST = "lists tenants, which belong to whoever holds the database"
SECRET = "whoever comes with a token says only which; the tenant is learnt from it"
FOR_ALL = {
    "audit.Audit._read": OPERATOR,
    "audit.Audit.list": OPERATOR,
    "cli.db._status": OPERATOR,
    "cli.db.purge": OPERATOR,
    "cli.session.Session.principal": SECRET,
    "cli.session.Session.read": OPERATOR,
    "engine.port.Finder.gone": SEARCH,
    "engine.port.Finder.reserve": SEARCH,
    "engine.port.Finder.unreserved": SEARCH,
    "engine.stranded.tell_stranded": SEARCH,
    "ledger.Counterfoil._do": "a purge whose operator names no tenant; other steps are an operation's",
    "ledger.Counterfoil.purge.do": OPERATOR,
    "outbox.Outbox.pauses": OPERATOR,
    "outboxing.Scope.whose": "a pause of an effect for all tenants is nobody's own",
    "runtime.dispatcher.Dispatcher._leave_out_idle": SEARCH,
    "runtime.dispatcher.Dispatcher._write": "one turn claims, gives back and settles intents of several tenants",
    "runtime.reconciler.Reconciler.settle": SEARCH,
    "tenants.Tenants._move": LIST,
    "tenants.Tenants.create": LIST,
    "tenants.Tenants.list": LIST,
    "testing.grounds.Files.read": "a test looks at everything",
    "testing.postgres_ground.PostgresGround.read": "a test looks at everything",
    "tokens.Tokens.authenticate": SECRET,
    "tokens.Tokens.issue": "a token for all tenants belongs to none",
    "tokens.Tokens.list": OPERATOR,
    "tokens.Tokens.revoke": OPERATOR,
    "tokens.Tokens.rotate": OPERATOR,
}
SCHEMA = "looks at the schema, which has no tenant's rows"
ENGINE = "tables of an engine have no tenants"
FOR_NOBODY = {
    "cli.db._status": SCHEMA,
    "cli.db.sql": SCHEMA,
    "cli.session.Session._check": SCHEMA,
    "demo.places.Places.in_database": "writes nothing",
    "drivers.join_postgres.JoinedPostgres._place": "reads where the connection leads",
    "drivers.join_postgres_async.JoinedPostgres._place": "reads where the connection leads",
    "engine.choosing.chosen": ENGINE,
    "engine.choosing.made_for": ENGINE,
    "engine.procrastinate.Procrastinate.health": ENGINE,
    "storage.migrator.prepare": SCHEMA,
}
HANDED_ON = {
    "cli.db.purge": "called beside it, with a tenant",
    "drivers.postgres_async.PostgresStore.write_alone": "called on a thread, with the tenant that it was given",
    "drivers.sqlite_async.SqliteStore.read": "SQLite's second wall is none",
    "ledger.Counterfoil.purge.do": "called beside it, with a tenant",
}
"""Where a way to the rows is not called but handed on."""

# ---- the checker ----


@dataclass(frozen=True, slots=True)
class Use:
    """A way to the rows, in a function by its dotted name, and what was said for it."""

    place: str
    line: int
    said: str | None
    called: bool


def _is_store(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.removeprefix("_") in STORES


def uses(node: ast.AST, place: str) -> Iterator[Use]:
    """Yield each way to the rows that is taken."""
    called = {child.func for child in ast.iter_child_nodes(node) if isinstance(child, ast.Call)}
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inside = f"{place}.{child.name.removeprefix('Async')}" if named else place  # type: ignore[attr-defined]
        match child:
            case ast.Call(func=ast.Attribute(value=whom, attr=way)) if way in WAYS and _is_store(whom):
                said = [ast.unparse(each.value) for each in child.keywords if each.arg == "tenant"]
                yield Use(inside, child.lineno, next(iter(said), None), called=True)
                yield from (found for part in [whom, *child.args, *child.keywords] for found in uses(part, inside))
                continue
            case ast.Attribute(value=whom, attr=way) if way in WAYS and _is_store(whom) and child not in called:
                yield Use(inside, child.lineno, None, called=False)
        yield from uses(child, inside)


def for_all(node: ast.AST, place: str) -> Iterator[str]:
    """Name the functions in which all tenants are, or may be, what is asked for."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inside = f"{place}.{child.name.removeprefix('Async')}" if named else place  # type: ignore[attr-defined]
        match child:
            case ast.Name(id="ALL_TENANTS") | ast.Call(func=ast.Name(id="whose")):
                yield inside
        yield from for_all(child, inside)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name != "storage.tenants":  # where the words are made
            yield name.removeprefix("aio."), ast.parse(path.read_text("utf-8"))


def test_every_call_of_a_store_names_its_tenant() -> None:
    found = [use for name, tree in modules() for use in uses(tree, name)]
    assert len([use for use in found if use.said]) > 150
    assert {use.place for use in found if use.called and use.said is None} == {*FOR_NOBODY}
    assert {use.place for use in found if not use.called} == {*HANDED_ON}


def test_all_tenants_are_asked_for_where_there_is_a_reason() -> None:
    assert {place for name, tree in modules() for place in for_all(tree, name)} == {*FOR_ALL}


def test_what_says_nothing_is_found() -> None:
    def found(source: str) -> list[tuple[str | None, bool]]:
        return [(use.said, use.called) for use in uses(ast.parse(source), "m")]

    assert found("def f(self):\n return self.desk.store.read(lambda: all_rows('x'))") == [(None, True)]
    assert found("class A:\n async def f(self):\n  await self._async_store.write(m, tenant=key.tenant)") == [
        ("key.tenant", True)
    ]
    assert found("run = store.read if x else store.write") == [(None, False), (None, False)]
    assert found("store.write(lambda: other.look.read(m), tenant='t')") == [("'t'", True), (None, True)]
    assert found("file.read(7); claims.look(request); session.look") == []
    assert [*for_all(ast.parse("def f():\n s.read(m, tenant=ALL_TENANTS)"), "m")] == ["m.f"]
    assert [*for_all(ast.parse("class A:\n def f(self):\n  s.read(m, tenant=whose(t))"), "m")] == ["m.A.f"]
    assert [*for_all(ast.parse("from counterfoil.storage.tenants import ALL_TENANTS, whose"), "m")] == []

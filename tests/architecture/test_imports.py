"""Imports point one way: the table below says which, and every module of the package obeys it.

A *room* is the first part of a module's name below the package: `core`, `ledger`, `cli`. Rooms stand in
layers, and a module imports from its own room and from lower layers only. Inside a layer marked `open` the
rooms may also import each other. An import inside a function or under TYPE_CHECKING counts like any other;
only DOORS, the facades' way up to an optional part, must be inside a function or under TYPE_CHECKING.
"""

import ast
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "counterfoil"
ROOT = Path(__file__).parents[2] / "src" / PACKAGE

# ---- the table: extend it here ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    rooms: frozenset[str]
    open: bool = False


def layer(*rooms: str, is_open: bool = False) -> Layer:
    return Layer(rooms=frozenset(rooms), open=is_open)


PUBLIC = "<public>"  # counterfoil/__init__.py itself

FACADES = layer(
    *("ledger", "outbox", "approvals", "workflows", "reconcile", "aio"),
    *(
        "effects",
        "declaring",
        "providing",
        "resources",
        "active",
        "activity",
        "answers",
        "config",
        "desk",
        "heartbeats",
        "joining",
    ),
    *(
        "migrating",
        "performing",
        "runners",
        "transacting",
        "liveness",
        "rebuilding",
        "rewriting",
        "verifying",
        "operations",
    ),
    *("results", "reviewing", "reviews", "bell", "delivery", "enqueuing", "outboxing", "keeping", "purging"),
    *(
        "starting",
        "standing",
        "planning",
        "writing",
        "access",
        "approving",
        "policy",
        "grants",
        "granting",
        "rooms",
        "graphs",
    ),
    *("issuing", "tokens", "tenants", "audit"),
    is_open=True,
)

# From the ground up. Open layers may not have import cycles either (see the last test).
LAYERS: tuple[Layer, ...] = (
    layer(
        "errors", "exits", "model", "shown", "records", "clock", "ids", "codec", "credentials", "extras", is_open=True
    ),
    layer("core", "observe"),
    layer("storage"),
    layer("drivers"),
    FACADES,
    layer("engine"),
    layer("runtime"),
    layer("langgraph", "providers", "integrations", "server", "console", "doctor", "testing"),
    layer(PUBLIC),
    layer("cli", "demo", "__main__", is_open=True),
)

# (importing room, imported module): a sibling import that is allowed after all.
SIBLINGS = frozenset({("console", "server.auth")})

# (importing room, imported room): allowed upwards, but only when the import runs on use.
# `cf.compile`, `cf.run` and `cf.saver` are methods of the facade and need LangGraph only when called.
# `cf.join` takes a neighbour's transaction, whose package is there when one of its objects is.
DOORS = frozenset({(facade, "langgraph") for facade in FACADES.rooms}) | {
    (facade, "integrations") for facade in ("joining", "aio", "active")
}
# What is known of real clients' exceptions and retries is asked for when there is such an exception or client.
DOORS |= {(facade, "providers") for facade in ("declaring", "effects", "results")}
# `cf.drain` does in the caller's own process what a worker does beside it.
DOORS |= {(facade, "runtime") for facade in ("ledger", "aio")}
# Whoever starts workflows and tells them events tells the engine that wakes them.
DOORS |= {("desk", "engine")}

# Third-party modules, and sqlite3, with the only places that may import them. What is not listed may not be.
IMPORTERS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("providers.aiohttp",),
    "aiosmtpd": ("testing.mail",),
    "aiosmtplib": ("providers.smtp",),
    "click": ("cli",),
    "cloudevents": ("providers.cloudevents",),
    "detect_secrets": ("credentials",),
    "django": ("integrations.django",),
    "httpx": ("demo", "providers.http"),
    "langchain": ("langgraph.agents", "demo"),
    "langchain_core": ("langgraph", "demo"),
    "langgraph": ("langgraph", "demo"),
    "orjson": ("codec", "langgraph"),
    "ormsgpack": ("langgraph",),
    "procrastinate": ("engine.procrastinate",),
    "psycopg": ("drivers", "engine.procrastinate", "testing.postgres_ground"),
    "pydantic": ("langgraph.tools",),
    "pydantic_core": ("langgraph.tools",),
    "rfc8785": ("codec",),
    "sqlalchemy": ("integrations.sqlalchemy",),
    "sqlite3": ("drivers",),
    "standardwebhooks": ("providers.webhooks",),
    "stripe": ("demo.hiring", "providers.stripe"),
}

# Pure code is a function of its arguments: no input or output, clock, chance, log or threads.
PURE = ("core", "storage.scripts")
IMPURE_MODULES = frozenset(
    {"asyncio", "concurrent", "contextvars", "glob", "http", "io", "logging", "multiprocessing", "os"}
    | {
        "pathlib",
        "random",
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "smtplib",
        "socket",
    }
    | {"socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib"}
    | {"uuid", "warnings"}
)
IMPURE_CALLS = frozenset({"open", "print", "input", "datetime.now", "datetime.utcnow", "date.today"})

# ---- the checker ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module; `names` are the names taken from it."""

    target: str
    names: tuple[str, ...]
    line: int
    deferred: bool  # inside a function or under TYPE_CHECKING: not run when the module is imported


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"


def _absolute(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    package = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    base = package[: len(package) - node.level + is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports(tree: ast.AST, module: str, *, is_package: bool, deferred: bool = False) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(target=alias.name, names=(), line=node.lineno, deferred=deferred)
            case ast.ImportFrom():
                target = _absolute(module, node, is_package=is_package)
                names = tuple(alias.name for alias in node.names)
                yield Import(target=target, names=names, line=node.lineno, deferred=deferred)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports(node, module, is_package=is_package, deferred=True)
            case _:
                late = deferred or _is_type_checking(node)
                yield from imports(node, module, is_package=is_package, deferred=late)


def inner_targets(found: Import, modules: frozenset[str]) -> list[str]:
    """Name the package's own modules an import reaches, without its prefix; "" is the package itself."""
    if found.target != PACKAGE and not found.target.startswith(PACKAGE + "."):
        return []
    base = found.target.removeprefix(PACKAGE).removeprefix(".")
    dotted = [f"{base}.{name}".lstrip(".") for name in found.names]
    # `from counterfoil import errors` names a module; `from counterfoil.errors import X` does not.
    submodules = [name for name in dotted if name in modules]
    return submodules + ([base] if len(submodules) < max(len(dotted), 1) else [])


def room_of(module: str) -> str:
    return module.split(".", 1)[0] or PUBLIC


def height(room: str) -> int | None:
    return next((index for index, each in enumerate(LAYERS) if room in each.rooms), None)


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(place + ".") for place in places)


def judge_inner(module: str, target: str, *, deferred: bool) -> str | None:
    """Say why `module` may not import the package's own `target`, or None if it may."""
    here, there = room_of(module), room_of(target)
    own, other = height(here), height(there)
    if own is None or other is None:
        return f"room {here if own is None else there!r} has no layer: add it to LAYERS"
    if here == PUBLIC:
        return None if deferred else "the public names are exported lazily"
    same_layer = own == other and (LAYERS[own].open or (here, target) in SIBLINGS)
    if here == there or other < own or same_layer:
        return None
    if (here, there) in DOORS:
        return None if deferred else f"{here} may reach {there} only inside a function"
    return "siblings do not import each other" if own == other else f"{there} stands above {here}"


def judge_outer(module: str, target: str) -> str | None:
    """Say why `module` may not import the foreign module `target`, or None if it may."""
    top = target.split(".", 1)[0]
    if top in IMPORTERS:
        return None if within(module, IMPORTERS[top]) else f"only {', '.join(IMPORTERS[top])} may import it"
    if top not in sys.stdlib_module_names:
        return "third-party module without a place: add it to IMPORTERS"
    if within(module, PURE) and top in IMPURE_MODULES:
        return "pure code has no input, output, clock, chance, log or threads"
    return None


def impure_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ".".join(ast.unparse(node.func).split(".")[-2:])
            if name in IMPURE_CALLS:
                yield node.lineno, name


def violations(module: str, source: str, modules: frozenset[str], *, is_package: bool = False) -> list[str]:
    """List what is wrong with the imports of one module; `modules` are the names of all modules."""
    tree = ast.parse(source)
    where = f"{PACKAGE}.{module}".rstrip(".")
    wrong: list[str] = []
    for found in imports(tree, module, is_package=is_package):
        inner = inner_targets(found, modules)
        reasons = [(each, judge_inner(module, each, deferred=found.deferred)) for each in inner]
        if not inner:
            reasons = [(found.target, judge_outer(module, found.target))]
        wrong += [f"{where}:{found.line} imports {each or PACKAGE}: {why}" for each, why in reasons if why]
    if within(module, PURE):
        wrong += [f"{where}:{line} calls {name}: pure code is passed it" for line, name in impure_calls(tree)]
    return wrong


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path) -> dict[str, Path]:
    return {module_name(path, root): path for path in sorted(root.rglob("*.py"))}


# ---- the tests ----

MODULES = sources(ROOT)


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or PUBLIC)
def test_imports_point_downwards(module: str) -> None:
    path = MODULES[module]
    is_package = path.name == "__init__.py"
    found = violations(module, path.read_text("utf-8"), frozenset(MODULES), is_package=is_package)
    assert found == []


def cycle(sources_by_module: dict[str, str], packages: frozenset[str]) -> list[str] | None:
    """Find one import cycle among the imports that run when a module is imported."""
    known = frozenset(sources_by_module)
    graph = {
        module: {
            target
            for found in imports(ast.parse(source), module, is_package=module in packages)
            if not found.deferred
            for target in inner_targets(found, known)
            if target != module
        }
        for module, source in sources_by_module.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        names: list[str] = error.args[1]
        return names
    return None


def test_no_modules_import_each_other_in_a_circle() -> None:
    texts = {module: path.read_text("utf-8") for module, path in MODULES.items()}
    packages = frozenset(module for module, path in MODULES.items() if path.name == "__init__.py")
    assert cycle(texts, packages) is None


SAMPLE = frozenset(
    {
        "",
        "errors",
        "core",
        "core.states",
        "storage.scripts",
        "storage.scripts.claims",
        "drivers.sqlite",
        "ledger",
    }
    | {"langgraph", "langgraph.saver", "cli.main", "server.auth", "server.api", "console.app", "demo.tickets"}
)


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("core.states", "from counterfoil.storage import scripts", "storage stands above core"),
        ("core.states", "from ..storage import scripts", "storage stands above core"),
        ("core.states", "from counterfoil import ledger", "ledger stands above core"),
        ("core.states", "def f():\n    import counterfoil.ledger", "ledger stands above core"),
        ("core.states", "import time", "pure code"),
        ("core.states", "from concurrent.futures import Future", "pure code"),
        ("core.states", "now = datetime.datetime.now()", "pure code"),
        ("core.states", "text = open('x')", "pure code"),
        ("storage.scripts.claims", "import uuid", "pure code"),
        ("core.states", "import orjson", "only codec, langgraph may import it"),
        ("ledger", "import sqlite3", "only drivers may import it"),
        ("ledger", "import click", "only cli may import it"),
        ("ledger", "from counterfoil.langgraph import saver", "only inside a function"),
        ("ledger", "from counterfoil import Counterfoil", "<public> stands above ledger"),
        ("ledger", "import leftpad", "add it to IMPORTERS"),
        ("ledger", "import counterfoil.attic", "add it to LAYERS"),
        ("langgraph.saver", "from counterfoil.server import api", "siblings do not import each other"),
        ("console.app", "import counterfoil.server.api", "siblings do not import each other"),
        ("server.api", "import langgraph.graph", "only langgraph, demo may import it"),
        ("", "from counterfoil.ledger import Counterfoil", "exported lazily"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str, reason: str) -> None:
    (found,) = violations(module, source, SAMPLE, is_package=module == "")
    assert reason in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "core.states",
            "import enum\nfrom counterfoil import errors\nfrom counterfoil.errors import UsageError",
        ),
        ("core.states", "from . import machine\nfrom ..errors import UsageError"),
        ("drivers.sqlite", "import sqlite3\nimport threading\nimport counterfoil.storage.scripts.claims"),
        ("ledger", "def compile(b):\n    from counterfoil.langgraph import saver"),
        ("ledger", "if TYPE_CHECKING:\n    from counterfoil.langgraph.saver import Saver"),
        ("langgraph.saver", "from langgraph.graph import StateGraph\nfrom counterfoil import ledger"),
        ("console.app", "from counterfoil.server.auth import principal"),
        ("cli.main", "import click\nfrom counterfoil.demo import tickets"),
        ("demo.tickets", "import httpx\nimport langgraph.graph\nfrom counterfoil import Counterfoil, effect"),
        ("", "def __getattr__(name):\n    from counterfoil.ledger import Counterfoil"),
    ],
)
def test_the_allowed_directions_pass(module: str, source: str) -> None:
    assert violations(module, source, SAMPLE, is_package=module == "") == []


def test_a_planted_cycle_is_found_and_a_deferred_one_is_not() -> None:
    ledger = "from counterfoil import effects"
    assert cycle({"ledger": ledger, "effects": "import counterfoil.ledger"}, frozenset()) is not None
    assert cycle({"ledger": ledger, "effects": "def f():\n    import counterfoil.ledger"}, frozenset()) is None


def test_an_empty_package_passes(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    assert sources(tmp_path) == {"": tmp_path / "__init__.py"}
    assert violations("", "", frozenset({""}), is_package=True) == []
    assert cycle({"": ""}, frozenset({""})) is None

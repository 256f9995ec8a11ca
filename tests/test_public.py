"""The public surface: what is exported, that both colours match, and that importing it stays light."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import counterfoil
from counterfoil import AsyncCounterfoil, Counterfoil, errors
from counterfoil.errors import REGISTRY, CounterfoilError, OperationError, StoreError, UsageError

SOURCE = Path(counterfoil.__file__).parents[1]
HEAVY = ("asyncio", "httpx", "pydantic", "langgraph", "langchain_core", "psycopg", "sqlite3", "orjson", "rfc8785")


def test_the_exports_are_sorted_and_hold_what_the_first_example_needs() -> None:
    exported = counterfoil.__all__
    assert list(exported) == sorted(set(exported), key=str)
    assert set(exported) == set(counterfoil._HOMES)
    assert set(exported) >= {
        *("Absent", "AsyncCounterfoil", "CannotTell", "Counterfoil", "CounterfoilError", "Effect", "EffectCall"),
        *("Found", "NotSent", "OperationError", "OperationKey", "Provider", "Receipt", "Refused", "StoreError"),
        *("UsageError", "Verification", "effect"),
    }


def test_every_public_name_can_be_had_is_documented_and_stays_the_same() -> None:
    assert dir(counterfoil) == sorted(counterfoil.__all__)
    for name in counterfoil.__all__:
        value = getattr(counterfoil, name)
        assert inspect.getdoc(value), name
        assert getattr(counterfoil, name) is value
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        counterfoil.nonsense  # noqa: B018 - the attribute access is the test


def loaded(code: str) -> set[str]:
    """Return which heavy modules a fresh interpreter has loaded after some code."""
    script = f"import sys\nsys.path.insert(0, {str(SOURCE)!r})\n{code}\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(out.split()) & set(HEAVY)


@pytest.mark.parametrize(
    "code",
    [
        "import counterfoil",
        "from counterfoil import effect, Provider, Found, Absent, CannotTell, NotSent, Refused",
        "from counterfoil import CounterfoilError, UsageError, OperationError, StoreError",
    ],
)
def test_importing_it_loads_nothing_heavy(code: str) -> None:
    assert loaded(code) == set()


def test_declaring_an_effect_loads_no_database_and_no_event_loop() -> None:
    code = "from counterfoil import effect\n@effect('e', key='{n}')\ndef e(call, *, n): ..."
    assert loaded(code) & {"asyncio", "sqlite3", "httpx", "pydantic", "langgraph", "psycopg"} == set()


def test_performing_loads_no_optional_package() -> None:
    code = (
        "from counterfoil import Counterfoil, effect\n"
        "@effect('e', key='{n}')\ndef e(call, *, n): return n\n"
        "with Counterfoil.open('sqlite:///:memory:') as cf: assert cf.perform(e, tenant='t', n=1).value == 1"
    )
    assert loaded(code) & {"httpx", "pydantic", "langgraph", "langchain_core", "psycopg"} == set()


# --- both colours -----------------------------------------------------------------------------------------------------

TWINS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def names(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def test_both_colours_have_the_same_names() -> None:
    assert names(Counterfoil) == names(AsyncCounterfoil)
    for blocking, awaiting in TWINS.items():
        assert hasattr(Counterfoil, blocking)
        assert hasattr(AsyncCounterfoil, awaiting)


def functions(cls: type) -> dict[str, Any]:
    return {name: inspect.unwrap(getattr(cls, name)) for name in names(cls) if callable(getattr(cls, name))}


@pytest.mark.parametrize("name", sorted(functions(Counterfoil)))
def test_both_colours_take_the_same_and_say_the_same(name: str) -> None:
    blocking, awaiting = functions(Counterfoil)[name], functions(AsyncCounterfoil)[name]
    assert inspect.signature(blocking).parameters == inspect.signature(awaiting).parameters
    one, other = (inspect.getdoc(function) or "" for function in (blocking, awaiting))
    assert one
    assert first_words(one) == first_words(other)


def first_words(doc: str) -> str:
    """Return the first three words of the first line: what the method does."""
    return " ".join(doc.splitlines()[0].replace(",", " ").split()[:3])


@pytest.mark.parametrize("name", ["perform", "verify", "close"])
def test_the_awaiting_colour_awaits(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AsyncCounterfoil, name))
    assert not inspect.iscoroutinefunction(getattr(Counterfoil, name))


def test_both_colours_of_a_joined_transaction_take_the_same() -> None:
    from counterfoil.aio.joining import AsyncJoined
    from counterfoil.joining import Joined

    assert names(Joined) == names(AsyncJoined) == {"enqueue", "enqueue_all", "perform"}
    for name in names(Joined):
        one, other = getattr(Joined, name), getattr(AsyncJoined, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters
        assert inspect.iscoroutinefunction(other)


def test_an_error_is_named_after_where_it_is_imported_from() -> None:
    """Tracebacks, stored attempts and cases tell the name under which `except` finds it."""
    kinds: list[type[CounterfoilError]] = [CounterfoilError, UsageError, OperationError, StoreError]
    for kind in (*kinds, *REGISTRY.values()):
        assert (kind.__module__, getattr(errors, kind.__name__)) == ("counterfoil.errors", kind)

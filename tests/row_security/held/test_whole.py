"""The suite is whole: each behaviour of a store is tried here, or stands below with the reason why not."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.row_security.held import choice

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
SUITES = (
    *sorted((TESTS / "conformance").glob("test_*.py")),
    *(TESTS / "langgraph" / f"test_{name}.py" for name in ("conformance", "saver")),
)


def module(path: Path) -> ModuleType:
    return import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def test_every_behaviour_of_a_store_is_here() -> None:
    here = [value for path in sorted(HERE.glob("test_*.py")) for value in vars(module(path)).values()]
    missing = {
        name
        for path in SUITES
        for name, value in choice.behaviour(module(path)).items()
        if name.startswith("test_") and value.__module__.endswith(path.stem) and value not in here
    }
    assert missing == set()


def test_what_is_left_out_for_one_role_is_there() -> None:
    files = {path.stem for path in HERE.glob("test_*.py")}
    names = {name for path in SUITES for name in vars(module(path)) if name.startswith("test_")}
    assert files | names >= choice.FOR_ALL_TENANTS | choice.FOR_OWNERS


def test_each_role_has_a_share() -> None:
    tried = [
        choice.roles(path.stem, name)
        for path in sorted(HERE.glob("test_*.py"))
        for name in vars(module(path))
        if name.startswith("test_")
    ]
    assert {role for roles in tried for role in roles} == {choice.GRANTED, choice.ONE_TENANT, choice.FORCED}

"""Every misuse has its own error, whose code is in the registry and whose message says what to do next."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Absent, AsyncCounterfoil, Counterfoil, Effect, Found, Provider, effect
from counterfoil.errors import (
    REGISTRY,
    AsyncEffectInSync,
    ContradictoryDeclaration,
    CounterfoilError,
    DuplicateEffect,
    InvalidArguments,
    InvalidDuration,
    InvalidId,
    InvalidMappingKey,
    InvalidUrl,
    LoneSurrogate,
    NetworkFilesystem,
    NoActiveCounterfoil,
    NoDatabase,
    NonFiniteNumber,
    NulCharacter,
    OutcomeUnknown,
    ResourceMissing,
    SchemaAltered,
    SchemaNewer,
    StoreClosed,
    StoreUnavailable,
    SyncOnEventLoop,
    TemplateFieldMissing,
    TenantMissing,
    TrustedFieldMismatch,
    UnknownTemplateField,
    UnstableId,
    UnsupportedValue,
)


@pytest.fixture
def cf(url: str) -> Iterator[Counterfoil]:
    with Counterfoil.open(url) as opened:
        yield opened


def sent(call: Any, *, title: Any = "", n: int = 0) -> Any:
    raise AssertionError("nothing may be sent")


async def sent_async(call: Any, *, title: Any = "") -> Any:
    raise AssertionError("nothing may be sent")


plain: Effect[Any] = effect("misuse.plain", key="{request_id}/x")(sent)
by_title: Effect[Any] = effect("misuse.by-title", key="t:{title}")(sent)
waiting: Effect[Any] = effect("misuse.async", key="{request_id}/x")(sent_async)


async def ask(call: Any, *, title: Any = "", n: int = 0) -> Found:
    return Found()


asking: Effect[Any] = effect("misuse.asking", key="{request_id}/x", provider=Provider(lookup=ask, lookup_lag="0s"))(
    sent
)

WHOM = {"tenant": "team-a", "request_id": "r-1"}

# What is done, the error, and words that say what to do next.
CALLS: dict[str, tuple[Callable[[Counterfoil], Any], type[CounterfoilError], str]] = {
    "no tenant": (lambda cf: cf.perform(plain, request_id="r-1"), TenantMissing, "tenant="),
    "an empty tenant": (lambda cf: cf.perform(plain, tenant="", request_id="r-1"), TenantMissing, "tenant="),
    "a tenant that is no text": (lambda cf: cf.perform(plain, tenant=7, request_id="r"), InvalidId, "use a string"),  # type: ignore[arg-type]
    "a tenant with NUL": (lambda cf: cf.perform(plain, tenant="a\0", request_id="r-1"), InvalidId, "remove it"),
    "a long tenant": (lambda cf: cf.perform(plain, tenant="a" * 600, request_id="r"), InvalidId, "shorter"),
    "no request id": (lambda cf: cf.perform(plain, tenant="team-a"), TemplateFieldMissing, "request_id="),
    "a plain function": (lambda cf: cf.perform(sent, **WHOM), InvalidArguments, "@effect"),  # type: ignore[arg-type]
    "an unknown argument": (lambda cf: cf.perform(plain, **WHOM, colour="red"), InvalidArguments, "it takes"),
    "NaN": (lambda cf: cf.perform(plain, **WHOM, title=float("nan")), NonFiniteNumber, "$.title"),
    "NUL": (lambda cf: cf.perform(plain, **WHOM, title="a\0b"), NulCharacter, "$.title"),
    "a lone surrogate": (lambda cf: cf.perform(plain, **WHOM, title=["\ud800"]), LoneSurrogate, "$.title[0]"),
    "a key that is no text": (lambda cf: cf.perform(plain, **WHOM, title={1: 2}), InvalidMappingKey, "$.title"),
    "a live object": (lambda cf: cf.perform(plain, **WHOM, title=object()), UnsupportedValue, "$.title"),
    "an id made of nothing": (lambda cf: cf.perform(by_title, **WHOM, title=None), InvalidId, "title"),
    "a blocking call of an async effect": (lambda cf: cf.perform(waiting, **WHOM), AsyncEffectInSync, "await"),
    "a blocking call with an async look-up": (lambda cf: cf.perform(asking, **WHOM), AsyncEffectInSync, "await"),
    "a call of the effect itself": (lambda _cf: plain(title="x"), NoActiveCounterfoil, "cf.perform("),
    "a resource of nobody": (lambda cf: cf.resources.get(sqlite3.Connection), ResourceMissing, "resources.provide"),
}


@pytest.mark.parametrize("misuse", CALLS)
def test_a_wrong_call(cf: Counterfoil, misuse: str) -> None:
    call, error, advice = CALLS[misuse]
    with pytest.raises(error) as caught:
        call(cf)
    check(caught.value, error, advice)


def check(error: CounterfoilError, expected: type[CounterfoilError], advice: str) -> None:
    assert type(error) is expected
    assert REGISTRY[error.code] is expected
    assert error.retry == "never"
    assert advice in str(error)


# --- declarations -----------------------------------------------------------------------------------------------------


def declare(function: Any = sent, **contract: Any) -> Any:
    return effect(**{"name": "misuse.declared", "key": "{request_id}/x", **contract})(function)


def starred(call: Any, *args: Any) -> None: ...


def open_ended(call: Any, **kwargs: Any) -> None: ...


def callless() -> None: ...


def keyword_call(*, title: str) -> None: ...


def look_alike(call: Any, *, title: Any = "") -> None: ...


def yielding(call: Any, *, title: str) -> Iterator[str]:
    yield title


def look(call: Any, **arguments: Any) -> Absent:
    return Absent()


class Lost(TimeoutError):
    """A client library's own time-out."""


DECLARATIONS: dict[str, tuple[Callable[[], Any], type[CounterfoilError], str]] = {
    "a generator": (lambda: declare(yielding), ContradictoryDeclaration, "Return the result"),
    "a provider by name": (lambda: declare(provider="opaque"), ContradictoryDeclaration, "Provider(...)"),
    "a look-up that cannot be called": (
        lambda: declare(provider=Provider(lookup=5, lookup_lag="0s")),  # type: ignore[arg-type]
        ContradictoryDeclaration,
        "cannot be called",
    ),
    "a look-up without the effect's arguments": (
        lambda: declare(provider=Provider(lookup=lambda call: Absent(), lookup_lag="0s")),
        ContradictoryDeclaration,
        "**_",
    ),
    "an unknown field": (lambda: declare(key="{who}/x"), UnknownTemplateField, "known: "),
    "a clock": (lambda: declare(lambda call, *, now: None, key="x:{now}"), UnstableId, "business id"),
    "an attempt number": (lambda: declare(lambda call, *, attempt: None, key="{attempt}"), UnstableId, "stable="),
    "the thread alone": (lambda: declare(key="{thread_id}"), UnstableId, "business id"),
    "no field at all": (lambda: declare(key="x"), ContradictoryDeclaration, "name the argument"),
    "values that run together": (lambda: declare(key="{title}{n}"), ContradictoryDeclaration, "between them"),
    "a formatted field": (lambda: declare(key="{title!r}"), ContradictoryDeclaration, "plain {argument}"),
    "not_identity in the key": (
        lambda: declare(key="{title}", not_identity=["title"]),
        ContradictoryDeclaration,
        "one or the other",
    ),
    "not_identity of nothing": (lambda: declare(not_identity="who"), ContradictoryDeclaration, "no argument"),
    "a base of time-outs as not sent": (lambda: declare(not_sent=OSError), ContradictoryDeclaration, "narrower"),
    "a time-out as refused": (lambda: declare(refused=(Lost,)), ContradictoryDeclaration, "narrower"),
    "no time": (lambda: declare(time_limit="0s"), ContradictoryDeclaration, "above zero"),
    "a bare number": (lambda: declare(time_limit=30), InvalidDuration, '"30s"'),
    "a short lease without a heartbeat": (
        lambda: declare(time_limit="60s", lease="10s", heartbeat=False),
        ContradictoryDeclaration,
        "Lengthen the lease",
    ),
    "a key that is required of a provider without": (
        lambda: declare(require_key=True),
        ContradictoryDeclaration,
        "key_lifetime=",
    ),
    "an effect that outlasts its key": (
        lambda: declare(time_limit="30s", provider=Provider(key_lifetime="30s")),
        ContradictoryDeclaration,
        "shorten time_limit",
    ),
    "retry on a look-up of unknown lag": (lambda: Provider(lookup=look), ContradictoryDeclaration, "lookup_lag="),
    "a lag without a look-up": (lambda: Provider(lookup_lag="1s"), ContradictoryDeclaration, "lookup="),
    "another way on absence": (lambda: Provider(on_absent="guess"), ContradictoryDeclaration, "'review'"),
    "a key too short": (lambda: Provider(key_length=8), ContradictoryDeclaration, "32"),
    "a transactional key": (
        lambda: Provider(is_transactional=True, key_lifetime="1h"),
        ContradictoryDeclaration,
        "leave them out",
    ),
    "no call": (lambda: declare(callless), ContradictoryDeclaration, "def callless(call"),
    "a call by keyword": (lambda: declare(keyword_call), ContradictoryDeclaration, "first argument"),
    "starred arguments": (lambda: declare(starred), ContradictoryDeclaration, "name each"),
    "open-ended arguments": (lambda: declare(open_ended), ContradictoryDeclaration, "name each"),
    "one name in two places": (lambda: declare(look_alike, name="misuse.plain"), DuplicateEffect, "another name"),
}


@pytest.mark.parametrize("misuse", DECLARATIONS)
def test_a_wrong_declaration_is_refused_at_import(misuse: str) -> None:
    make, error, advice = DECLARATIONS[misuse]
    with pytest.raises(error) as caught:
        make()
    check(caught.value, error, advice)


def test_declaring_the_same_function_again_is_no_misuse() -> None:
    assert effect("misuse.plain", key="{request_id}/x")(sent).version == 1


def test_a_trusted_field_cannot_be_claimed_by_an_argument(cf: Counterfoil) -> None:
    from counterfoil.desk import NOWHERE
    from counterfoil.model import Trusted

    made = declare(lambda call, *, principal: None, name="misuse.trusted")
    with pytest.raises(TrustedFieldMismatch, match="leave the argument out"):
        cf.perform_as(made, {"principal": "eve"}, Trusted(tenant="t", request_id="r", principal="ada"), NOWHERE)


# --- databases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["mysql://localhost/x", "agent.db", "sqlite://agent.db", "sqlite:///a.db?mode=ro", "sqlite:///a%00b"]
)
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"sqlite:///|NUL"):
        Counterfoil.open(url)


def test_no_database_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COUNTERFOIL_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoDatabase) as caught:
        Counterfoil.open()
    for way in ("sqlite:///agent.db", "COUNTERFOIL_URL=", "[tool.counterfoil]"):
        assert way in str(caught.value)


def test_the_three_places_that_name_a_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COUNTERFOIL_URL", raising=False)
    (tmp_path / "pyproject.toml").write_text('[tool.counterfoil]\nurl = "sqlite:///project.db"\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    names = []
    for place in ("project", "environment", "argument"):
        if place == "environment":
            monkeypatch.setenv("COUNTERFOIL_URL", "sqlite:///environment.db")
        with Counterfoil.open("sqlite:///argument.db" if place == "argument" else None) as opened:
            names.append(Path(opened.desk.store.path).name)
    assert names == ["project.db", "environment.db", "argument.db"]


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder"):
        Counterfoil.open(f"sqlite:///{tmp_path}/missing/agent.db")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be taken for one" * 50)
    with pytest.raises(StoreUnavailable):
        Counterfoil.open(f"sqlite:///{tmp_path}/notes.txt")


def test_a_network_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from counterfoil.drivers import sqlite_open

    def refuse(path: Path) -> None:
        raise NetworkFilesystem(f"{path} lies on nfs4")

    monkeypatch.setattr(sqlite_open, "refuse_network", refuse)
    with pytest.raises(NetworkFilesystem):
        Counterfoil.open(f"sqlite:///{tmp_path}/agent.db")
    with Counterfoil.open(f"sqlite:///{tmp_path}/agent.db", network_filesystem=True):
        pass


def edited(folder: Path, sql: str) -> str:
    url = f"sqlite:///{folder}/agent.db"
    with Counterfoil.open(url):
        pass
    with sqlite3.connect(folder / "agent.db") as connection:
        connection.execute(sql)
    connection.close()
    return url


def test_a_database_newer_than_the_code(tmp_path: Path) -> None:
    url = edited(tmp_path, "insert into counterfoil_migration values (9999, 'future', 'x', 0)")
    for colour in (Counterfoil, AsyncCounterfoil):
        with pytest.raises(SchemaNewer, match="Install the release"):
            colour.open(url)


def test_an_altered_schema(tmp_path: Path) -> None:
    url = edited(tmp_path, "alter table counterfoil_operation add column mine text")
    with pytest.raises(SchemaAltered, match="db status"):
        Counterfoil.open(url)


def test_a_closed_counterfoil(cf: Counterfoil) -> None:
    cf.close()
    cf.close()
    with pytest.raises(StoreClosed, match=r"Counterfoil\.open"):
        cf.perform(plain, **WHOM)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # threads of other tests do not matter here
def test_a_counterfoil_that_was_carried_across_a_fork(url: str) -> None:
    with Counterfoil.open(url) as opened:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            with suppress(BaseException):
                try:
                    opened.perform(plain, **WHOM)
                except CounterfoilError as error:
                    os.write(writing, f"{error.code}: {error}".encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        told = os.read(reading, 4096).decode()
        os.close(reading)
    assert told.startswith("store-closed: ")
    assert "in the child process" in told


# --- blocking forms on a running loop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["perform", "verify"])
async def test_a_blocking_form_on_a_running_loop(cf: Counterfoil, method: str) -> None:
    with pytest.raises(SyncOnEventLoop) as caught:
        getattr(cf, method)(plain, **WHOM)
    check(caught.value, SyncOnEventLoop, "await")


async def test_in_a_thread_beside_the_loop_it_works(cf: Counterfoil) -> None:
    made = declare(lambda call, *, title: title, name="misuse.threaded")
    receipt = await asyncio.to_thread(cf.perform, made, **WHOM, title="x")
    assert receipt.value == "x"


# --- the registry -----------------------------------------------------------------------------------------------------


def test_every_concrete_error_has_a_code_of_its_own_form() -> None:
    for code, cls in REGISTRY.items():
        assert code == code.lower().replace("_", "-")
        assert cls.code == code
        assert cls.__doc__


def test_a_code_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="two classes"):
        type("Impostor", (CounterfoilError,), {"code": "tenant-missing"})


def test_a_resource_that_is_made_already_is_refused(cf: Counterfoil) -> None:
    with pytest.raises(InvalidArguments, match="lambda"):
        cf.resources.provide(dict, {})  # type: ignore[arg-type]


def test_a_missing_resource_is_named_although_the_outcome_is_unknown(cf: Counterfoil) -> None:
    needs = effect("misuse.needs", key="{request_id}/needs")(lambda call: call.resource(Path))
    with pytest.raises(ResourceMissing, match="Path") as caught:
        cf.perform(needs, **WHOM)
    assert "case-1" in "".join(caught.value.__notes__)


def test_the_status_of_a_http_error_is_kept(cf: Counterfoil) -> None:
    class Answer:
        status_code = 500

    class ServerError(Exception):
        response = Answer()

    def fails(call: Any) -> Any:
        raise ServerError("secret words of a client library")

    failing = effect("misuse.fails", key="{request_id}/fails")(fails)
    with pytest.raises(OutcomeUnknown, match="HTTP status 500") as caught:
        cf.perform(failing, **WHOM)
    assert "secret" not in caught.value.message


def test_settings_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COUNTERFOIL_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.counterfoil\n")
    with pytest.raises(NoDatabase, match="TOML"):
        Counterfoil.open()

"""B76 at the command line: each verb is asked about the things of a tenant for another one, by its token and by name.

Sources: https://github.com/langchain-ai/aegra/issues/336, https://github.com/Tracer-Cloud/opensre/issues/561,
https://github.com/JoshuaC215/agent-service-toolkit/pull/305
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
import pytest
from click.testing import CliRunner

from counterfoil import Counterfoil, CounterfoilError, Delivery
from counterfoil.cli.main import COMMANDS, cli
from tests.cases.neighbours import MARK, NOBODY, OURS, Ids, World, neighbours, pay
from tests.stores import SHARED

THEIRS, TWIN = "team-B", f"{MARK}-twin"
"""The tenant of the token, and one whose operations have the ids of ours."""
WHY = ("--reason", "why")
SETTLE = ("--happened", "--value", "1", "--expect-version", "1")
VERBS: dict[str, tuple[str, ...]] = {
    "ops list": (),
    "ops show": ("{operation}",),
    "ops retry": ("{operation}", *WHY),
    "ops cancel": ("{operation}", *WHY),
    "find": ("{any}",),
    "explain": ("{operation}",),
    "receipts show": ("{operation}",),
    "outbox list": ("--state", "all"),
    "outbox show": ("{operation}",),
    "outbox requeue": ("{operation}", *WHY),
    "outbox skip": ("{operation}", *WHY),
    "outbox resume": ("--stream", "{stream}x"),
    "workflows list": (),
    "workflows show": ("{workflow}",),
    "workflows history": ("{done}",),
    "workflows cancel": ("{workflow}", *WHY),
    "workflows resume": ("{workflow}", *WHY),
    "workflows delete": ("{workflow}",),
    "workflows plan-resume": ("{workflow}",),
    "review list": ("--state", "all"),
    "review show": ("{case}", "--arguments"),
    "review open": ("{operation}",),
    "review resolve": ("{case}", *SETTLE),
    "approvals list": ("--state", "all"),
    "approvals show": ("{approval}",),
    "approvals approve": ("{approval}",),
    "approvals reject": ("{approval}", *WHY),
    "approvals cancel": ("{decided}", *WHY),
    "approvals edit": ("{approval}", "--app", f"{__name__}:opened", "--set", 'to="x"'),
    "tokens list": (),
    "tokens rotate": ("{token}",),
    "tokens revoke": ("{token}",),
    "tokens whoami": (),
    "tenants create": ("{tenant}",),
    "tenants list": (),
    "tenants suspend": ("{tenant}", *WHY),
    "tenants resume": ("{tenant}", *WHY),
    "audit list": ("--subject", "{any}"),
    "audit export": (),
    "db status": (),
    "db purge": ("--receipt", "0s"),
    "outbox pause": ("--stream", "{stream}", *WHY),
    "workflows deliver": ("{workflow}", "paid", "--id", "{event}"),
    "tokens issue": ("--name", "x", "--role", "viewer"),
}
"""What each verb is asked; `{operation}` and `{any}` stand for several ids in turn. What makes something is last."""
OF_NO_TENANT = {
    "db upgrade": "makes the tables, for whoever holds the database",
    "db sql": "prints the schema",
    "db grants": "prints SQL",
    "worker": "runs a program for whoever holds the database",
    "demo hiring": "has a database of its own",
    "demo tickets": "has a database of its own",
    "demo unknown": "has a database of its own",
}
MAKES = {"outbox pause", "workflows deliver", "tokens issue"}
"""Verbs that make something of the caller's own: what they print has its times and ids."""
NAMES_A_TENANT = {"tenants create", "tenants suspend", "tenants resume"}


def opened() -> Counterfoil:
    return Counterfoil.open()


def verbs(command: click.Command, path: str = "") -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from verbs(inner, f"{path} {name}".strip())


def test_every_verb_is_in_a_table() -> None:
    assert COMMANDS
    assert sorted(verbs(cli)) == sorted([*VERBS, *OF_NO_TENANT])


# --- the walk --------------------------------------------------------------------------------------------------------


class Asked:
    """The command line on a world, with a token of another tenant at hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        cf = world.colours["sync"].cf
        later = Delivery(max_attempts=1)
        with suppress(CounterfoilError):
            cf.perform(pay, tenant=TWIN, request_id=f"{MARK}-lost", title=f"{MARK}-lost")
        cf.enqueue(pay, tenant=TWIN, request_id=f"{MARK}-later", title=f"{MARK}-later", delivery=later)
        cf.drain(pay)
        self.token = cf.tokens.issue(tenant=THEIRS, name="eve", role="admin", expires_in=None)[1]

    def __call__(self, verb: str, words: Any, ids: Ids, *more: str, token: bool) -> tuple[int, str, str]:
        """Run a verb, and return what it says with a placeholder for each id."""
        env = {"COUNTERFOIL_URL": self.world.url, "COUNTERFOIL_TOKEN": self.token if token else None}
        done = CliRunner().invoke(cli, [*verb.split(), *words, *more], env=env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, ids.hide(done.stdout), ids.hide(done.stderr)


@pytest.fixture(scope="module", params=SHARED)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Three tenants on each database, for all tests of this file."""
    for world in neighbours(request, tmp_path_factory):
        yield Asked(world)


@pytest.fixture(autouse=True)
def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """See that what is the tenant's stays as it is."""
    if "asked" not in request.fixturenames:
        yield
        return
    world = request.getfixturevalue("asked").world
    before = world.rows(OURS)
    yield
    assert world.rows(OURS) == before


def ways(verb: str, ids: Ids) -> Iterator[list[str]]:
    """Yield the words of a verb, for each id that it may be asked about."""
    words = VERBS[verb]
    every = {"{operation}": ("lost", "parked"), "{any}": ("thread",)}
    abouts = next((every[word] for word in words if word in every), ("paid",))
    for about in abouts:
        one = getattr(ids, about)
        yield [
            word.format(**{**ids.named(), "operation": one, "any": one}) if word[:1] == "{" else word for word in words
        ]


def assert_alike(asked: Asked, verb: str, *more: str, token: bool) -> set[int]:
    """Ask with the ids of the tenant and with those of nobody: both are told the same. Return the exit codes."""
    codes, before = set(), asked.world.rows()
    for ours, nobodys in zip(ways(verb, asked.world.ids), ways(verb, NOBODY), strict=True):
        answers = []
        for ids, words in ((asked.world.ids, ours), (NOBODY, nobodys)):
            named = [word.format(**ids.named()) for word in more]
            answers.append(asked(verb, words, ids, *named, token=token))
        assert MARK not in str(answers), answers
        if verb in MAKES and answers[0][0] == 0:
            assert answers[1][0] == 0
        else:
            assert answers[0] == answers[1]
        codes.add(answers[0][0])
    if verb not in MAKES:
        assert asked.world.rows() == before
    return codes


@pytest.mark.parametrize("verb", VERBS)
def test_with_the_token_of_another_tenant_ids_are_unknown(asked: Asked, verb: str) -> None:
    assert_alike(asked, verb, token=True)
    if verb not in NAMES_A_TENANT:
        codes = assert_alike(asked, verb, "--tenant", "{tenant}", token=True)
        assert codes == {3}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NAMES_A_TENANT])
def test_for_another_tenant_by_name_ids_are_unknown(asked: Asked, verb: str) -> None:
    codes = assert_alike(asked, verb, "--tenant", "caller", token=False)
    if verb.startswith("tokens r"):
        assert codes == {3}  # though whoever holds the database may do it, having named the tenant


@pytest.mark.parametrize("verb", VERBS)
def test_a_tenant_without_a_name_is_none(asked: Asked, verb: str) -> None:
    before = asked.world.rows()
    for token in (False, True):
        words = next(ways(verb, asked.world.ids))
        code, out, said = asked(verb, words, asked.world.ids, "--tenant", "", token=token)
        assert (code, out) == (2, ""), said
        assert "--tenant is empty and names no tenant" in said
    assert asked.world.rows() == before


@pytest.mark.parametrize("verb", [verb for verb, words in VERBS.items() if words[:1] == ("{operation}",)])
def test_an_id_of_two_tenants_is_not_guessed_at(asked: Asked, verb: str) -> None:
    before = asked.world.rows()
    for operation in (asked.world.ids.lost, asked.world.ids.parked)[verb == "outbox show" :]:  # one was not enqueued
        words = [operation, *VERBS[verb][1:]]
        code, out, said = asked(verb, words, asked.world.ids, token=False)
        assert (code, out) == (2, ""), said
        assert "Several tenants use the id" in said
    assert asked.world.rows() == before

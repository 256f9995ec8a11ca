"""With a token each verb acts as its principal: within its tenant alone, and as its role permits."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Counterfoil, CounterfoilError, Delivery, NotSent, effect
from counterfoil.core.access import MAY, Act, Role
from counterfoil.effects import EffectCall
from counterfoil.policy import Policy
from tests.cli.conftest import Line, ticket
from tests.docs.test_reference import VERBS
from tests.stores import file_of

OURS, THEIRS = "team-A", "team-B"


@effect("access.letter", key="{request_id}/letter", approval=Policy())
def letter(call: EffectCall, *, to: str) -> str:
    return to


@effect("access.parked", key="{request_id}/parked")
def parked(call: EffectCall, *, title: str) -> Any:
    raise NotSent(title)


WHY = ("--reason", "why")
SETTLE = ("--happened", "--value", "1", "--expect-version", "1")
ASKED: dict[str, tuple[tuple[str, ...], str]] = {
    "ops list": ((), "read"),
    "ops show": (("lost/ticket",), "read"),
    "ops retry": (("later/parked", *WHY), "operate"),
    "ops cancel": (("later/ticket", *WHY), "operate"),
    "find": (("lost",), "read"),
    "explain": (("lost/ticket",), "read"),
    "outbox list": ((), "read"),
    "outbox show": (("later/parked",), "read"),
    "outbox requeue": (("later/parked", *WHY), "operate"),
    "outbox skip": (("later/parked", *WHY), "operate"),
    "outbox pause": (("--effect", "e", *WHY), "operate"),
    "outbox resume": (("--effect", "paused"), "operate"),
    "workflows list": ((), "read"),
    "workflows show": (("w-1",), "read"),
    "workflows history": (("w-1",), "read"),
    "workflows deliver": (("w-1", "paid", "--id", "e-1"), "operate"),
    "workflows cancel": (("w-1", *WHY), "operate"),
    "workflows resume": (("w-1", *WHY), "operate"),
    "workflows delete": (("w-1",), "operate"),
    "workflows plan-resume": (("w-1",), "read"),
    "receipts show": (("lost/ticket",), "read"),
    "review list": ((), "read"),
    "review show": (("case-1",), "read"),
    "review open": (("lost/ticket",), "verdict"),
    "review resolve": (("case-1", *SETTLE), "verdict"),
    "approvals list": ((), "read"),
    "approvals show": (("approval-1",), "read"),
    "approvals approve": (("approval-1",), "decide"),
    "approvals reject": (("approval-1", *WHY), "decide"),
    "approvals cancel": (("approval-1", *WHY), "decide"),
    "approvals edit": (("approval-1", "--app", "tests.cli.test_access:opened", "--set", 'to="bo"'), "decide"),
    "tokens issue": (("--name", "x", "--role", "viewer"), "administer"),
    "tokens list": ((), "administer"),
    "tokens rotate": (("TOKEN",), "administer"),
    "tokens revoke": (("TOKEN",), "administer"),
    "tokens whoami": ((), "read"),
    "tenants create": ((OURS, "--name", OURS), "administer"),
    "tenants list": ((), "administer"),
    "tenants suspend": ((OURS, *WHY), "administer"),
    "tenants resume": ((OURS, *WHY), "administer"),
    "audit list": ((), "read"),
    "audit export": ((), "export"),
    "db status": ((), "read"),
    "db purge": (("--receipt", "400d"), "operate"),
}
"""What each verb is asked, about things of our tenant, and the act that it is."""
NO_TENANTS = {"db upgrade", "db sql", "db grants", "worker"}
"""Verbs about the schema as a whole, or that run a program which opens the database itself."""


def opened() -> Counterfoil:
    return Counterfoil.open("sqlite:///:memory:")


class Held:
    """A database of two tenants, the command line on it, and a token for each role of each."""

    def __init__(self, url: str) -> None:
        self.url, self.line = url, Line(url)
        self.secrets: dict[tuple[str | None, str], str] = {}
        with Counterfoil.open(url) as cf:
            for title in ("lost", "later"):
                with suppress(CounterfoilError):
                    cf.perform(ticket, tenant=OURS, request_id=title, title=title)
            cf.enqueue(parked, tenant=OURS, request_id="later", title="x", delivery=Delivery(max_attempts=1))
            cf.drain(parked)
            with suppress(CounterfoilError):
                cf.perform(letter, tenant=OURS, request_id="r-1", to="ann", principal="ann")
            cf.outbox.pause(tenant=OURS, effect="paused", by="ops", reason="why")
            cf.tenants.create(OURS)
            self.token = cf.tokens.issue(tenant=OURS, name="bo", role="viewer")[0].token_id
            for tenant in (OURS, THEIRS, None):
                for role in Role:
                    made = cf.tokens.issue(tenant=tenant, name=f"{role}-{tenant}", role=role)
                    self.secrets[tenant, role] = made[1]

    def __call__(self, verb: str, *more: str, tenant: str | None = OURS, role: str = "admin", **options: Any) -> Any:
        given = [word.replace("TOKEN", self.token) for word in (*ASKED.get(verb, ((), ""))[0], *more)]
        return self.line(verb, *given, COUNTERFOIL_TOKEN=self.secrets[tenant, role], **options)

    def everything(self) -> str:
        """Return all rows."""
        with closing(sqlite3.connect(file_of(self.url))) as connection:
            return "\n".join(connection.iterdump())


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """What no test may change."""
    made = Held(f"sqlite:///{tmp_path_factory.mktemp('held') / 'agent.db'}")
    before = made.everything()
    yield made
    assert made.everything() == before


def test_every_verb_is_asked() -> None:
    assert {verb for verb in VERBS if not verb.startswith("demo")} - NO_TENANTS == set(ASKED)


def result(held: Held, verb: str, *more: str, **options: Any) -> tuple[int, str, str]:
    from click.testing import CliRunner

    from counterfoil.cli.main import cli

    tenant, role = options.get("tenant", OURS), options.get("role", "admin")
    given = [word.replace("TOKEN", held.token) for word in (*ASKED[verb][0], *more)]
    env = {"COUNTERFOIL_URL": held.url, "COUNTERFOIL_TOKEN": held.secrets[tenant, role]}
    done = CliRunner().invoke(cli, [*verb.split(), *given], env=env)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("verb", ASKED)
def test_a_role_does_what_its_table_says(held: Held, verb: str, role: Role) -> None:
    act = Act(ASKED[verb][1])
    if act in MAY[role] and act is not Act.READ:
        return  # it would be done
    code, _, told = result(held, verb, role=role)
    if act in MAY[role]:
        assert code in {0, 3, 6}, told
    else:
        assert (code, f"which does not permit to {act}" in told) == (4, True), told


@pytest.mark.parametrize("verb", ASKED)
def test_another_tenant_is_refused_as_an_unknown_one_is(held: Held, verb: str) -> None:
    if verb.startswith("tenants") and verb != "tenants list":
        return  # it names a tenant by itself
    told = set()
    for named in (OURS, "nonsense"):
        code, out, said = result(held, verb, "--tenant", named, tenant=THEIRS)
        told.add((code, out, said.replace(named, "...")))
    ((code, out, said),) = told
    assert (code, out) == (3, "")
    assert said.startswith("error[tenant-not-found]: There is no tenant ... here.")


KEPT = "workflows deliver"  # an event is kept for a workflow that is not there yet: in the tenant of the token
ABOUT_IDS = [verb for verb, (words, _) in ASKED.items() if words and not words[0].startswith("--") and verb != KEPT]


@pytest.mark.parametrize("verb", ABOUT_IDS)
def test_another_tenants_things_look_like_unknown_ones(held: Held, verb: str) -> None:
    words = ASKED[verb][0]
    others = {"case-1": "case-99", "approval-1": "approval-99", "TOKEN": "0" * 13}
    unknown = others.get(words[0], f"nonsense-{words[0]}")
    one = result(held, verb, tenant=THEIRS)
    held_words = ASKED[verb]
    try:
        ASKED[verb] = ((unknown, *words[1:]), held_words[1])
        other = result(held, verb, tenant=THEIRS)
    finally:
        ASKED[verb] = held_words
    mine = words[0].replace("TOKEN", held.token)
    assert [str(part).replace(mine, "...") for part in one] == [str(part).replace(unknown, "...") for part in other]


ONE_TENANT = "workflows list"  # it is always about one
LISTS = [verb for verb in ASKED if (verb.endswith(" list") or verb == "audit export") and verb != ONE_TENANT]


@pytest.mark.parametrize("verb", LISTS)
def test_a_list_shows_the_tokens_tenant_alone(held: Held, verb: str) -> None:
    everyones, ours, theirs = (result(held, verb, "--json", tenant=each) for each in (None, OURS, THEIRS))
    rows = [json.loads(out) for _, out, _ in (everyones, ours, theirs)]
    assert {row["tenant"] for row in rows[1]} <= {OURS}
    assert {row["tenant"] for row in rows[2]} <= {THEIRS}
    assert len(rows[0]) >= len(rows[1]) + len(rows[2])


def test_a_token_is_given_in_a_file_and_never_falls_back(held: Held, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(held.secrets[OURS, "viewer"] + "\n", "utf-8")
    told = held.line("tokens whoami --json", "--token-file", str(file), COUNTERFOIL_TOKEN="nonsense")
    shown = json.loads(told.stdout)
    assert (shown["name"], shown["tenant"], shown["role"], shown["acts"]) == ("viewer-team-A", OURS, "viewer", ["read"])
    for secret in ("", "nonsense", held.secrets[OURS, "admin"][:-1]):
        refused = held.line("ops list", COUNTERFOIL_TOKEN=secret, exit_code=4)
        assert refused.stderr.startswith("error[token-refused]: The token is not honoured.")
        assert secret == "" or secret not in refused.output
    assert "cannot be read" in held.line("ops list", "--token-file", str(tmp_path / "none"), exit_code=2).stderr
    assert "role    (holds the database)" in held.line("tokens whoami").stdout


def test_an_errors_page_is_printed_whatever_the_token(held: Held) -> None:
    assert held.line("explain token-refused", COUNTERFOIL_TOKEN="nonsense").stdout.startswith("# token-refused")


def test_no_role_permits_to_change_the_schema(held: Held) -> None:
    told = held.line("db upgrade", COUNTERFOIL_TOKEN=held.secrets[None, "admin"], exit_code=4)
    assert "No role permits to make or upgrade the schema" in told.stderr


def test_by_may_not_name_somebody_else(held: Held) -> None:
    told = held("outbox requeue", "--by", "eve", exit_code=4)
    assert told.stderr.startswith("error[not-allowed]: admin-team-A acts here by a token, and --by names somebody else")


@pytest.fixture
def own(tmp_path: Path) -> Held:
    """What a test may change."""
    return Held(f"sqlite:///{tmp_path / 'own.db'}")


def test_what_is_done_with_a_token_is_noted_with_it(own: Held) -> None:
    own("outbox requeue", "--by", " ADMIN-team-a ")
    own("review resolve", role="reviewer")
    own("approvals approve", role="reviewer")
    rows = json.loads(own("audit list", "--json").stdout)[-3:]
    assert [(row["act"], row["shown"], row["role"]) for row in rows] == [
        ("requeue", "admin-team-A", "admin"),
        ("verdict", "reviewer-team-A", "reviewer"),
        ("approval.approve", "reviewer-team-A", "reviewer"),
    ]
    assert all(row["token_id"] for row in rows)


def test_tokens_are_issued_listed_rotated_and_revoked(own: Held) -> None:
    line = own.line
    issued = line.json("tokens issue --tenant team-C --name Mei --role reviewer --scope read --expires-in 1h")
    assert (issued["tenant"], issued["role"], issued["scopes"]) == ("team-C", "reviewer", ["read"])
    assert json.loads(line("ops list --json", COUNTERFOIL_TOKEN=issued["secret"]).stdout) == []
    rotated = line.json(f"tokens rotate {issued['token_id']} --overlap 0s")
    line("ops list", COUNTERFOIL_TOKEN=issued["secret"], exit_code=4)
    line("ops list", COUNTERFOIL_TOKEN=rotated["secret"])
    revoked = line(f"tokens revoke {rotated['token_id']} --by ops --reason seen")
    assert revoked.stdout == f"revoked  {rotated['token_id']}  Mei  by=ops\n"
    line("ops list", COUNTERFOIL_TOKEN=rotated["secret"], exit_code=4)
    listed = line("tokens list --tenant team-C").stdout
    assert ("Mei" in listed, issued["secret"][20:] in listed) == (True, False)
    assert [each["status"] for each in line.json("tokens list --tenant team-C")] == ["expired", "revoked"]
    assert "either --tenant NAME or --all-tenants" in line("tokens issue --name x --role viewer", exit_code=2).stderr
    shown = line("tokens issue --all-tenants --name root --role admin --expires-in never").stdout
    assert "until   for ever" in shown
    assert "\ncfl_" in shown


def test_who_suspends_the_own_tenant_is_told_who_can_let_it_go_on(own: Held) -> None:
    other = own("tenants suspend", tenant=None)
    assert "own token" not in other.stderr
    own.line(f"tenants resume {OURS} --reason why")
    told = own("tenants suspend", "--json")
    assert json.loads(told.stdout)["status"] == "suspended"
    assert told.stderr == (
        "Your own token is refused from now on. Who holds the database, or an admin for all tenants, can let the tenant"
        f" go on: counterfoil tenants resume {OURS} --reason '...'\n"
    )
    assert own("tenants resume", exit_code=4).stderr.startswith("error[token-refused]")
    own("tenants resume", tenant=None)
    own("tenants list")


def test_tenants_are_suspended_and_resumed(own: Held) -> None:
    line = own.line
    line("tenants create team-C --name", "Team C")
    told = line("tenants suspend team-C --by ops --reason", "no contract").stdout
    assert told == "team-C (Team C) is suspended, by ops\n"
    assert [each["status"] for each in line.json("tenants list")] == ["active", "suspended"]
    assert "team-C" in line("outbox list --paused").stdout
    line("tenants resume team-C --reason why")
    assert "Two tenants are named" in line("tenants resume team-C --tenant team-A --reason why", exit_code=2).stderr
    assert "team-C" not in line("outbox list --paused").stdout
    assert line("tenants suspend nonsense --reason why", exit_code=3).stderr.startswith("error[tenant-not-found]")
    entries = line("audit list --subject team-C").stdout
    assert "tenant team-C  active -> suspended  no contract" in entries
    lines = line("audit export --tenant team-C").stdout.splitlines()
    assert [json.loads(each) for each in lines] == line.json("audit export --tenant team-C")
    assert len(lines) == 3

"""The thirteen everyday situations as short stories: the same story is played in both columns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from counterfoil.demo.places import TENANTS
from counterfoil.demo.stage import Stage
from counterfoil.demo.steps import APPROVE, REJECT
from counterfoil.testing.provider_desk import Settings

_FAIR: Final = Settings()
_BLIND: Final = Settings(keys=False, lookup=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A story, and what Counterfoil must make of it.

    `requests` is how many business requests may be carried out: so many tickets are right. `unknown` is how many
    outcomes nobody can know; `ends` is how the runs must end, in any order. With `asks_again` nothing may be opened
    before the last step, in which a person approves what had changed.
    """

    slug: str
    title: str
    play: Callable[[Stage], None]
    ends: tuple[str, ...]
    requests: int = 1
    unknown: int = 0
    server: Settings = _FAIR
    asks_again: bool = False


def killed_after_post(stage: Stage) -> None:
    """Let the server accept the POST and kill its client before it answers; then resume."""
    stage.server.order("kill-client")
    stage.start()
    stage.go_on()


def interrupt_after_post(stage: Stage) -> None:
    """Ask a person after the POST: their answer runs the node again from its top."""
    stage.start(review=True)
    stage.answer(True)  # noqa: FBT003 - the person's answer


def reply_lost(stage: Stage) -> None:
    """Let the server accept and break the connection, up to twice."""
    stage.server.order("drop-reply", "drop-reply")
    stage.start()


def reply_lost_no_lookup(stage: Stage) -> None:
    """Do the same with a server that neither honours keys nor can be asked."""
    stage.server.order("drop-reply", "drop-reply")
    stage.start(opaque=True)


def later_node_fails(stage: Stage) -> None:
    """Send the whole request again when the mail server was down."""
    stage.start(mail_works=False)
    stage.start()


def resumed_with_none(stage: Stage) -> None:
    """Resume properly when the mail server was down."""
    stage.start(mail_works=False)
    stage.go_on()


def earlier_checkpoint(stage: Stage) -> None:
    """Run a finished thread again from before the ticket."""
    stage.start()
    stage.go_on(back_to="create")


def two_workers(stage: Stage) -> None:
    """Let two workers pick up at once a thread that failed because the ticket server was busy."""
    stage.server.order("busy-429")
    stage.start()
    stage.go_on_twice_at_once()


def other_payload(stage: Stage) -> None:
    """Send the same request with another title."""
    stage.start("Printer offline")
    stage.start("Printer on fire")


def three_operations(stage: Stage) -> None:
    """Send three distinct requests: two share the tenant, two share the request id."""
    one, other = TENANTS
    for tenant, request_id in ((one, "r-1"), (one, "r-2"), (other, "r-1")):
        stage.start(tenant=tenant, request_id=request_id, thread_id=f"{tenant}/{request_id}")


def reviewer_rejects(stage: Stage) -> None:
    """Ask a person for a permission, who says no."""
    stage.ask()
    stage.decide(REJECT)


def rejected_by_another_route(stage: Stage) -> None:
    """Do the same where a second hook sends every call of the model straight to the tools."""
    stage.ask(jumps=True)
    stage.decide(REJECT)


def parameters_changed(stage: Stage) -> None:
    """Let a second hook change what was approved; approve that, too, where somebody asks."""
    stage.ask(changed="Printer on fire")
    stage.decide(APPROVE)
    stage.decide(APPROVE)


SITUATIONS: Final = (
    Situation(
        slug="killed-after-post",
        title="process killed after the POST, then resumed",
        play=killed_after_post,
        ends=("killed", "finished"),
    ),
    Situation(
        slug="interrupt-after-post",
        title="a person is asked after the POST in the same node",
        play=interrupt_after_post,
        ends=("waiting", "finished"),
    ),
    Situation(
        slug="reply-lost",
        title="reply lost twice under a retry policy",
        play=reply_lost,
        ends=("finished",),
    ),
    Situation(
        slug="reply-lost-no-lookup",
        title="the same, server has neither key nor look-up",
        play=reply_lost_no_lookup,
        ends=("parked",),
        unknown=1,
        server=_BLIND,
    ),
    Situation(
        slug="later-node-fails",
        title="a later node fails, same input sent again",
        play=later_node_fails,
        ends=("failed", "finished"),
    ),
    Situation(
        slug="resumed-with-none",
        title="a later node fails, resumed with None (control)",
        play=resumed_with_none,
        ends=("failed", "finished"),
    ),
    Situation(
        slug="earlier-checkpoint",
        title="run again from an earlier checkpoint",
        play=earlier_checkpoint,
        ends=("finished", "finished"),
    ),
    Situation(
        slug="two-workers",
        title="two workers resume one thread at once",
        play=two_workers,
        ends=("effect-not-sent", "finished", "thread-busy"),
    ),
    Situation(
        slug="other-payload",
        title="same request id with another title",
        play=other_payload,
        ends=("finished", "fingerprint-mismatch"),
    ),
    Situation(
        slug="three-operations",
        title="three requests of two tenants (control)",
        play=three_operations,
        ends=("finished", "finished", "finished"),
        requests=3,
    ),
    Situation(
        slug="reviewer-rejects",
        title="a person is asked before the POST and rejects it",
        play=reviewer_rejects,
        ends=("waiting", "finished"),
        requests=0,
    ),
    Situation(
        slug="rejected-by-another-route",
        title="the same, and a second hook jumps to the tools",
        play=rejected_by_another_route,
        ends=("waiting", "approval-rejected"),
        requests=0,
    ),
    Situation(
        slug="parameters-changed",
        title="parameters changed after the approval",
        play=parameters_changed,
        ends=("waiting", "waiting", "finished"),
        asks_again=True,
    ),
)

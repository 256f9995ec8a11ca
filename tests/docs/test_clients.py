"""The reference of clients says what the tables say: `python tests/docs/test_clients.py` writes it anew."""

from pathlib import Path

from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.statuses import JUDGED, standard
from counterfoil.providers.tables import HOMES, RETRIERS, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "clients.md"
HEAD = """# Clients

What the exceptions of known clients say about the world. *Not sent* holds for every effect, without a declaration. What
the provider answered is judged by `Provider(classify=counterfoil.providers.classify)` alone. Whatever is not named is
unknown. So is everything that comes through a package that calls again:
{retriers}.

Where a client sends again by itself, the same class may come from its first try or from a later one. That is read from
the exception's traceback, never from its text.

Mail, Stripe, webhooks: [their own page](../how-to/mail-payments-webhooks.md).
"""
NAMES = {
    AttemptOutcome.SUCCEEDED: "succeeded",
    AttemptOutcome.NOT_SENT: "not sent",
    AttemptOutcome.REFUSED: "refused",
    AttemptOutcome.UNKNOWN: "unknown",
}


def spans(statuses: list[int]) -> str:
    """Return statuses with their runs drawn together."""
    runs: list[list[int]] = []
    for status in statuses:
        if runs and runs[-1][-1] == status - 1:
            runs[-1].append(status)
        else:
            runs.append([status])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def of_statuses() -> str:
    rows = [
        f"| {spans([s for s in range(200, 600) if standard(s) is outcome])} | {name} |"
        for outcome, name in NAMES.items()
    ]
    judged = ", ".join(map(str, sorted(JUDGED)))
    after = (
        f"A refusal by {judged} also covers an earlier attempt under the same key whose reply was lost; any other\n"
        "leaves that one unknown.\n"
    )
    return "\n".join(["## HTTP statuses", "", "| status | means |", "|---|---|", *rows, "", after])


def of_client(home: str) -> str:
    known = table(home)
    named = [f"| `{name}` | not sent |" for name in sorted(known.not_sent)]
    seen = [f"| {what} | {then} |" for what, then in known.by_structure]
    return "\n".join([f"## {known.client}", "", "| exception | means |", "|---|---|", *named, *seen, ""])


def page() -> str:
    retriers = ", ".join(f"`{name}`" for name in sorted(RETRIERS))
    return "\n".join([HEAD.format(retriers=retriers), of_statuses(), *map(of_client, sorted(set(HOMES.values())))])


def test_the_page_says_what_the_tables_say() -> None:
    assert PAGE.read_text("utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

"""What a known client's exception says about the world: *not sent*, *refused* or *unknown*, as data.

Each client has a `TABLE` in the file of its name. It names classes by top-level package and class, so that no client is
imported to recognise its own errors; whatever it does not name is unknown. Where a client sends again by itself, a
class that is raised before anything is sent proves something of its last try only: `is_first_try` then reads from the
exception's traceback whether there was another before.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from counterfoil.core import outcomes
from counterfoil.core.outcomes import root
from counterfoil.core.states import AttemptOutcome
from counterfoil.model import Refused
from counterfoil.providers.tracebacks import modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOMES: Final = {
    "aiohttp": "aiohttp",
    "aiosmtplib": "smtp_answers",
    "botocore": "botocore",
    "builtins": "stdlib",
    "grpc": "grpc",
    "http": "stdlib",
    "httpcore": "httpx",
    "httpx": "httpx",
    "psycopg": "psycopg",
    "psycopg_pool": "psycopg",
    "requests": "requests",
    "smtplib": "smtp_answers",
    "socket": "stdlib",
    "sqlalchemy": "sqlalchemy",
    "ssl": "stdlib",
    "stripe": "stripe_errors",
    "urllib": "stdlib",
    "urllib3": "urllib3",
}
"""The file of this room that knows a top-level package."""

RETRIERS: Final = frozenset(
    {"aiohttp_retry", "backoff", "httplib2", "httpx_retries", "httpx_retry", "retry", "retrying", "stamina", "tenacity"}
    | {"xmlrpc"}
)
"""Packages that call again: of what was sent before the try that they give up on, an exception tells nothing."""

Judgement = AttemptOutcome | Refused


def _always(_: BaseException) -> bool:
    return True


def _silent(_: BaseException) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How one client's exceptions are sorted.

    Args:
        client: The client's name, for people.
        not_sent: Raised before anything was sent: `"httpx.ConnectError"`.
        unknown: Raised after a request may have left, although neither name nor bases say so; no declaration of
            "nothing happened" may catch one. Names only what people are tempted to declare: all others are unknown too.
        is_first_try: Says whether nothing was sent before the try that raised a `not_sent` exception.
        never_left: Says of other exceptions, by their structure, whether nothing was sent.
        judge: Says what the provider's own answer means, where an exception carries one.
        by_structure: What `never_left` and `judge` look at, in words: pairs of a class and what follows.
    """

    client: str
    not_sent: frozenset[str]
    unknown: frozenset[str] = frozenset()
    is_first_try: Callable[[BaseException], bool] = _always
    never_left: Callable[[BaseException], bool] = lambda _: False
    judge: Callable[[BaseException], Judgement | None] = _silent
    by_structure: tuple[tuple[str, str], ...] = ()


def never_left(error: BaseException) -> bool:
    """Say whether a client's exception proves that nothing was sent; this much holds without a declaration."""
    if RETRIERS & {each.partition(".")[0] for each in modules(error)}:
        return False
    return any(_never_left(table, error) for table in tables_of(type(error)))


def classify(error: BaseException) -> Judgement | None:
    """Return what a known client's exception means, the provider's own answers included: `Provider(classify=classify)`.

    None leaves an exception to the rules that always hold. A refusal that tells nothing of an earlier attempt comes as
    a `Refused` that says so.
    """
    if never_left(error):
        return AttemptOutcome.NOT_SENT
    told = (known.judge(error) for known in tables_of(type(error)))
    return next((judgement for judgement in told if judgement is not None), None)


def is_lost_reply(cls: type[BaseException]) -> bool:
    """Say whether a class is known to be raised after a request may have left."""
    named = f"{root(cls)}.{cls.__name__}"
    return any(named in table.unknown for table in tables_of(cls))


def ambiguous(declared: Iterable[type[BaseException]]) -> tuple[str, ...]:
    """Name the declared "nothing happened" or "refused" classes that would also catch a lost reply."""
    return outcomes.ambiguous(declared, is_lost_reply)


def tables_of(cls: type) -> Iterator[Table]:
    """Return the tables of the clients that a class and its bases come from."""
    homes = dict.fromkeys(HOMES[root(each)] for each in cls.__mro__ if root(each) in HOMES)
    yield from (table(home) for home in homes)


def table(home: str) -> Table:
    """Return the table in one file of this room."""
    found: Table = import_module(f"{__package__}.{home}").TABLE
    return found


def is_named(error: BaseException, names: frozenset[str], beside: frozenset[str] = frozenset()) -> bool:
    """Say whether the most specific of an exception's classes that is named at all is among the first names."""
    own = [f"{root(cls)}.{cls.__name__}" for cls in type(error).__mro__]
    return next((name in names for name in own if name in names | beside), False)


def _never_left(known: Table, error: BaseException) -> bool:
    if is_named(error, known.not_sent, known.unknown):
        return known.is_first_try(error)
    return known.never_left(error)

"""Which behaviour is tried as which role: some of it in every change, the whole in `make conformance`."""

import zlib
from collections import defaultdict
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tests.conformance.pairs import EVERY_PAIR
from tests.stores import POSTGRES

GRANTED, ONE_TENANT, FORCED = "granted", "for-one-tenant", "owner"
"""Roles: an application's; one that may not work for all tenants; the owner of tables that hold it, too."""
SHARE = 4
"""A change runs one behaviour in so many, each as one role and in one colour."""
FOR_ALL_TENANTS = frozenset(
    {
        *("test_approvals_queued", "test_outbox", "test_working", "test_workflows", "test_workflows_by_hand"),
        "test_tokens",  # tenants, and whose a token is
        # workers in tests of other files
        "test_what_is_enqueued_must_be_granted_too",
        "test_what_nobody_decided_is_over_whoever_looks_first",
        "test_what_proved_absent_is_asked_about_again_if_its_decision_ran_out",
        # acts of an operator for all
        "test_entries_are_listed_by_pages_by_whom_and_about_what",
        "test_what_a_principal_does_is_noted",
    }
)
"""Files, and tests of others, in which work is done for all tenants at once: one of these roles finds none."""

FOR_OWNERS = frozenset(
    {"test_numbers_are_not_used_twice_when_an_older_one_is_forgotten"}
    | {"test_what_is_forgotten_takes_what_was_asked_about_it_along"}
)
"""Tests in which what is known of an operation is removed, which no granted role may do."""


def behaviour(*modules: ModuleType) -> dict[str, Any]:
    """Return what a module makes its own: tests of modules, and their fixtures, of one name the last one's."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and _is_run(name)
    }


def _is_run(name: str) -> bool:
    return EVERY_PAIR or not name.startswith("test_") or _number(name) % SHARE == 0


def roles(file: str, name: str) -> list[str]:
    """Return the roles as which a test is run."""
    able = [FORCED] if name in FOR_OWNERS else [GRANTED, FORCED]
    if not FOR_ALL_TENANTS & {file, name}:
        able.append(ONE_TENANT)
    return able if EVERY_PAIR else [able[_number(name) // SHARE % len(able)]]


def chosen(items: Iterable[Any]) -> set[Any]:
    """Return the tests to run: of those that differ in colour alone one, and in `make conformance` all as one role."""
    alike: defaultdict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "lasting_role" in params and params.get("store", POSTGRES) == POSTGRES:
            colour, role = str(params.get("colour")), params["lasting_role"]
            rest = "-".join(part for part in item.callspec.id.split("-") if part not in colour.split("-"))
            alike[item.path.stem, item.originalname, rest, role][colour] = item
    kept = set()
    for (_, name, rest, role), colours in alike.items():
        one = sorted(colours)[_number(f"{name} {rest}") % len(colours)]
        kept |= set(colours.values()) if EVERY_PAIR and role == GRANTED else {colours[one]}
    return kept


def _number(name: str) -> int:
    return zlib.crc32(name.encode())

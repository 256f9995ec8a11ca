"""What is stored with an operation reads back as it was meant, whatever release wrote it."""

from dataclasses import asdict

from counterfoil.model import ProviderFacts
from counterfoil.storage import rows

DECLARED = ProviderFacts(key_lifetime=86_400_000, queryable=True, lookup_lag=0, time_limit=20_000, lease=20_000)


def test_facts_that_are_as_always_are_left_out() -> None:
    assert rows.facts_text(ProviderFacts()) == "{}"
    assert rows.facts_text(ProviderFacts(time_limit=1)) == '{"time_limit":1}'


def test_facts_read_back_as_they_were_declared() -> None:
    for facts in (ProviderFacts(), DECLARED, ProviderFacts(transactional=True, retry_on_absent=False, key_length=32)):
        assert rows.facts_from(rows.facts_text(facts)) == facts


def test_facts_of_a_newer_release_are_read_without_what_is_new() -> None:
    assert rows.facts_from('{"lease":5,"moods":3}') == ProviderFacts(lease=5)


def test_what_was_left_out_means_the_same_for_ever() -> None:
    """Change none of these: rows of every release so far were written without them."""
    assert asdict(ProviderFacts()) == {
        "transactional": False,
        "key_lifetime": None,
        "key_length": 64,
        "queryable": False,
        "lookup_lag": None,
        "retry_on_absent": True,
        "time_limit": 30_000,
        "lease": 30_000,
    }

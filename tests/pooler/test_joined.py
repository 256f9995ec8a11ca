"""Transactions of the application's own behind a pooler: what holds of every store."""

from tests.conformance.test_joined import *  # noqa: F403

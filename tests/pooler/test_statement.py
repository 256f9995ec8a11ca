"""Effects that are one statement behind a pooler, where no statement stands alone: what holds of every store."""

from tests.conformance.test_statement import *  # noqa: F403

"""The ledger behind a pooler: what holds of every store."""

from tests.conformance.test_commits import *  # noqa: F403
from tests.conformance.test_once import *  # noqa: F403
from tests.conformance.test_transactional import *  # noqa: F403

"""The ledger as a role that row security holds: what holds of every store."""

from tests.conformance import (
    test_commits,
    test_heard_late,
    test_late,
    test_once,
    test_transactional,
    test_unknown,
    test_verify,
    test_versions,
    test_waiting,
)
from tests.row_security.held.choice import behaviour

globals().update(
    behaviour(
        test_commits,
        test_heard_late,
        test_late,
        test_once,
        test_transactional,
        test_unknown,
        test_verify,
        test_versions,
        test_waiting,
    )
)

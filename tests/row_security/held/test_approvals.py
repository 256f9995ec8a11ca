"""Approvals as a role that row security holds: what holds of every store."""

from tests.conformance import test_approvals, test_approvals_edited, test_approvals_in_time
from tests.row_security.held.choice import behaviour

globals().update(behaviour(test_approvals, test_approvals_edited, test_approvals_in_time))

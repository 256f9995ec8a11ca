"""The audit as a role that row security holds: what holds of every store."""

from tests.conformance import test_audit
from tests.row_security.held.choice import behaviour

globals().update(behaviour(test_audit))

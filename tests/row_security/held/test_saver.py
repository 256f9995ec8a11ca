"""The checkpointer as a role that row security holds: what holds of every store."""

from tests.langgraph import test_conformance, test_saver
from tests.row_security.held.choice import behaviour

globals().update(behaviour(test_conformance, test_saver))

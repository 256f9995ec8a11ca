"""The checkpointer behind a pooler: what holds of every store."""

from tests.langgraph.test_conformance import *  # noqa: F403
from tests.langgraph.test_saver import *  # noqa: F403

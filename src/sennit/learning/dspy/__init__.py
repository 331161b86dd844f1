"""Stateful sessions for DSPy programs."""

from sennit.learning.dspy.history import Turn
from sennit.learning.dspy.introspection import (
    get_child_l1_ledger,
    get_current_history,
    get_execution_trace,
    get_node_memory,
    get_outer_history,
)
from sennit.learning.dspy.reducers import HistoryReducer, RecentMedia, Summarize, TokenBudget
from sennit.learning.dspy.session import Session, sessionify, with_memory
from sennit.learning.dspy.state import SessionState

__all__ = [
    "HistoryReducer",
    "RecentMedia",
    "Session",
    "SessionState",
    "Summarize",
    "TokenBudget",
    "Turn",
    "get_child_l1_ledger",
    "get_current_history",
    "get_execution_trace",
    "get_node_memory",
    "get_outer_history",
    "sessionify",
    "with_memory",
]

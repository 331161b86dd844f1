"""Introspection from inside a running program: its history, trace and memory."""

from __future__ import annotations

from typing import Any

from sennit.errors import SennitError
from sennit.learning.dspy.call import SessionCall
from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import HistorySnapshot, format_ledger
from sennit.learning.dspy.predictor_hook import active_nodes, current_call
from sennit.learning.dspy.turn_log import TurnLog

_ROOT = "root"


def get_current_history() -> Any:
    """Return the history of the running node: the predictor's own, or else the program's."""
    node = _running_node()
    call = _require_call()
    if node is None or call.explicit_history is not None:
        return get_outer_history()
    return HistorySnapshot.of(node.span(call.state.log.initial))


def get_outer_history() -> Any:
    """Return the history of the program in this call."""
    call = _require_call()
    explicit = call.explicit_history
    if explicit is None and call.span is not None:
        return HistorySnapshot.of(call.span)
    return History(messages=explicit or [])


def get_node_memory() -> str:
    """Return the consolidated memory of the running node; "" if there is none."""
    node = _running_node()
    return "" if node is None else node.memory


def get_child_l1_ledger(path: str = "") -> str:
    """Return the turns of the node or session at a dotted path as text; "" is the program itself.

    Outside a call it is "".
    """
    call = current_call()
    if call is None:
        return ""
    if not path:
        return format_ledger(call.state.log.turns)
    node = _nodes(call).get(path)
    return "" if node is None else format_ledger(node.turns)


def get_execution_trace() -> str:
    """Return one line per node with its turns and memory size, then the active nodes.

    Outside a call it is "".
    """
    call = current_call()
    if call is None:
        return ""
    lines = [_trace_line(_ROOT, len(call.state.log.turns), "")]
    lines += [
        _trace_line(name, len(node.turns), node.memory) for name, node in _nodes(call).items()
    ]
    return "\n".join([*lines, f"active: {' > '.join([_ROOT, *active_nodes()])}"])


def _running_node() -> TurnLog | None:
    memory, stack = _require_call().memory, active_nodes()
    return memory.node(stack[-1]) if memory is not None and stack else None


def _nodes(call: SessionCall) -> dict[str, TurnLog]:
    """Return the nodes with turns of their own and the nested sessions, by name."""
    return call.nested_logs() | ({} if call.memory is None else call.state.nodes.all())


def _require_call() -> SessionCall:
    call = current_call()
    if call is None:
        raise SennitError("No session is running; call this from inside a running program.")
    return call


def _trace_line(name: str, turns: int, memory: str) -> str:
    return f"{name}: {turns} turn{'' if turns == 1 else 's'}, memory {len(memory)} characters"

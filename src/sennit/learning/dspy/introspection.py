"""Introspection from inside a running program: its history, trace and memory."""

from __future__ import annotations

from typing import Any

from sennit.errors import SennitError
from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import HistorySnapshot
from sennit.learning.dspy.node_memory import PredictorNode
from sennit.learning.dspy.predictor_hook import active_nodes, current_call
from sennit.learning.dspy.turn import Turn

_ROOT = "root"


def get_current_history() -> Any:
    """The history of the node that is running: a predictor's own, else the program's."""
    node = _node_running()
    call = _call()
    if node is None or call.given is not None:
        return get_outer_history()
    return HistorySnapshot.of(node.log.span(call.state.log.initial))


def get_outer_history() -> Any:
    """The history of the program as a whole, as this call was told it."""
    call = _call()
    return History(messages=call.given) if call.given is not None else HistorySnapshot.of(call.span)


def get_node_memory() -> str:
    """Return the consolidated memory of the running node; "" if there is none."""
    node = _node_running()
    return "" if node is None else node.memory


def get_child_l1_ledger(path: str = "") -> str:
    """The turns of the node at a dotted path as text; "" is the program itself."""
    call = _call()
    if not path:
        return _ledger(call.state.log.turns)
    node = call.nodes_now.get(path)
    return "" if node is None else _ledger(node.log.turns)


def get_execution_trace() -> str:
    """One line per node with its turns and the size of its memory, then what is running."""
    call = _call()
    lines = [_line(_ROOT, len(call.state.log.turns), "")]
    lines += [
        _line(name, len(node.log.turns), node.memory) for name, node in call.nodes_now.items()
    ]
    return "\n".join([*lines, f"active: {' > '.join([_ROOT, *active_nodes()])}"])


def _node_running() -> PredictorNode | None:
    call = _call()
    stack = active_nodes()
    return call.node(stack[-1]) if stack else None


def _call() -> Any:
    call = current_call()
    if call is None:
        raise SennitError("No session is running; call this from inside a running program.")
    return call


def _line(name: str, turns: int, memory: str) -> str:
    return f"{name}: {turns} turn{'' if turns == 1 else 's'}, memory {len(memory)} characters"


def _ledger(turns: list[Turn]) -> str:
    lines: list[str] = []
    for turn in turns:
        lines.append(f"- turn: {turn.index}")
        for name, fields in (("inputs", turn.inputs), ("outputs", turn.outputs)):
            lines.append(f"  {name}:")
            lines += [f"    {field}: {_indented(value)}" for field, value in fields.items()]
    return "\n".join(lines)


def _indented(value: Any) -> str:
    lines = str(value).split("\n")
    return lines[0] if len(lines) == 1 else "\n".join(["|", *(f"      {line}" for line in lines)])

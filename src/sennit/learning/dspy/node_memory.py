"""Memory of nested predictors (nodes), each with a history of its own.

A plain session has one history, that of the program. With `with_memory` each predictor has turns
too, on a branch named after the session's branch and the predictor. They belong to one predictor or
are shared by all; they persist, end with each call of the program (an episode), or are not
recorded. At the end of an episode a consolidator may merge it into a longer memory, a text that is
added to the predictor's instructions; it is stored as the system message of the node's branch.

The turns of nodes belong to a call of the program. If the call fails or is undone, its node turns
are removed and the memories restored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from threading import Lock
from typing import Any

from sennit.errors import ExistsError
from sennit.ids import new_id
from sennit.learning.dspy.history import Fields, HistoryEntry, Turn
from sennit.learning.dspy.options import Consolidator, MemoryPlan, Options
from sennit.learning.dspy.turn_log import MAX_TRIES, TurnLog
from sennit.learning.examples import METADATA_KEY
from sennit.sessions.branch import Branch
from sennit.sessions.retry_on_conflict import retry_on_conflict

SHARED = "*"

_log = logging.getLogger(__name__)


class PredictorNodes:
    """The nodes of a conversation, created on first use."""

    def __init__(self, branch: Branch, options: Options) -> None:
        self._session, self._prefix, self._options = branch.session, f"{branch.name}/", options
        self._nodes: dict[str, TurnLog] = {}
        self._create_lock = Lock()

    def of(self, name: str) -> TurnLog:
        """Return the turns of a predictor by name; create their branch on first use."""
        if name not in self._nodes:  # otherwise without waiting for the creation of another
            with self._create_lock:
                if name not in self._nodes:
                    self._nodes[name] = TurnLog(self._options, self._get_or_create_branch(name))
        return self._nodes[name]

    def _get_or_create_branch(self, name: str) -> Branch:
        branch_name = f"{self._prefix}{name}"
        branch = self._session.get_branch(branch_name, None)
        if branch is not None:
            return branch
        try:
            return self._session.create_branch(name=branch_name)
        except ExistsError:  # another process created it first
            return self._session.get_branch(branch_name)

    def all(self) -> dict[str, TurnLog]:
        """Return the nodes that have turns or a memory, and those in use, by name."""
        for branch in self._session.branches:
            if branch.name.startswith(self._prefix) and _is_node_branch(branch):
                self.of(branch.name.removeprefix(self._prefix))
        return dict(self._nodes)

    def undo_calls(self, calls: AbstractSet[str], memories: Iterable[Mapping[str, str]]) -> None:
        """Remove the turns of calls and restore `memories`, passed newest call first."""
        for node in self.all().values():
            node.remove_calls(calls)
        restored = {name: text for texts in memories for name, text in texts.items()}
        for name, text in restored.items():
            self.of(name).memory = text

    def fork(self, branch: Branch) -> PredictorNodes:
        """Return forks of all nodes for another branch of the same session."""
        nodes = PredictorNodes(branch, self._options)
        for name, node in self.all().items():
            nodes._nodes[name] = node.fork(f"{nodes._prefix}{name}")
        return nodes

    def copy_in_memory(self, branch: Branch) -> PredictorNodes:
        """Return copies of all nodes for a branch in memory."""
        nodes = PredictorNodes(branch, self._options)
        for name, node in self.all().items():
            copy = nodes.of(name)
            copy.replace_with(node.copy_in_memory())
            copy.memory = node.memory
        return nodes


def _is_node_branch(branch: Branch) -> bool:
    """Return whether a branch belongs to a node; other branches may have similar names."""
    ends = [branch.session.messages.get(branch[index]) for index in (0, -1)] if len(branch) else []
    return any(METADATA_KEY in message.metadata for message in ends)


class NodeMemory:
    """The node turns and memories of one call of the program."""

    def __init__(self, nodes: PredictorNodes, plan: MemoryPlan, *, replaces: bool = False) -> None:
        """Begin a call; with `replaces`, all earlier turns and memories go if it succeeds."""
        self._nodes, self.plan, self._replaces = nodes, plan, replaces
        self.call = new_id().hex
        """The id of this call, stored with its turns."""
        self.memories: dict[str, str] = {}
        """The memories before this call of the nodes whose memory it changed."""
        self._previous_memories: dict[str, str] = {}
        """The memories to restore if the call fails."""
        self._episodes: dict[str, list[Turn]] = {}
        self._plans: dict[str, MemoryPlan] = {}
        """The options of the nodes with an episode."""

    def _key(self, name: str) -> str:
        return SHARED if self.plan.of(name).isolation == "shared" else name

    def node(self, name: str) -> TurnLog:
        """Return the node that records a predictor's turns."""
        return self._nodes.of(self._key(name))

    def history_for(
        self, name: str, fields: Fields, initial: Sequence[HistoryEntry]
    ) -> list[HistoryEntry]:
        """Return the history of a predictor: the initial history, then its own turns."""
        if self.plan.of(name).lifespan == "stateless":
            return []
        log = self.node(name)
        return log.entries_for(log.current_span(initial), name, fields)

    def memory_of(self, name: str) -> str:
        """Return the consolidated memory of a predictor."""
        excluded = self.plan.of(name).lifespan == "stateless"
        return "" if self._replaces or excluded else self.node(name).memory

    def record(self, name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Record the inputs and outputs of a predictor as a turn."""
        plan = self.plan.of(name)
        if plan.lifespan != "stateless":
            turn = self.node(name).add(inputs, outputs, call=self.call, node=name)
            self._episodes.setdefault(self._key(name), []).append(turn)
            self._plans[self._key(name)] = plan

    def consolidate(self) -> None:
        """Update the memories from this call; a node whose consolidator fails keeps its memory."""
        for name, episode in self._episodes.items():
            consolidator = self._plans[name].consolidator
            if consolidator is None:
                continue
            work = partial(self._consolidate, consolidator, name, episode)
            retry_on_conflict(work, f"the memory of {name!r}", tries=MAX_TRIES)

    def _consolidate(self, consolidator: Consolidator, name: str, episode: list[Turn]) -> None:
        node = self._nodes.of(name)
        previous = node.memory
        current = "" if self._replaces else previous
        try:
            consolidated = consolidator(current, episode, name)
        except Exception:
            _log.warning(
                "The consolidator of %r failed; its memory is unchanged", name, exc_info=True
            )
            return
        if consolidated != previous:
            node.remember(consolidated)
            self.memories[name], self._previous_memories[name] = current, previous

    def end_episode(self) -> None:
        """Remove the turns that do not persist, after the call has succeeded."""
        if self._replaces:
            self._forget_others()
        for name in self._episodes:
            if self._plans[name].lifespan == "episodic":
                self._nodes.of(name).remove_calls({self.call})

    def _forget_others(self) -> None:
        for name, node in self._nodes.all().items():
            node.catch_up()
            node.remove_calls({turn.call for turn in node.turns} - {self.call})
            if node.memory and name not in self.memories:
                node.memory = ""

    def rollback(self) -> None:
        """Remove the turns of the failed call and restore the memories."""
        self._nodes.undo_calls({self.call}, [self._previous_memories])

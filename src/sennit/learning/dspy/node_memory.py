"""Memory of nested predictors, each with a history of its own.

A plain session has one past, that of the program as a whole. With `with_memory` each predictor has
turns as well, on a branch beside the session's, named after it. They are its alone or shared by all
nodes; they last, or end with each call of the program (an episode), or are not kept at all. At the
end of an episode a consolidator may fold it into a longer memory, a text that the predictor is
given with its instructions; it is the system message of the node's branch.

What nodes said belongs to the call of the program they said it in. A call that fails, or is taken
back, takes their turns and what they remember of it along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Literal, TypeAlias

from sennit.errors import ExistsError
from sennit.ids import new_id
from sennit.learning.dspy.history import Fields, Told
from sennit.learning.dspy.history_options import HistoryOptions
from sennit.learning.dspy.plain_values import mended
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_log import TRIES, TurnLog
from sennit.learning.exchanges import KEY
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.retry_on_conflict import retry_on_conflict

Scope: TypeAlias = Literal["isolated", "shared"]
Lifetime: TypeAlias = Literal["persistent", "episodic", "stateless"]
Consolidator: TypeAlias = Callable[[str, Sequence[Turn], str], str]
"""Given what a node remembers, the turns of an episode and its name, what it remembers now."""

SHARED = "*"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory options of nodes."""

    scope: Scope = "isolated"
    lifetime: Lifetime = "persistent"
    consolidator: Consolidator | None = None


class PredictorNode:
    """A predictor's own past."""

    def __init__(self, log: TurnLog) -> None:
        self.log = log

    @property
    def memory(self) -> str:
        """The consolidated memory."""
        system = self.log.branch.system
        return "" if system is None else system.content.words

    @memory.setter
    def memory(self, text: str) -> None:
        retry_on_conflict(lambda: self.remember(text), "the memory of a predictor", tries=TRIES)

    def remember(self, text: str) -> None:
        """Have this as what was consolidated; raises ConflictError if someone else was faster."""
        said = SystemContent(system_message=mended(text))
        self.log.set_system(Message(said, metadata={KEY: {"memory": True}}) if text else None)

    def clear(self) -> None:
        """Have no past and remember nothing."""
        retry_on_conflict(self._clear, "the past of a predictor", tries=TRIES)

    def _clear(self) -> None:
        self.log.catch_up()
        self.log.begin_with([])
        if self.memory:
            self.remember("")


class PredictorNodes:
    """The nodes of a conversation, made when first needed."""

    def __init__(self, beside: Branch, telling: HistoryOptions) -> None:
        self._session, self._stem, self._telling = beside.session, f"{beside.name}/", telling
        self._nodes: dict[str, PredictorNode] = {}
        self._making = Lock()

    def of(self, name: str) -> PredictorNode:
        """A node by the name of its predictor."""
        if (found := self._nodes.get(name)) is not None:
            return found  # without waiting for one that is being made
        with self._making:
            found = self._nodes.get(name)
            if found is None:
                found = self._nodes[name] = PredictorNode(
                    TurnLog(self._telling, self._branch(name))
                )
            return found

    def _branch(self, name: str) -> Branch:
        named = f"{self._stem}{name}"
        there = self._session.get_branch(named, None)
        if there is not None:
            return there
        try:
            return self._session.create_branch(name=named)
        except ExistsError:  # another process was faster
            return self._session.get_branch(named)

    def all(self) -> dict[str, PredictorNode]:
        """Those that have said something, or remember something, by name."""
        for branch in self._session.branches:
            if branch.name.startswith(self._stem) and _speaks(branch):
                self.of(branch.name.removeprefix(self._stem))
        return dict(self._nodes)

    def take_back(self, calls: AbstractSet[str], memories: Iterable[Mapping[str, str]]) -> None:
        """Forget what was said in calls; `memories` are those before them, the last one's first."""
        for node in self.all().values():
            node.log.take_out(calls)
        before = {name: text for known in memories for name, text in known.items()}
        for name, text in before.items():
            self.of(name).memory = text

    def forked(self, beside: Branch) -> PredictorNodes:
        """The same nodes, to go on with beside another branch of the same session."""
        made = PredictorNodes(beside, self._telling)
        for name, node in self.all().items():
            made._nodes[name] = PredictorNode(node.log.fork(f"{made._stem}{name}"))
        return made

    def detached(self, beside: Branch) -> PredictorNodes:
        """The same nodes beside a branch in memory."""
        made = PredictorNodes(beside, self._telling)
        for name, node in self.all().items():
            copy = made.of(name)
            copy.log.become(node.log.detached())
            copy.memory = node.memory
        return made


def _speaks(branch: Branch) -> bool:
    """Return whether a branch is a node's: others may have names like theirs."""
    ends = [branch.session.messages.get(branch[at]) for at in (0, -1)] if len(branch) else []
    return any(KEY in one.metadata for one in ends)


class NodeMemory:
    """The history and memory of nodes during one call of the program."""

    def __init__(self, nodes: PredictorNodes, plan: MemoryPlan, *, anew: bool = False) -> None:
        """Begin a call; with `anew` it takes the place of all before it, once it has succeeded."""
        self._nodes, self.plan, self._anew = nodes, plan, anew
        self.call = new_id().hex
        """What the turns of this call are known by."""
        self.memories: dict[str, str] = {}
        """What nodes remembered before, where this call has changed it."""
        self._before: dict[str, str] = {}
        """The same, if the call fails."""
        self._episodes: dict[str, list[Turn]] = {}

    def _key(self, name: str) -> str:
        return SHARED if self.plan.scope == "shared" else name

    def node(self, name: str) -> PredictorNode:
        """The node that a predictor speaks on."""
        return self._nodes.of(self._key(name))

    def history_for(self, name: str, fields: Fields, began: Sequence[Told]) -> list[Told]:
        """Return the history of one predictor: the initial history, and its own turns."""
        if self.plan.lifetime == "stateless":
            return []
        log = self.node(name).log
        return log.fitted(log.caught_up(began), name, fields)

    def remembered(self, name: str) -> str:
        """Return the consolidated memory of a predictor."""
        return "" if self._anew else self.node(name).memory

    def heard(self, name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Keep what a predictor was asked and said."""
        if self.plan.lifetime != "stateless":
            turn = self.node(name).log.add(inputs, outputs, call=self.call, node=name)
            self._episodes.setdefault(self._key(name), []).append(turn)

    def consolidate(self) -> None:
        """Fold what was said into what the nodes remember; one that fails remembers as before."""
        if self.plan.consolidator is None:
            return
        for name, episode in self._episodes.items():
            work = partial(self._consolidate, self.plan.consolidator, name, episode)
            retry_on_conflict(work, f"the memory of {name!r}", tries=TRIES)

    def _consolidate(self, consolidator: Consolidator, name: str, episode: list[Turn]) -> None:
        node = self._nodes.of(name)
        before = node.memory
        known = "" if self._anew else before
        try:
            told = consolidator(known, episode, name)
        except Exception:
            _log.warning("the consolidator of %r failed", name, exc_info=True)
            return
        if told != before:
            node.remember(told)
            self.memories[name], self._before[name] = known, before

    def end_episode(self) -> None:
        """The call of the program is over and kept: forget what does not last."""
        if self._anew:
            self._forget_others()
        if self.plan.lifetime == "episodic":
            for name in self._episodes:
                self._nodes.of(name).log.take_out({self.call})

    def _forget_others(self) -> None:
        for name, node in self._nodes.all().items():
            node.log.catch_up()
            node.log.take_out({turn.call for turn in node.log.turns} - {self.call})
            if node.memory and name not in self.memories:
                node.memory = ""

    def take_back(self) -> None:
        """The call of the program has failed: have what was there before."""
        self._nodes.take_back({self.call}, [self._before])

"""Turns on a branch: a program's conversation is a conversation like any other.

Each turn is an instruction and an answer, readable as they are, with the exact inputs and outputs
beside them as plain data. The branch is in memory or in a store; a fork of the turns is a fork of
the branch. What the branch says and what is told here are changed together, the branch first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from sennit.learning.dspy.framework import History
from sennit.learning.dspy.past import Fields, Span, Told, history_from
from sennit.learning.dspy.plain import plain_fields, spoken
from sennit.learning.dspy.turn import Turn
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.session import SessionCore

CopyMode: TypeAlias = Literal["deep", "shallow", "none"]

_KEY = "dspy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How a turn becomes part of the history."""

    history_field: str = "history"
    exclude: frozenset[str] = frozenset()
    only_inputs: frozenset[str] | None = None
    max_turns: int | None = None
    """How many of the last messages a call is told; None for all."""
    max_stored: int | None = None
    """How many turns are held; None for all."""
    copies: CopyMode = "deep"

    def told(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Told:
        """What later turns hear of this one."""
        only, left_out = self.only_inputs, self.exclude | {self.history_field}
        heard = {name: inputs[name] for name in inputs if only is None or name in only}
        return {name: one for name, one in {**heard, **outputs}.items() if name not in left_out}

    def kept(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A turn's own values, out of reach of whoever changes the caller's."""
        if self.copies == "none":
            return dict(values)
        copied = deepcopy if self.copies == "deep" else copy
        return {name: _copied(value, copied) for name, value in values.items()}


def _copied(value: Any, copied: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    try:
        return copied(value)
    except Exception:  # what cannot be copied, such as an open file, is shared
        return value


class TurnLog:
    """The turns of a session, in order."""

    def __init__(self, branch: Branch, telling: Telling) -> None:
        self.branch, self.telling = branch, telling
        self.turns: list[Turn] = []
        self._told: list[Told] = []
        self._first = 0  # where the history of a new turn may begin at the earliest
        self._count = 0
        self._initial = 0
        self._apart = False  # whether the branch is another's, to be copied before it is changed
        self._fitted: dict[tuple[str, Fields], list[Told | None]] = {}
        self._read()

    @property
    def session(self) -> SessionCore:
        """The session of the branch."""
        return self.branch.session

    @property
    def initial(self) -> list[Told]:
        """The history it began with."""
        return self._told[: self._initial]

    @property
    def earlier(self) -> list[Told]:
        """What was told before the first turn that is held, and some of them still refer to."""
        return self._told[self._initial : len(self._told) - len(self.turns)]

    def span(self) -> Span:
        """What a call now is told."""
        stop, window = len(self._told), self.telling.max_turns
        start = self._first if window is None else max(self._first, stop - window)
        return Span(self._told, start, stop)

    def fitted(self, span: Span, node: str, fields: Fields) -> list[Told]:
        """A stretch as a predictor with these fields would have had it."""
        if span.told is not self._told:
            return [one for one in (fields.fit(told, {}) for told in span.messages()) if one]
        found = self._fitted.setdefault((node, fields), [])
        for at in range(len(found), span.stop):
            turn = at - (len(self._told) - len(self.turns))
            said = self.turns[turn].nodes.get(node, {}) if turn >= 0 else {}
            found.append(fields.fit(self._told[at], said))
        return [told for told in found[span.start : span.stop] if told is not None]

    def begin_with(self, messages: Iterable[Told]) -> None:
        """Have this history and no turns, in one step."""
        told = [dict(one) for one in messages]
        seed = [_seed(told)] if told else []
        branch = self.own_branch()
        for message in seed:
            branch.session.add_message(message)
        system = [] if branch.system is None else [branch.system.id]
        branch[:] = [*system, *(message.id for message in seed)]
        self._begin(told)

    def _begin(self, told: list[Told]) -> None:
        self.turns, self._told, self._initial = [], told, len(told)
        self._first = self._count = 0
        self._fitted = {}

    def add(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        past: Span | None = None,
        given: list[Told] | None = None,
        nodes: dict[str, dict[str, Any]] | None = None,
    ) -> Turn:
        """Keep a turn: the branch first, then here."""
        kept, said = self.telling.kept(inputs), self.telling.kept(outputs)
        span = self.span() if past is None else past
        more = _beyond(nodes or {}, said)
        noted = {"window": span.stop - span.start} if given is None else {"history": given}
        pair = _messages(kept, said, {**noted, **({"nodes": more} if more else {})})
        branch = self.own_branch()
        branch.session.add_messages(pair, branches=branch)
        snapshot = span if given is None else History(messages=given)
        return self._take(Turn(self._count, kept, said, snapshot, nodes=more, message=pair[1].id))

    def _take(self, turn: Turn) -> Turn:
        self.turns.append(turn)
        self._told.append(self.telling.told(turn.inputs, turn.outputs))
        self._count += 1
        self._let_go()
        return turn

    def _let_go(self) -> None:
        """Hold no more turns than asked for; what only they knew is let go now and then."""
        limit = self.telling.max_stored
        if limit is None or len(self.turns) <= limit:
            return
        del self.turns[: len(self.turns) - limit]
        self._first = len(self._told) - len(self.turns)
        self._initial = min(self._initial, 0 if self._first else self._initial)
        if self._first > max(64, 2 * limit):
            self._told, self._first, self._fitted = self._told[self._first :], 0, {}

    def take_back(self, steps: int) -> list[Turn]:
        """Undo the last turns, the last one first."""
        steps = min(steps, len(self.turns))
        if steps <= 0:
            return []
        taken = self.turns[-steps:][::-1]
        branch = self.own_branch()
        del branch[len(branch) - 2 * steps :]
        del self.turns[-steps:]
        self._told = self._told[:-steps]
        self._count -= steps
        self._fitted = {}
        return taken

    def fork(self) -> TurnLog:
        """The same turns on a fork of the branch."""
        branch = self.own_branch()
        return self.on(branch.fork(resources=True, capabilities=True, system=True))

    def detached(self) -> TurnLog:
        """The same turns in memory, whatever happens to the branch; laid out when first changed."""
        made = self.on(self.branch)
        made._apart = True
        return made

    def own_branch(self) -> Branch:
        """The branch to write to."""
        if self._apart:
            alone = SessionCore()
            said = self.branch.messages
            self.branch = alone.create_branch(name=self.branch.name)
            alone.add_messages(said, branches=self.branch)
            self._apart = False
        return self.branch

    def on(self, branch: Branch) -> TurnLog:
        """The same turns on a branch that says the same."""
        made = object.__new__(TurnLog)
        made.branch, made.telling = branch, self.telling
        made.turns, made._told = list(self.turns), self._told[:]
        made._first, made._count, made._initial = self._first, self._count, self._initial
        made._fitted, made._apart = {}, False
        return made

    def recall(self, earlier: Iterable[Told]) -> None:
        """Know what turns that are no longer held have told."""
        self._told += [dict(one) for one in earlier]
        self._first = len(self._told) if len(self._told) > self._initial else 0

    def put_back(self, saved: Mapping[str, Any]) -> None:
        """Add a turn that was saved, with the past it had."""
        stop = len(self._told)
        given = saved.get("history", saved.get("history_snapshot"))
        window = saved.get("window")
        past = self.span() if window is None else Span(self._told, max(0, stop - window), stop)
        told = None if given is None else history_from(given)
        turn = self.add(saved["inputs"], saved["outputs"], past, told, saved.get("nodes"))
        turn.score = saved.get("score")

    def _read(self) -> None:
        """Take in what the branch holds."""
        waiting: tuple[Message, dict[str, Any]] | None = None
        for message in self.branch.messages:
            noted = message.metadata.get(_KEY)
            if not isinstance(noted, Mapping):
                continue
            said = cast("dict[str, Any]", noted)
            if "initial" in said:
                self._begin([dict(one) for one in said["initial"]])
            elif "inputs" in said:
                waiting = message, said
            elif "outputs" in said and waiting is not None:
                self._restore(waiting[1]["inputs"], said, message)
                waiting = None

    def _restore(self, inputs: dict[str, Any], said: dict[str, Any], answer: Message) -> None:
        stop = len(self._told)
        given = said.get("history")
        past: Any = Span(self._told, stop - said.get("window", 0), stop)
        snapshot = past if given is None else History(messages=given)
        nodes = said.get("nodes")
        self._take(
            Turn(self._count, inputs, said["outputs"], snapshot, nodes=nodes, message=answer.id)
        )


def _beyond(nodes: dict[str, dict[str, Any]], outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What nested predictors said that the outputs do not tell."""
    found = {
        node: {name: value for name, value in said.items() if name not in outputs}
        for node, said in nodes.items()
    }
    return {node: plain_fields(said) for node, said in found.items() if said}


def _messages(
    inputs: dict[str, Any], outputs: dict[str, Any], noted: dict[str, Any]
) -> list[Message]:
    asked, answered = plain_fields(inputs), plain_fields(outputs)
    return [
        Message(InstructionContent(instruction=spoken(asked)), metadata={_KEY: {"inputs": asked}}),
        Message(
            AssistantResponseContent(assistant_response=spoken(answered)),
            metadata={_KEY: {"outputs": answered, **noted}},
        ),
    ]


def _seed(told: list[Told]) -> Message:
    plain = [plain_fields(one) for one in told]
    content = InstructionContent(context=plain)
    return Message(content, metadata={_KEY: {"initial": plain}})

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
from sennit.learning.labels import average, labels_of
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
        self.telling = telling
        self._branch: Branch | None = branch
        self._owed: list[Turn] = []  # turns that are not on the branch yet
        self.turns: list[Turn] = []
        self._told: list[Told] = []
        self._first = 0  # where the history of a new turn may begin at the earliest
        self._count = 0
        self._initial = 0
        self._fitted: dict[tuple[str, Fields], list[Told | None]] = {}
        self._read()

    @property
    def branch(self) -> Branch:
        """The branch with all the turns; one in memory may be laid out only now."""
        if self._branch is None:
            self._branch = SessionCore().create_branch(name="main")
            self._seed(self._branch, self.initial)
        if self._owed:
            owed, self._owed = list(self._owed), []
            self._write(self._branch, owed)
        return self._branch

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
        self._seed(self.branch, told)
        self._begin(told)

    def _seed(self, branch: Branch, told: list[Told]) -> None:
        seed = [_seed(told)] if told else []
        for message in seed:
            branch.session.add_message(message)
        first = 0 if branch.system is None else 1
        branch[first:] = [message.id for message in seed]

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
        turn = Turn(
            self._count,
            self.telling.kept(inputs),
            kept := self.telling.kept(outputs),
            (self.span() if past is None else past) if given is None else History(messages=given),
            nodes=_beyond(nodes or {}, kept),
        )
        self._write(self.branch, [turn])
        return self._take(turn)

    def _write(self, branch: Branch, turns: Iterable[Turn]) -> None:
        said = [message for turn in turns for message in _messages(turn)]
        branch.session.add_messages(said, branches=branch)

    def _take(self, turn: Turn) -> Turn:
        self.turns.append(turn)
        self._told.append(self.telling.told(turn.inputs, turn.outputs))
        self._count = turn.index + 1
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

    def judge(self, scores: Iterable[float]) -> None:
        """Give each turn its score; forks share turns, and keep theirs."""
        self.turns = [turn.again(score) for turn, score in zip(self.turns, scores, strict=True)]

    def take_back(self, steps: int) -> list[Turn]:
        """Undo the last turns, the last one first."""
        steps = min(steps, len(self.turns))
        if steps <= 0:
            return []
        taken = self.turns[-steps:][::-1]
        branch = self.branch
        del branch[len(branch) - 2 * steps :]
        del self.turns[-steps:]
        self._told = self._told[:-steps]
        self._count -= steps
        self._fitted = {}
        return taken

    def fork(self) -> TurnLog:
        """The same turns on a fork of the branch."""
        return self._on(self.branch.fork(resources=True, capabilities=True, system=True))

    def detached(self) -> TurnLog:
        """The same turns in memory, on a branch that is laid out when it is needed."""
        made = self._on(None)
        made._owed = made.turns = [turn.again() for turn in self.turns]
        return made

    def _on(self, branch: Branch | None) -> TurnLog:
        made = object.__new__(TurnLog)
        made._branch, made.telling = branch, self.telling
        made.turns, made._told = self.turns[:], self._told[:]
        made._first, made._count, made._initial = self._first, self._count, self._initial
        made._fitted, made._owed = {}, []
        return made

    def recall(self, earlier: Iterable[Told]) -> None:
        """Know what turns that are no longer held have told."""
        self._told += [dict(one) for one in earlier]
        self._first = len(self._told) if len(self._told) > self._initial else 0

    def put_back(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Add turns that were saved, each with the past it had."""
        branch = self.branch
        turns = [self._take(self._saved(one)) for one in saved]
        if branch.session.durable:
            self._write(branch, turns)
        else:
            self._owed = turns

    def _saved(self, saved: Mapping[str, Any]) -> Turn:
        stop = len(self._told)
        given = saved.get("history", saved.get("history_snapshot"))
        window = saved.get("window")
        past = self.span() if window is None else Span(self._told, max(0, stop - window), stop)
        return Turn(
            saved.get("index", self._count),
            saved["inputs"],
            saved["outputs"],
            past if given is None else History(messages=history_from(given)),
            saved.get("score"),
            nodes=saved.get("nodes"),
        )

    def _read(self) -> None:
        """Take in what the branch holds."""
        waiting: tuple[Message, dict[str, Any]] | None = None
        judged = labels_of(self.session)
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
                turn = self._restore(waiting[1]["inputs"], said, message)
                turn.score = average(judged.get(message.id, ()))
                waiting = None

    def _restore(self, inputs: dict[str, Any], said: dict[str, Any], answer: Message) -> Turn:
        stop = len(self._told)
        given = said.get("history")
        past: Any = Span(self._told, stop - said.get("window", 0), stop)
        snapshot = past if given is None else History(messages=given)
        nodes = said.get("nodes")
        return self._take(
            Turn(self._count, inputs, said["outputs"], snapshot, nodes=nodes, message=answer.id)
        )


def _beyond(nodes: dict[str, dict[str, Any]], outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What nested predictors said that the outputs do not tell."""
    found = {
        node: {name: value for name, value in said.items() if name not in outputs}
        for node, said in nodes.items()
    }
    return {node: plain_fields(said) for node, said in found.items() if said}


def _messages(turn: Turn) -> list[Message]:
    """A turn as it stands on the branch; it remembers its answer there."""
    asked, answered = plain_fields(turn.inputs), plain_fields(turn.outputs)
    past = turn.past
    known = isinstance(past, Span)
    noted: dict[str, Any] = {"window": past.stop - past.start} if known else {}
    if not known:
        noted["history"] = past.messages
    if turn.nodes:
        noted["nodes"] = turn.nodes
    answer = Message(
        AssistantResponseContent(assistant_response=spoken(answered)),
        metadata={_KEY: {"outputs": answered, **noted}},
    )
    turn.message = answer.id
    asking = InstructionContent(instruction=spoken(asked))
    return [Message(asking, metadata={_KEY: {"inputs": asked}}), answer]


def _seed(told: list[Told]) -> Message:
    plain = [plain_fields(one) for one in told]
    content = InstructionContent(context=plain)
    return Message(content, metadata={_KEY: {"initial": plain}})

"""The turns of a session on a branch.

The branch is in memory or in a store; a fork of the turns is a fork of the branch. What the branch
says and what is held here are changed together, the branch first and in one write, so a failure
leaves both as they were. Others may write on the same branch, from other processes too: what they
said is taken in before a call, and before turns are taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from threading import RLock
from typing import Any, Self

from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import Fields, HistorySpan, Told
from sennit.learning.dspy.history_options import HistoryOptions
from sennit.learning.dspy.plain_values import plain_fields
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_messages import (
    ConversationStart,
    StoredTurn,
    beginning,
    inside_of,
    past_in,
    reaches,
    read,
    turn_messages,
)
from sennit.learning.labels import labels_of
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.sessions.session import SessionCore

TRIES = 100  # of a change: each time it fails, someone else was faster
_SPARE = 64  # so much more than is asked for may be held before it is let go


class TurnLog:
    """The turns of a session, in order."""

    def __init__(self, telling: HistoryOptions, branch: Branch | None = None) -> None:
        self.telling: HistoryOptions = telling
        self._guard = RLock()
        self._branch = branch  # none yet: it is laid out when somebody asks for it
        self._seen = 0  # how much of the branch is held here,
        self._revision = 0  # and of which writing of it
        self._begin([])
        self.catch_up()

    def _begin(self, initial: list[Told], earlier: Iterable[Told] = ()) -> None:
        self.initial, self.turns = initial, list[Turn]()
        self._told = list(earlier)
        self._first = len(self._told)  # where the history of a new turn may begin at the earliest
        self._gone = self._count = 0
        self._fitted: dict[tuple[str, Fields], list[Told | None]] = {}

    @classmethod
    def of(
        cls,
        telling: HistoryOptions,
        initial: Iterable[Told],
        earlier: Iterable[Told] = (),
        saved: Iterable[Mapping[str, Any]] = (),
    ) -> Self:
        """A log in memory with turns that were saved, each with the past it had."""
        made = cls(telling)
        made._begin([dict(one) for one in initial], earlier)
        for one in saved:
            past = past_in(one, made._told, made.initial)
            made._take(
                Turn(
                    one.get("index", made._count),
                    one["inputs"],
                    one["outputs"],
                    made.span() if past is None else past,
                    one.get("score"),
                    **inside_of(one),
                )
            )
        made._let_go()
        return made

    @property
    def branch(self) -> Branch:
        """The branch with all the turns; one in memory may be laid out only now."""
        if self._branch is not None:
            return self._branch  # without waiting for whoever has the turns in hand
        with self._guard:
            if self._branch is None:
                branch = SessionCore().create_branch(name="main")
                self._lay_out(branch)
                self._branch = branch
                self._mark(branch)
            return self._branch

    @property
    def laid_out(self) -> bool:
        """True if there is a branch already."""
        return self._branch is not None

    @property
    def durable(self) -> bool:
        """True if the branch is in a store, which there is to wait for."""
        return self._branch is not None and self._branch.session.keeper is not None

    @property
    def session(self) -> SessionCore:
        """The session of the branch."""
        return self.branch.session

    @property
    def earlier(self) -> list[Told]:
        """The history entries before the first turn that is held."""
        return self._told[: len(self._told) - len(self.turns)]

    @property
    def gone(self) -> int:
        """The number of earlier history entries that were dropped."""
        return self._gone

    def tell_as(self, telling: HistoryOptions) -> None:
        """Tell the turns in another way from now on; what earlier calls heard stays as it was."""
        if telling == self.telling:
            return  # without waiting for whoever has the turns in hand
        with self._guard:
            self.telling = telling
            told = (telling.told(turn.inputs, turn.outputs) for turn in self.turns)
            self._told, self._fitted = [*self.earlier, *told], {}

    def span(self, before: Sequence[Told] = ()) -> HistorySpan:
        """Return the history span for a call made now, after the entries `before` it."""
        stop, window = len(self._told), self.telling.max_turns
        known = [*before, *self.initial] if before else self.initial
        start = self._first if window is None else max(self._first, stop - window)
        if window is not None and window - (stop - start) < len(known):
            known = known[len(known) - (window - (stop - start)) :]
        return HistorySpan(self._told, start, stop, known, self._gone)

    def fitted(self, span: HistorySpan, node: str, fields: Fields) -> list[Told]:
        """A stretch as a predictor with these fields would have had it."""
        with self._guard:
            known = [one for told in span.known if (one := fields.fit(told, {})) is not None]
            if span.told is not self._told:
                past = span.told[span.start : span.stop]
                return known + [one for told in past if (one := fields.fit(told, {})) is not None]
            found = self._fitted.setdefault((node, fields), [])
            for at in range(len(found), span.stop):
                position = at - (len(self._told) - len(self.turns))
                turn = self.turns[position] if position >= 0 else None
                inside = {} if turn is None else turn.nodes.get(node, {})
                said = self.telling.inside(inside, fields.inputs)
                asked = frozenset[str]() if turn is None else turn.inputs.keys()
                found.append(fields.fit(self._told_to(fields, at, turn), said, asked))
            return known + [told for told in found[span.start : span.stop] if told is not None]

    def _told_to(self, fields: Fields, at: int, turn: Turn | None) -> Told:
        """Return the history entry of a turn; an output named like an input keeps both."""
        told = self._told[at]
        if turn is None:
            return told
        both = fields.inputs & turn.inputs.keys() & turn.outputs.keys()
        if not both:
            return told
        asked = self.telling.told({name: turn.inputs[name] for name in both}, {})
        return {**{name: one for name, one in told.items() if name not in both}, **asked}

    def catch_up(self) -> None:
        """Take in what others have said on the branch, or taken back."""
        with self._guard:
            if self._branch is not None:
                if self._branch.session.keeper is not None:
                    self._branch.session.refresh()
                if not self._holds_all(self._branch):
                    self._read_on(self._branch)

    def caught_up(self, before: Sequence[Told] = ()) -> HistorySpan:
        """Return the history span for a call made now, after reading turns of other processes."""
        with self._guard:
            self.catch_up()
            return self.span(before)

    def _holds_all(self, branch: Branch) -> bool:
        return branch.tail.total == self._seen and branch.revision == self._revision

    def _read_on(self, branch: Branch, own: Turn | None = None) -> None:
        """Hold what the branch holds; a turn of our `own` is on it, perhaps behind others'."""
        with branch.session.lock:
            if branch.revision != self._revision:
                self._begin([])  # someone took turns back, or began anew
                self._seen = 0
            new = self._unread(branch)
            if self._gone and any(reaches(one) < self._gone for one in new):
                self._begin([])  # whoever said it still heard what was let go here
                self._seen = 0
                new = self._unread(branch)
            self._mark(branch)
        judged = labels_of(branch.session)
        for one in read(new):
            if isinstance(one, ConversationStart):
                self._begin(one.initial, one.earlier)
            elif own is not None and one.message == own.message:
                own.index = self._count
                self._take(own)
            else:
                # The last judgement, as for a session that was scored by several metrics.
                scores = [label.score for label in judged.get(one.message, ())]
                self._take(self._found(one, scores[-1] if scores else None))
        self._let_go()

    def _unread(self, branch: Branch) -> list[Message]:
        first = self._seen + (branch.system is not None)
        return branch.items_of(branch.session.messages, first)

    def _found(self, said: StoredTurn, score: float | None) -> Turn:
        past = past_in(said.note, self._told, self.initial, self._gone)
        turn = Turn(
            self._count,
            said.inputs,
            said.outputs,
            self.span() if past is None else past,
            score,
            **inside_of(said.note),
        )
        turn.asked, turn.message = said.asked, said.message
        return turn

    def _mark(self, branch: Branch) -> None:
        """All of the branch is held here."""
        self._seen, self._revision = branch.tail.total, branch.revision

    def set_system(self, message: Message | None) -> None:
        """Give the branch a system message, or none; the turns stay as they are."""
        with self._guard:
            branch = self.branch
            held = self._holds_all(branch)
            branch.session.set_branch_system(branch, message)
            if held and branch.tail.total == self._seen:
                self._mark(branch)

    def become(self, other: TurnLog) -> None:
        """Hold what another log holds, and nothing else, in one step.

        Raises ConflictError if the branch holds what was not taken in.
        """
        with self._guard:
            if self._branch is not None:
                other._lay_out(self._branch)
                self._mark(self._branch)
            self._hold(other)

    def _lay_out(self, branch: Branch) -> None:
        """Put all that is held on a branch, in place of what is there."""
        said = beginning(self.initial, self.earlier)
        for turn in self.turns:
            said += turn_messages(turn)
        with branch.session.lock:
            branch.session.add_messages(said)  # on no branch yet, so nobody reads them
            first = 0 if branch.system is None else 1
            if said or len(branch) > first:
                branch[first:] = [message.id for message in said]

    def begin_with(self, initial: Iterable[Told]) -> None:
        """Have this history and no turns."""
        self.become(TurnLog.of(self.telling, initial))

    def add(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        past: HistorySpan | None = None,
        given: list[Told] | None = None,
        **inside: Any,
    ) -> Turn:
        """Keep a turn, with what is to be noted `inside` it: the branch first, then here."""
        kept = self.telling.kept(outputs)
        inside["nodes"] = _beyond(inside.get("nodes") or {}, kept)
        with self._guard:
            heard = History(messages=given) if given is not None else self._still(past)
            turn = Turn(self._count, self.telling.kept(inputs), kept, heard, **inside)
            branch = self.branch
            said: list[Message] = turn_messages(turn)
            branch.session.add_messages(said, branches=branch)
            if (branch.tail.total, branch.revision) == (self._seen + len(said), self._revision):
                self._take(turn)
                self._mark(branch)
                self._let_go()
            else:
                self._read_on(branch, turn)
        return turn

    def _still(self, past: HistorySpan | None) -> Any:
        """Return the history of a call as it is to be stored: turns may have been removed
        meanwhile.
        """
        if past is None:
            return self.span()
        return past if past.told is self._told else History(messages=past.messages())

    def _take(self, turn: Turn) -> None:
        self.turns.append(turn)
        self._told.append(self.telling.told(turn.inputs, turn.outputs))
        self._count = turn.index + 1

    def _let_go(self) -> None:
        """Hold no more turns than asked for; what only they knew is let go now and then."""
        limit = self.telling.max_stored
        if limit is None or len(self.turns) <= limit:
            return
        del self.turns[: len(self.turns) - limit]
        self._first = len(self._told) - len(self.turns)
        if self._first > max(_SPARE, 2 * limit):
            self._told, self._gone = self._told[self._first :], self._gone + self._first
            self._first, self._fitted = 0, {}

    def judge(self, scores: Mapping[int, float]) -> None:
        """Give turns their scores, by `id(turn)`; forks share turns, and keep theirs."""
        with self._guard:
            self.turns = [
                turn.again(scores[id(turn)]) if id(turn) in scores else turn for turn in self.turns
            ]

    def take_back(self, steps: int) -> list[Turn]:
        """Undo the last turns, the last one first; what others said between them stays."""
        with self._guard:
            self.catch_up()
            taken = self.turns[max(0, len(self.turns) - max(0, steps)) :][::-1]
            self._give_up(taken)
            return taken

    def _give_up(self, taken: list[Turn]) -> None:
        """Hold these no more, the last turns there are, the last one first."""
        if not taken:
            return
        branch = self.branch
        branch.exclude(uid for turn in taken for uid in (turn.asked, turn.message) if uid)
        self._mark(branch)
        del self.turns[-len(taken) :]
        self._told, self._fitted = self._told[: -len(taken)], {}
        self._count = taken[-1].index

    def take_out(self, calls: AbstractSet[str | None]) -> None:
        """Take back the turns of these calls, wherever they stand; what others knew stays."""
        with self._guard:
            retry_on_conflict(lambda: self._take_out(calls), "the turns", tries=TRIES)

    def _take_out(self, calls: AbstractSet[str | None]) -> None:
        self.catch_up()
        first = next((at for at, turn in enumerate(self.turns) if turn.call in calls), None)
        if first is None:
            return
        if all(turn.call in calls for turn in self.turns[first:]):
            self._give_up(self.turns[first:][::-1])
        else:
            self.become(self._without(calls, first))

    def _without(self, calls: AbstractSet[str | None], first: int) -> TurnLog:
        """The same but for the turns of these calls, of which `first` is the first."""
        made = self._on(None)
        made.turns = [_at_home(turn, made._told, self._gone) for turn in self.turns[:first]]
        made._told = made._told[: len(self._told) - len(self.turns) + first]
        made._gone, made._count = 0, self.turns[first].index
        for turn in self.turns[first:]:
            if turn.call not in calls:
                kept = turn.again(past=History(messages=turn.history_snapshot.messages))
                kept.index = made._count
                made._take(kept)
        return made

    def fork(self, name: str | None = None) -> TurnLog:
        """The same turns on a fork of the branch."""
        with self._guard:
            return retry_on_conflict(lambda: self._fork(name), "the turns", tries=TRIES)

    def _fork(self, name: str | None) -> TurnLog:
        self.catch_up()
        forked = self.branch.fork(name=name, resources=True, capabilities=True, system=True)
        made = self._on(forked)
        made._seen, made._revision = self._seen, forked.revision
        return made

    def detached(self) -> TurnLog:
        """The same turns in memory, on a branch that is laid out when it is needed."""
        with self._guard:
            made = self._on(None)
            made.turns = [_at_home(turn, made._told, self._gone) for turn in self.turns]
            made._gone = 0
            return made

    def _on(self, branch: Branch | None) -> TurnLog:
        made = TurnLog(self.telling)
        made._hold(self)
        made._branch = branch
        return made

    def _hold(self, other: TurnLog) -> None:
        self.initial, self.turns, self._told = other.initial, other.turns[:], other._told[:]
        self._first, self._gone, self._count = other._first, other._gone, other._count
        self._fitted = {}


def _at_home(turn: Turn, told: list[Told], gone: int) -> Turn:
    """A turn for a branch of its own, whose positions begin with what is told here."""
    past = turn.past
    if isinstance(past, HistorySpan):
        if past.gone == gone:
            past = HistorySpan(told, past.start, past.stop, past.known)
        else:
            past = History(messages=past.messages())
    return turn.again(past=past)


def _beyond(nodes: dict[str, dict[str, Any]], outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return outputs of nested predictors that the program's own outputs do not contain."""
    found = {
        node: {name: value for name, value in said.items() if name not in outputs}
        for node, said in nodes.items()
    }
    return {node: plain_fields(said) for node, said in found.items() if said}

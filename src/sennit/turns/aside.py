"""Carrying out a special turn: the same loop, on a branch that nobody else sees.

The model reads and answers in a session of its own, in memory. Only when that has ended well is
anything put on the branch, in one write, at its head as it is then: whoever watches sees what is
kept and nothing else, and a crash leaves everything or nothing.
"""

from __future__ import annotations

from asyncio import sleep, timeout
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from sennit import clock
from sennit.errors import AccessError, ConflictError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.content import (
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.rewriting import Rewrite
from sennit.sessions.runs import BranchRuns
from sennit.sessions.session import SessionCore
from sennit.stores.records import RunRecord
from sennit.turns.context import REPLACED, SPECIAL, Fixed, unfinished_from
from sennit.turns.events import AnyEvent, HistoryReplaced, Interjected
from sennit.turns.hold import held, new_holder
from sennit.turns.journal import Journal, Publish
from sennit.turns.options import StreamingOptions
from sennit.turns.request import Request
from sennit.turns.returns import Body, Notice, Return, StopReason
from sennit.turns.run import Run
from sennit.turns.special import PersistenceStrategy, SpecialTurn

Conduct = Callable[[Run], Awaitable[Return]]
"""The loop; it is handed in, because the loop itself runs special turns."""

_PATIENCE = 60.0  # seconds that what was said waits for a run of someone else on the branch
_LOOK = 0.02  # seconds between two looks


class Tell(Protocol):
    """Notes an event, with the message it appends to the branch, or how it rewrites that."""

    def __call__(
        self,
        kind: Callable[..., AnyEvent],
        *,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        **more: Any,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a special turn ended, and what there is to put on the branch."""

    result: Return
    put: tuple[Message, ...] = ()
    """What is appended."""
    rewrite: Rewrite | None = None
    """What replaces what is above, instead."""
    replaced: int = 0

    @property
    def leaves_something(self) -> bool:
        """Whether anything is to be put on the branch."""
        return bool(self.put) or self.rewrite is not None

    def check(self, branch: Branch) -> None:
        """Raise ConflictError if what it replaces is no longer on the branch."""
        plan = self.rewrite
        if plan is not None and plan.through is not None and plan.through not in branch:
            raise ConflictError(
                f"What was to be replaced is no longer on branch {branch.name!r}; nothing changed."
            )

    def put_on_branch(self, tell: Tell) -> None:
        """Tell what is put on the branch."""
        plan = self.rewrite
        if plan is not None:
            (message,) = plan.put
            tell(
                HistoryReplaced,
                message=message,
                branch_id=plan.aside,
                count=self.replaced,
                rewrite=plan,
            )
        for message in self.put:
            tell(Interjected, message=message, put=message)


async def perform(
    turn: SpecialTurn,
    request: Request,
    conduct: Conduct,
    *,
    streaming: bool = False,
    upto: int | None = None,
) -> Outcome:
    """Have a special turn said; nothing is put on the branch yet.

    `upto` is how many messages of the history it reads, by default all; one that replaces what is
    above leaves out a turn that is not over.
    """
    try:
        asked = _overridden(turn, request)
    except (AccessError, NotFoundError) as error:
        return _refused("access" if isinstance(error, AccessError) else "not_found", str(error))
    seen = _Seen.of(turn, request, upto)
    if turn.strategy is PersistenceStrategy.REPLACE_ABOVE and not seen.replaceable:
        return _refused("nothing_above", "There is nothing above that could be replaced.")
    if all(message.content.empty for message in seen.prompt):
        return _refused("empty", f"Special turn {turn.name!r} has nothing to ask; instruct it.")
    run = Run(
        replace(asked, branch=_scratch(request, seen.prompt)),
        replace(turn.options, summarize_at=None),
        StreamingOptions() if streaming else None,
        _nobody,
    )
    return _kept(turn, seen, await _said(turn, run, conduct))


@dataclass(slots=True)
class _Seen:
    """What a special turn reads."""

    above: list[Message]
    """What it reads of the history."""
    prompt: list[Message]
    """All it reads, its instruction last."""
    new: list[Message] = field(default_factory=list[Message])
    """Those of its prompt that are not on the branch."""
    replaceable: list[Message] = field(default_factory=list[Message])
    """Those above that the answer would replace."""

    @classmethod
    def of(cls, turn: SpecialTurn, request: Request, upto: int | None) -> _Seen:
        branch = request.branch
        with branch.session.lock:
            messages, system = branch.messages, branch.system
        history = [one for one in messages if one is not system]
        if upto is None:
            replaces = turn.strategy is PersistenceStrategy.REPLACE_ABOVE
            upto = unfinished_from(history) if replaces else len(history)
        above = history[:upto]
        waiting = set(request.pending())  # calls that are not this turn's to make
        own = [] if system is None else [system]
        if turn.interactions is None:
            given = [one for one in (*own, *above) if turn.sees.passes(one) and one not in waiting]
        else:
            given = [_message(one, turn) for one in turn.interactions]
        if turn.instruction is not None:
            given.append(_message(turn.instruction, turn))
        known = set(messages)
        new = [one for one in given if one not in known]
        kept = turn.chosen
        replaceable = [
            one for one in above if not kept.passes(one) and REPLACED not in one.metadata
        ]
        return cls(above, given, new, replaceable)


def _message(said: Any, turn: SpecialTurn) -> Message:
    if isinstance(said, Message):
        return said
    content = InstructionContent(instruction=said) if isinstance(said, str) else said
    sender = None if isinstance(content, SystemContent) else turn.name
    return Message(content, sender=sender, metadata={SPECIAL: turn.name})


def _overridden(turn: SpecialTurn, request: Request) -> Request:
    """Who is asked, and with what; raises AccessError, NotFoundError."""
    contexts = None
    if turn.context is not None:
        contexts = (Fixed(tuple(turn.context)),) if turn.context else ()
    return request.overridden(
        model=turn.model_name, tools=turn.tools, contexts=contexts, params=turn.params
    )


def _scratch(request: Request, messages: Sequence[Message]) -> Branch:
    """A branch in memory with these messages, which tools take for the real one."""
    real = request.session
    session = SessionCore(real.user, agent=real.agent, id=real.id)
    branch = session.create_branch(request.branch.name, resources="*")
    session.add_messages(messages, branches=branch)
    return branch


async def _said(turn: SpecialTurn, run: Run, conduct: Conduct) -> Return:
    try:
        async with timeout(turn.timeout):
            result = await conduct(run)
    except TimeoutError:
        told = f"Special turn {turn.name!r} took longer than {turn.timeout} seconds."
        return Return(stop_reason="error", messages=(Notice("error", "timeout", told),))
    if result.stop_reason == "suspended":
        told = f"Special turn {turn.name!r} cannot wait for approval; leave such tools out."
        return _worse(result, Notice("error", "approval", told))
    return result


def _kept(turn: SpecialTurn, seen: _Seen, result: Return) -> Outcome:
    said = [_marked(message, turn) for message in result.body.interactions]
    result = replace(result, body=Body(tuple(said)))
    answer = _answer(said)
    strategy = turn.strategy
    if not result.success or strategy is PersistenceStrategy.EPHEMERAL:
        return Outcome(result)
    if strategy is PersistenceStrategy.PERSIST_ALL:
        return Outcome(result, tuple(filter(turn.chosen.passes, (*seen.new, *said))))
    if strategy is PersistenceStrategy.PERSIST_RESULT:
        passes = answer is not None and turn.chosen.passes(answer)
        return Outcome(result, (answer,) if answer is not None and passes else ())
    if answer is None:
        told = f"Special turn {turn.name!r} gave an empty answer; nothing was replaced."
        return Outcome(_worse(result, Notice("error", "empty", told)))
    return _replacing(turn, seen, result, answer)


def _replacing(turn: SpecialTurn, seen: _Seen, result: Return, answer: Message) -> Outcome:
    aside = new_id()
    kept = tuple(one.id for one in seen.above if turn.chosen.passes(one))
    count = len(seen.above) - len(kept)
    message = _noted(answer, {REPLACED: {"branch_id": str(aside), "count": count}})
    plan = Rewrite(seen.above[-1].id, kept, (message,), aside)
    said = tuple(message if one is answer else one for one in result.body.interactions)
    return Outcome(replace(result, body=Body(said)), (), plan, count)


def _answer(said: Sequence[Message]) -> Message | None:
    """The last text, if it says anything."""
    for message in reversed(said):
        content = message.content
        if isinstance(content, AssistantResponseContent):
            return message if (content.assistant_response or "").strip() else None
    return None


def _marked(message: Message, turn: SpecialTurn) -> Message:
    return _noted(message, {SPECIAL: turn.name})


def _noted(message: Message, more: Mapping[str, Any]) -> Message:
    return Message(
        message.content,
        sender=message.sender,
        recipient=message.recipient,
        id=message.id,
        created_at=message.created_at,
        metadata={**message.metadata, **more},
    )


def _refused(code: str, told: str) -> Outcome:
    return Outcome(Return(stop_reason="invalid", messages=(Notice("error", code, told),)))


def _worse(result: Return, why: Notice, reason: StopReason = "error") -> Return:
    return replace(result, stop_reason=reason, messages=(*result.messages, why))


def _nobody(_events: list[AnyEvent]) -> None:
    """Nobody watches."""


async def put(
    outcome: Outcome, request: Request, running: Callable[[], Run | None], publish: Publish
) -> Return:
    """Put on the branch what a special turn leaves, through the run under way if there is one."""
    until = clock.monotonic() + _PATIENCE
    try:
        while True:
            run = running()
            if run is not None:
                outcome.check(request.branch)
                outcome.put_on_branch(run.tell)
                await run.settle()
                return outcome.result
            try:
                await _put_alone(outcome, request, publish)
                return outcome.result
            except ConflictError as error:
                if not error.holder or clock.monotonic() > until:
                    raise
            await sleep(_LOOK)
    except SennitError as error:
        code = "conflict" if isinstance(error, ConflictError) else type(error).__name__
        return _worse(outcome.result, Notice("error", code, str(error)))


async def _put_alone(outcome: Outcome, request: Request, publish: Publish) -> None:
    runs = BranchRuns(request.branch)
    async with held(runs, new_holder()) as found:
        outcome.check(request.branch)
        journal = Journal(runs, found.lease.token, publish)
        if found.left is None:  # a run that waits, or was interrupted, stays the last one
            run_id = outcome.result.run_id or new_id()
            now, body = clock.now_us(), dumps({"after": found.seq})
            journal.put(RunRecord(run_id, request.branch.id, "ended", now, now, body))
        else:
            run_id = found.left.record.id
        outcome.put_on_branch(_Notes(journal, run_id, found.seq).tell)
        await journal.settle()


@dataclass(slots=True)
class _Notes:
    """Numbers events, one after another."""

    journal: Journal
    run_id: UUID
    seq: int

    def tell(
        self,
        kind: Callable[..., AnyEvent],
        *,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        **more: Any,
    ) -> None:
        """Note an event."""
        self.seq += 1
        self.journal.add(kind(seq=self.seq, run_id=self.run_id, **more), put, rewrite)

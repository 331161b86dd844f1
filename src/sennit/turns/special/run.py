"""Execution of a special turn on a hidden branch.

The model reads and answers in a session of its own, in memory. Only when that has ended well is
anything put on the branch, in one write, at its head as it is then: whoever watches sees what is
kept and nothing else, and a crash leaves everything or nothing.
"""

from __future__ import annotations

from asyncio import timeout
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sennit.errors import AccessError, NotFoundError
from sennit.ids import new_id
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.session import SessionCore
from sennit.turns.context import REPLACED, Fixed
from sennit.turns.events import AnyEvent
from sennit.turns.options import StreamingOptions
from sennit.turns.prompt_history import sent_messages, unfinished_from
from sennit.turns.request import Request
from sennit.turns.result import SPECIAL, Body, Notice, Return
from sennit.turns.run import Run
from sennit.turns.special.apply import SpecialOutcome
from sennit.turns.special.definition import InteractionFilter, PersistenceStrategy, SpecialTurn
from sennit.turns.tools.pending_calls import call_id_of, pending_among, unanswered

Conduct = Callable[[Run], Awaitable[Return]]
"""The loop; it is handed in, because the loop itself runs special turns."""


async def perform(
    turn: SpecialTurn,
    request: Request,
    conduct: Conduct,
    *,
    streaming: bool = False,
    upto: int | None = None,
) -> SpecialOutcome:
    """Have a special turn said; nothing is put on the branch yet.

    `upto` is how many messages of the history it reads, by default all that is current; one that
    replaces what is above leaves out a turn that is not over.
    """
    try:
        asked = _overridden(turn, request)
    except (AccessError, NotFoundError) as error:
        return _refused("access" if isinstance(error, AccessError) else "not_found", str(error))
    seen = _Seen.of(turn, request, upto)
    replaces = turn.strategy is PersistenceStrategy.REPLACE_ABOVE
    if replaces and not seen.replaceable(turn.chosen):
        return _refused("nothing_above", "There are no messages above to replace.")
    if all(message.content.empty for message in seen.prompt):
        return _refused(
            "empty", (f"Special turn {turn.name!r} has no prompt; give it an instruction.")
        )
    run = Run(
        replace(asked, branch=_scratch(request, seen.prompt)),
        replace(turn.options, summarize_at=None),
        StreamingOptions() if streaming else None,
        _nobody,
    )
    return _kept(turn, seen, await _said(turn, run, conduct))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The prompt of a special turn."""

    above: list[Message]
    """What it reads of the history."""
    prompt: list[Message]
    """All it reads, its instruction last."""
    new: list[Message]
    """Those of its prompt that are not on the branch."""

    @classmethod
    def of(cls, turn: SpecialTurn, request: Request, upto: int | None) -> _Seen:
        branch = request.branch
        with branch.session.lock:
            messages, system = sent_messages(branch), branch.system
        above = _above(turn, [one for one in messages if one is not system], upto)
        given = _prompt(turn, above if system is None else [system, *above])
        # Calls that wait, or whose results it does not see, are not this turn's to make.
        open_ = set(pending_among(reversed(given)))
        prompt = [one for one in given if one not in open_]
        return cls(above, prompt, [one for one in prompt if one.id not in branch])

    def replaceable(self, kept: InteractionFilter) -> bool:
        """Return whether there is anything above that an answer could stand for, and does not
        yet.
        """
        return any(not kept.passes(one) and REPLACED not in one.metadata for one in self.above)


def _above(turn: SpecialTurn, history: list[Message], upto: int | None) -> list[Message]:
    if upto is None and turn.strategy is PersistenceStrategy.REPLACE_ABOVE:
        upto = unfinished_from(history)
    return history if upto is None else history[:upto]


def _prompt(turn: SpecialTurn, conversation: Sequence[Message]) -> list[Message]:
    if turn.interactions is None:
        given = [one for one in conversation if turn.sees.passes(one)]
    else:
        given = [_message(one, turn) for one in turn.interactions]
    return given if turn.instruction is None else [*given, _message(turn.instruction, turn)]


def _message(said: Any, turn: SpecialTurn) -> Message:
    if isinstance(said, Message):
        return said
    content = InstructionContent(instruction=said) if isinstance(said, str) else said
    sender = None if isinstance(content, SystemContent) else turn.name
    return Message(content, sender=sender, metadata={SPECIAL: turn.name})


def _overridden(turn: SpecialTurn, request: Request) -> Request:
    """Return the request of a special turn; raises AccessError, NotFoundError."""
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
        return result.worse(Notice("error", "approval", told))
    return result


def _kept(turn: SpecialTurn, seen: _Seen, result: Return) -> SpecialOutcome:
    said = [_marked(message, turn) for message in result.body.interactions]
    result = replace(result, body=Body(tuple(said)))
    answer = _answer(said)
    strategy = turn.strategy
    if not result.success or strategy is PersistenceStrategy.EPHEMERAL:
        return SpecialOutcome(result)
    if strategy is PersistenceStrategy.PERSIST_ALL:
        new = [_marked(message, turn) for message in seen.new]
        return SpecialOutcome(result, tuple(_chosen(turn, (*new, *said))))
    if strategy is PersistenceStrategy.PERSIST_RESULT:
        passes = answer is not None and turn.chosen.passes(answer)
        return SpecialOutcome(result, (answer,) if answer is not None and passes else ())
    if answer is None:
        told = f"Special turn {turn.name!r} gave an empty answer; nothing was replaced."
        return SpecialOutcome(result.worse(Notice("error", "empty", told)))
    return _replacing(turn, seen, result, answer)


def _chosen(turn: SpecialTurn, messages: Sequence[Message]) -> list[Message]:
    """The messages that its filter lets pass; of a call, request and result, or neither.

    A request by itself would count as a call that is yet to be made.
    """
    passing = [one for one in messages if turn.chosen.passes(one)]
    calls = [one for one in passing if isinstance(one.content, ActionRequestContent)]
    cut = set(unanswered(reversed(passing)))
    asked = {name for one in calls for name in (call_id_of(one), str(one.id))}
    return [one for one in passing if one not in cut and _asked_for(one, asked)]


def _asked_for(message: Message, calls: set[str]) -> bool:
    """Return whether a message is no result, or that of one of the calls."""
    content = message.content
    return not isinstance(content, ActionResponseContent) or content.request_id in calls


def _replacing(turn: SpecialTurn, seen: _Seen, result: Return, answer: Message) -> SpecialOutcome:
    aside = new_id()
    kept = {one.id for one in _chosen(turn, seen.above)}
    replaced = frozenset(one.id for one in seen.above if one.id not in kept)
    count, through = len(replaced), seen.above[-1].id
    message = _noted(answer, {REPLACED: {"branch_id": str(aside), "count": count}})
    plan = Rewrite(through, replaced, (message,), aside)
    said = tuple(message if one is answer else one for one in result.body.interactions)
    return SpecialOutcome(replace(result, body=Body(said)), (), plan, count)


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


def _refused(code: str, told: str) -> SpecialOutcome:
    return SpecialOutcome(Return(stop_reason="invalid", messages=(Notice("error", code, told),)))


def _nobody(_events: list[AnyEvent]) -> None:
    """Nobody watches."""

"""Execution of a special turn on a hidden branch.

The turn runs in a session of its own, in memory. Only if it succeeds is its outcome added to the
branch, in one write at the current head: observers see what is kept and nothing else, and a crash
leaves all of it or nothing.
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
from sennit.sessions.detached import DetachedRepository
from sennit.sessions.repository import repository_of
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.session import SessionCore
from sennit.turns.context import REPLACED_KEY, FixedContext
from sennit.turns.events import AnyEvent
from sennit.turns.options import RunInput, StreamingOptions
from sennit.turns.prompt_history import open_turn_start, prompt_messages
from sennit.turns.request import Request
from sennit.turns.result import SPECIAL_TURN_KEY, Body, Notice, Return
from sennit.turns.run import Run
from sennit.turns.special.apply import SpecialOutcome
from sennit.turns.special.definition import InteractionFilter, PersistenceStrategy, SpecialTurn
from sennit.turns.tools.pending_calls import call_id_of, pending_among, unanswered

RunLoop = Callable[[Run], Awaitable[Return]]
"""The turn loop, as a parameter because the loop itself runs special turns."""


async def run_special_turn(
    turn: SpecialTurn,
    request: Request,
    run_loop: RunLoop,
    *,
    streaming: bool = False,
    upto: int | None = None,
) -> SpecialOutcome:
    """Run a special turn without changing the branch.

    `upto` is the number of messages of the history that it reads, by default all current ones; a
    turn that replaces them leaves out an unfinished turn.
    """
    try:
        special_request = _special_request(turn, request)
    except (AccessError, NotFoundError) as error:
        return _refusal("access" if isinstance(error, AccessError) else "not_found", str(error))
    special_prompt = _SpecialPrompt.of(turn, request, upto)
    replaces = turn.strategy is PersistenceStrategy.REPLACE_ABOVE
    if replaces and not special_prompt.replaceable(turn.chosen):
        return _refusal("nothing_above", "There are no messages above to replace.")
    if all(message.content.empty for message in special_prompt.prompt):
        return _refusal(
            "empty", (f"Special turn {turn.name!r} has no prompt; give it an instruction.")
        )
    run = Run(
        replace(special_request, branch=_scratch_branch(request, special_prompt.prompt)),
        replace(turn.options, summarize_at=None),
        StreamingOptions() if streaming else None,
        _ignore_events,
        run_input=RunInput(prompted=True),
    )
    return _outcome_of(turn, special_prompt, await _run_with_timeout(turn, run, run_loop))


@dataclass(frozen=True, slots=True)
class _SpecialPrompt:
    """The prompt of a special turn."""

    above: list[Message]
    """The messages of the history that it reads."""
    prompt: list[Message]
    """The whole prompt; the instruction comes last."""
    new: list[Message]
    """The messages of the prompt that are not on the branch."""

    @classmethod
    def of(cls, turn: SpecialTurn, request: Request, upto: int | None) -> _SpecialPrompt:
        branch = request.branch
        with branch.session.lock:
            messages, system = prompt_messages(branch), branch.session.get_branch_system(branch)
        above = _history_above(
            turn, [message for message in messages if message is not system], upto
        )
        candidates = _prompt_messages(turn, above if system is None else [system, *above])
        # Pending calls, and calls whose results it does not see, are not for this turn to make.
        pending = set(pending_among(reversed(candidates)))
        prompt = [message for message in candidates if message not in pending]
        return cls(above, prompt, [message for message in prompt if message.id not in branch])

    def replaceable(self, kept_filter: InteractionFilter) -> bool:
        """Return whether there are earlier messages that an answer could replace."""
        return any(
            not kept_filter.passes(message) and REPLACED_KEY not in message.metadata
            for message in self.above
        )


def _history_above(turn: SpecialTurn, history: list[Message], upto: int | None) -> list[Message]:
    if upto is None and turn.strategy is PersistenceStrategy.REPLACE_ABOVE:
        upto = open_turn_start(history)
    return history if upto is None else history[:upto]


def _prompt_messages(turn: SpecialTurn, conversation: Sequence[Message]) -> list[Message]:
    if turn.interactions is None:
        messages = [message for message in conversation if turn.sees.passes(message)]
    else:
        messages = [_message(item, turn) for item in turn.interactions]
    return messages if turn.instruction is None else [*messages, _message(turn.instruction, turn)]


def _message(item: Any, turn: SpecialTurn) -> Message:
    if isinstance(item, Message):
        return item
    content = InstructionContent(instruction=item) if isinstance(item, str) else item
    sender = None if isinstance(content, SystemContent) else turn.name
    return Message(content, sender=sender, metadata=_turn_metadata(turn))


def _special_request(turn: SpecialTurn, request: Request) -> Request:
    """Return the request of a special turn; raises AccessError, NotFoundError."""
    contexts = None
    if turn.context is not None:
        contexts = (FixedContext(tuple(turn.context)),) if turn.context else ()
    return request.with_overrides(
        model=turn.model_name, tools=turn.tools, contexts=contexts, params=turn.params
    )


def _scratch_branch(request: Request, messages: Sequence[Message]) -> Branch:
    """Return a branch in memory with these messages, which tools see as the real one."""
    real = request.session
    session = SessionCore(real.user, agent=real.agent, id=real.id)
    repository = repository_of(session)
    assert isinstance(repository, DetachedRepository)
    repository.blobs = repository_of(real).blobs
    branch = session.create_branch(request.branch.name, resources="*")
    session.add_messages(messages, branches=branch)
    return branch


async def _run_with_timeout(turn: SpecialTurn, run: Run, run_loop: RunLoop) -> Return:
    try:
        async with timeout(turn.timeout):
            result = await run_loop(run)
    except TimeoutError:
        text = f"Special turn {turn.name!r} took longer than {turn.timeout} seconds."
        return Return(stop_reason="error", notices=(Notice("error", "timeout", text),))
    if result.stop_reason == "suspended":
        text = f"Special turn {turn.name!r} cannot wait for approval; leave such tools out."
        return result.worse(Notice("error", "approval", text))
    return result


def _outcome_of(
    turn: SpecialTurn, special_prompt: _SpecialPrompt, result: Return
) -> SpecialOutcome:
    messages = [_with_turn_name(message, turn) for message in result.body.interactions]
    result = replace(result, body=Body(tuple(messages)))
    answer = _answer(messages)
    strategy = turn.strategy
    if not result.success or strategy is PersistenceStrategy.EPHEMERAL:
        return SpecialOutcome(result)
    if strategy is PersistenceStrategy.PERSIST_ALL:
        new = [_with_turn_name(message, turn) for message in special_prompt.new]
        return SpecialOutcome(result, tuple(_filter_messages(turn, (*new, *messages))))
    if strategy is PersistenceStrategy.PERSIST_RESULT:
        passes = answer is not None and turn.chosen.passes(answer)
        return SpecialOutcome(result, (answer,) if answer is not None and passes else ())
    if answer is None:
        text = f"Special turn {turn.name!r} gave an empty answer; nothing was replaced."
        return SpecialOutcome(result.worse(Notice("error", "empty", text)))
    return _replacing_outcome(turn, special_prompt, result, answer)


def _filter_messages(turn: SpecialTurn, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that its filter passes; of a tool call both request and result, or
    neither.

    A request without its result would count as a pending call.
    """
    passing = [message for message in messages if turn.chosen.passes(message)]
    calls = [message for message in passing if isinstance(message.content, ActionRequestContent)]
    unanswered_calls = set(unanswered(reversed(passing)))
    call_ids = {name for call in calls for name in (call_id_of(call), str(call.id))}
    return [
        message
        for message in passing
        if message not in unanswered_calls and _belongs_to(message, call_ids)
    ]


def _belongs_to(message: Message, call_ids: set[str]) -> bool:
    """Return whether a message is not a result, or the result of one of the calls."""
    content = message.content
    return not isinstance(content, ActionResponseContent) or content.request_id in call_ids


def _replacing_outcome(
    turn: SpecialTurn, special_prompt: _SpecialPrompt, result: Return, answer: Message
) -> SpecialOutcome:
    branch_id = new_id()
    kept = {message.id for message in _filter_messages(turn, special_prompt.above)}
    replaced = frozenset(message.id for message in special_prompt.above if message.id not in kept)
    count, through = len(replaced), special_prompt.above[-1].id
    message = _with_metadata(answer, {REPLACED_KEY: {"branch_id": str(branch_id), "count": count}})
    plan = Rewrite(through, replaced, (message,), branch_id)
    messages = tuple(message if other is answer else other for other in result.body.interactions)
    return SpecialOutcome(replace(result, body=Body(messages)), (), plan, count)


def _answer(messages: Sequence[Message]) -> Message | None:
    """Return the last text, if it is not blank."""
    for message in reversed(messages):
        content = message.content
        if isinstance(content, AssistantResponseContent):
            return message if (content.assistant_response or "").strip() else None
    return None


def _with_turn_name(message: Message, turn: SpecialTurn) -> Message:
    return _with_metadata(message, _turn_metadata(turn))


def _turn_metadata(turn: SpecialTurn) -> dict[str, Any]:
    return {**turn.metadata, SPECIAL_TURN_KEY: turn.name}


def _with_metadata(message: Message, metadata: Mapping[str, Any]) -> Message:
    return Message(
        message.content,
        sender=message.sender,
        recipient=message.recipient,
        id=message.id,
        created_at=message.created_at,
        metadata={**message.metadata, **metadata},
    )


def _refusal(code: str, text: str) -> SpecialOutcome:
    return SpecialOutcome(Return(stop_reason="invalid", notices=(Notice("error", code, text),)))


def _ignore_events(_events: list[AnyEvent]) -> None:
    """Ignore all events."""

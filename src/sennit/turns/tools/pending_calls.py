"""Pending tool calls, and those that wait for approval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from uuid import UUID

from sennit.containers.progression import Progression
from sennit.errors import NotFoundError, listed, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
)
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.recovery import find_unfinished_run
from sennit.turns.result import SPECIAL_TURN_KEY
from sennit.turns.tools.call_state import starts_new_turn


def messages_from_end(
    branch: Branch, ids: Progression | list[UUID] | None = None
) -> Iterator[Message]:
    """Yield the messages of a branch from its end, reading them lazily.

    With `ids`, only these of them.
    """
    selected = branch if ids is None else ids
    stop, size = len(selected), 4
    while stop > 0:
        start = max(0, stop - size)
        yield from reversed(branch.session.messages.pick(selected[start:stop]))
        stop, size = start, size * 2


def pending_calls(branch: Branch) -> list[Message]:
    """Return the tool calls at the end of a branch without a result, oldest first."""
    return pending_among(messages_from_end(branch))


def pending_among(messages: Iterable[Message]) -> list[Message]:
    """Return the pending calls among messages from the end; special turns do not count."""
    turn = takewhile(lambda message: not starts_new_turn(message), messages)
    return unanswered(message for message in turn if SPECIAL_TURN_KEY not in message.metadata)


def unanswered(messages: Iterable[Message]) -> list[Message]:
    """Return the requests without a result among messages that come from the end, oldest first."""
    requests: list[Message] = []
    answered: set[str] = set()
    for message in messages:
        content = message.content
        if isinstance(content, ActionResponseContent):
            answered.add(content.request_id or "")
        elif isinstance(content, ActionRequestContent) and answered.isdisjoint(
            (content.call_id or "", str(message.id))
        ):
            requests.append(message)
    return requests[::-1]


def pending_call(branch: Branch, call_id: str) -> Message:
    """Return the request with that call id; raises NotFoundError if none is pending."""
    requests = {call_id_of(request): request for request in pending_calls(branch)}
    if call_id not in requests:
        raise NotFoundError(
            f"No tool call {short_repr(call_id)} is pending (it may already have its result); "
            f"pending are: {listed(requests)}."
        )
    return requests[call_id]


def call_id_of(request: Message) -> str:
    """Return the id of a tool call."""
    content = request.content
    assert isinstance(content, ActionRequestContent)
    return content.call_id or str(request.id)


def pending_approvals(branch: Branch) -> list[Message]:
    """Return the calls of a suspended run that wait for a decision."""
    runs = RunRepository(branch)
    unfinished_run = find_unfinished_run(runs)
    if unfinished_run is None or unfinished_run.record.state != "suspended":
        return []
    requests = pending_calls(branch)
    unfinished_run.calls.complete_now(runs, requests)
    undecided = unfinished_run.calls.asked.keys() - unfinished_run.calls.decided.keys()
    return [message for message in requests if message.id in undecided]

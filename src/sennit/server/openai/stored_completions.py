"""Stored chat completions, found by id.

The id of a completion contains the ids of its session and of the first message of the answer.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from uuid import UUID

from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.messages.content import MessageRole
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.openai.stored_responses import delete_derived, parse_response_id
from sennit.server.openai.translate import ModelAnswer, answer_at
from sennit.sessions.branch import messages_from

PREFIX = "chatcmpl-"


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """A chat completion and the messages that it answers."""

    session: Session
    input: Sequence[Message]
    """The messages between the answer before and this one."""
    answer: ModelAnswer

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the client sent."""
        return {
            name: value
            for message in self.input
            for name, value in message.metadata.get("client", {}).items()
        }

    def delete(self, caller: Caller) -> None:
        """Erase the answer and its input; delete a derived session that holds no more."""
        messages = [*self.input, *self.answer.messages]
        if not delete_derived(caller, self.session, messages):
            self.session.remove_messages(messages, forget=False)


async def find_completion(caller: Caller, name: str) -> StoredCompletion:
    """Return a completion by its id, read from the store.

    Raises HTTPError 404 if the owner has none.
    """
    ids = parse_response_id(name, PREFIX)
    found = None if ids is None else await to_thread(_read, caller, *ids)
    if found is None:
        raise HTTPError(404, "not_found", f"There is no chat completion {name[:100]!r}.")
    return found


def _read(caller: Caller, session_id: UUID, first: UUID) -> StoredCompletion | None:
    try:
        session = caller.hold(caller.client.session(session_id, create=False))
    except NotFoundError:
        return None
    branch = next((branch for branch in session.branches if first in branch), None)
    if branch is None:
        return None
    with session.lock:
        at = branch.index(first)
        messages = messages_from(branch, 0)
    answer = answer_at(messages[at:])
    before = takewhile(_is_input, reversed(messages[:at]))
    return StoredCompletion(session, list(before)[::-1], answer) if answer.messages else None


def _is_input(message: Message) -> bool:
    return message.role not in (MessageRole.ASSISTANT, MessageRole.SYSTEM)

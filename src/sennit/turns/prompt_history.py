"""The messages of a branch that a prompt contains.

Prompts leave out messages that a commit has archived. A commit may come at any moment, also between
a question and its answer: an unanswered message is sent even if it is archived, and so are the tool
calls whose results came after the commit, until their turn ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sennit.containers.progression import Progression
from sennit.errors import NothingToAskError
from sennit.messages.content import (
    MessageContent,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.sessions.unarchived import UnarchivedView, archives_of
from sennit.turns.result import SPECIAL_TURN_KEY
from sennit.turns.tools.pending_calls import messages_from_end

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch

_FIRST_TAIL_SIZE = 16


def prompt_ids(branch: Branch) -> Progression | list[UUID]:
    """Return the ids of the messages in a prompt; if possible a view that grows with the branch."""
    with branch.session.lock:
        current = branch.current
        if not isinstance(current, UnarchivedView):
            return current
        start = _open_turn_start_on(branch)
        if start >= current.archived_to:
            return current
        return [uid for index, uid in enumerate(branch) if index >= start or uid in current]


def prompt_messages(branch: Branch) -> list[Message]:
    """Return the messages in a prompt."""
    with branch.session.lock:
        return branch.session.messages.pick(list(prompt_ids(branch)))


def prompt_at(branch: Branch, place: int) -> list[Message]:
    """Return the messages of the prompt for the answer at an index, without archived ones."""
    with branch.session.lock:
        archives, answer = archives_of(branch.session), branch[place]
        above = branch.session.messages.pick(branch[:place])
    start = open_turn_start(above)
    return [
        message
        for position, message in enumerate(above)
        if position >= start or not archives.covered(message.id, answer)
    ]


def nothing_to_answer(branch: Branch) -> str | None:
    """Return the reason why there is nothing to answer on a branch, or None.

    A system message by itself can be answered, unless a commit has archived what followed it.
    """
    with branch.session.lock:
        if any(
            _is_conversation(message) for message in messages_from_end(branch, prompt_ids(branch))
        ):
            return None
    if any(_is_conversation(message) for message in messages_from_end(branch)):
        return (
            f"All that was said on branch {branch.name!r} was archived by a commit, so there is "
            f"nothing to answer; say something new first."
        )
    system = branch.session.get_branch_system(branch)
    if system is not None and not system.content.empty:
        return None
    return f"Nobody has said anything on branch {branch.name!r}; say something."


def check_answerable(branch: Branch, prompt: Sequence[Mapping[str, Any]]) -> None:
    """Raise NothingToAskError if a prompt has nothing to answer."""
    only_system = all(message["role"] == "system" for message in prompt[-1:])
    if only_system and (reason := nothing_to_answer(branch)) is not None:
        raise NothingToAskError(reason)


def _is_conversation(message: Message) -> bool:
    """Return whether a message is part of the conversation, rather than its set-up."""
    content = message.content
    return not (
        content.empty or isinstance(content, SystemContent) or SPECIAL_TURN_KEY in message.metadata
    )


def _open_turn_start_on(branch: Branch) -> int:
    """Return the start of the last turn on the branch if it is unfinished, reading little."""
    for start, messages in _growing_tails(branch):
        open_start = start + open_turn_start(messages)
        if open_start > start or start == 0:
            return open_start
    return len(branch)


def _growing_tails(branch: Branch) -> Iterator[tuple[int, list[Message]]]:
    """Yield ever longer ends of a branch, as start index and messages."""
    size = _FIRST_TAIL_SIZE
    while True:
        start = max(0, len(branch) - size)
        yield start, branch.session.messages.pick(branch[start:])
        if start == 0:
            return
        size *= 4


def open_turn_start(messages: Sequence[Message]) -> int:
    """Return the start of the last turn if it is unfinished: messages from there on are not
    replaced.

    A turn is finished by a text of the assistant that a user message, or nothing, follows. Messages
    of special turns are part of no turn.
    """
    following: MessageContent | None = None
    for index in reversed(range(len(messages))):
        content = messages[index].content
        if content.empty or SPECIAL_TURN_KEY in messages[index].metadata:
            continue
        if content.from_assistant and (following is None or following.from_user):
            return index + 1
        following = content
    return 0

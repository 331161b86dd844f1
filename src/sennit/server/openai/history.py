"""Histories of clients: their turns, hashed, and the branches that have them.

Clients of chat completions send the whole conversation each time. It is hashed to a chain of
digests, one per turn, each covering all turns before it: histories that share a digest are equal up
to that turn. A branch caches its chain and extends it incrementally, so the common prefix is found
by binary search, without comparing text.

Digests leave out what clients drop or reformat: the system message, reasoning, leading and trailing
whitespace, the spacing of JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from sennit.messages.blob_reference import without_bytes
from sennit.messages.codec import dumps, loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
    MessageContent,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read
from sennit.messages.prompt.tool_chat import tool_text
from sennit.server.http.caches import HistoryTurn
from sennit.server.openai.translate import arguments_of
from sennit.sessions.branch import Branch
from sennit.sessions.segments import tail_of

_DIGEST_BYTES = 16


class TurnHasher:
    """Incremental hashing of messages to turns."""

    __slots__ = ("_calls", "_count", "_texts", "_turns")

    def __init__(self) -> None:
        self._turns: list[HistoryTurn] = []
        self._count = 0
        self._texts: list[str] = []  # of an assistant turn that may still grow
        self._calls: list[tuple[str, str, str]] = []

    def feed(self, messages: Sequence[Message]) -> None:
        """Append messages to the chain."""
        for message in messages:
            content = message.content
            if isinstance(content, SystemContent):
                continue
            if content.from_assistant:
                self._texts.append(content.words)
            elif isinstance(content, ActionRequestContent):
                self._calls.append(_call(message, content))
            else:
                self._close()
                self._turns.append(HistoryTurn(self._chain(_turn_fields(content)), self._count + 1))
            self._count += 1

    @property
    def turns(self) -> list[HistoryTurn]:
        """The turns so far; the last one may still grow."""
        open_turn = self._open_turn()
        return self._turns if open_turn is None else [*self._turns, open_turn]

    def _close(self) -> None:
        open_turn = self._open_turn()
        if open_turn is not None:
            self._turns.append(open_turn)
        self._texts, self._calls = [], []

    def _open_turn(self) -> HistoryTurn | None:
        text = "".join(self._texts).strip()
        if not text and not self._calls:
            return None
        return HistoryTurn(self._chain(["assistant", text, self._calls]), self._count)

    def _chain(self, fields: object) -> bytes:
        previous = self._turns[-1].digest if self._turns else b""
        return blake2b(previous + dumps(fields), digest_size=_DIGEST_BYTES).digest()


def _turn_fields(content: MessageContent) -> list[object]:
    if isinstance(content, InstructionContent):
        return ["user", (content.instruction or "").strip(), _urls(content)]
    if not isinstance(content, ActionResponseContent):
        return [content.chat_role, content.words.strip(), []]
    return ["tool", content.request_id or "", tool_text(content).strip(), *_urls(content)]


def _urls(content: MessageContent) -> list[str]:
    return [without_bytes(url) for url in content.attachment_urls]


def _call(message: Message, content: ActionRequestContent) -> tuple[str, str, str]:
    arguments = arguments_of(message, content)
    if "arguments_text" not in message.metadata:
        arguments = dumps(_sorted(loads(arguments))).decode()
    return content.call_id or str(message.id), content.function or "", arguments


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}  # pyright: ignore
    return [_sorted(item) for item in value] if isinstance(value, list) else value  # pyright: ignore


def turns_of(messages: Sequence[Message]) -> list[HistoryTurn]:
    """Return the turns of messages that are on no branch."""
    hasher = TurnHasher()
    hasher.feed(messages)
    return hasher.turns


def branch_turns(branch: Branch) -> list[HistoryTurn]:
    """Return the turns of a branch."""
    return read(TurnHasher, branch.session.messages, branch, lambda hasher: hasher.turns)


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """The common prefix of a history and a branch."""

    branch: Branch
    turns: int
    """The number of shared turns."""
    message_count: int
    """The number of messages that the shared turns have in the history."""
    at: int
    """The number of messages that they have on the branch, without the system message."""

    last: UUID | None
    """The id of the last of those."""

    @property
    def is_at_end(self) -> bool:
        """True if the branch has no messages after the match, so it can be continued."""
        return self.at == tail_of(self.branch).total


def best_match(history: Sequence[HistoryTurn], branches: Iterable[Branch]) -> HistoryMatch | None:
    """Return the longest match of a history; among equals, one at the end of its branch.

    A match of all turns counts too: the last turn is then answered again.
    """
    best: HistoryMatch | None = None
    for branch in branches:
        match = _match(history, branch)
        if match is None or (best is not None and _rank(match) <= _rank(best)):
            continue
        best = match
        if match.is_at_end and match.turns >= len(history) - 1:
            break
    return best


def _rank(match: HistoryMatch) -> tuple[int, bool]:
    return match.turns, match.is_at_end


def _match(history: Sequence[HistoryTurn], branch: Branch) -> HistoryMatch | None:
    turns = branch_turns(branch)
    limit = min(len(history), len(turns))
    # Each digest covers all before it, so the equal ones form a prefix.
    shared = bisect_left(range(limit), True, key=lambda at: history[at].digest != turns[at].digest)
    if not shared:
        return None
    at = turns[shared - 1].end
    return HistoryMatch(branch, shared, history[shared - 1].end, at, message_at(branch, at))


def message_at(branch: Branch, length: int) -> UUID | None:
    """Return the id of the last of `length` messages of a branch; None if it has fewer."""
    return tail_of(branch).id_at(length - 1) if 0 < length <= tail_of(branch).total else None

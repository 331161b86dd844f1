"""Matching of a client's history against the turns of a branch.

Clients of chat completions send the whole conversation each time. What was said is read as a chain
of digests, one for each turn, in which each covers all before it: two histories that agree on one
agree on everything up to there. A branch keeps its chain with it and reads on where it stopped, so
that finding how far a history goes along with a branch takes as many steps as its length has
digits, and no text is compared.

Digests leave out what clients do not send back, or not alike: the system message, what a model
thought aloud, blanks at the ends, the spacing of JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

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
from sennit.server.openai.translate import arguments_of
from sennit.sessions.branch import Branch

_SIZE = 16


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """A turn of a conversation, and with it everything before."""

    digest: bytes
    end: int
    """How many messages there are up to its end, without the system message."""


class TurnHasher:
    """The chain of a conversation, read message by message."""

    __slots__ = ("_calls", "_count", "_texts", "_turns")

    def __init__(self) -> None:
        self._turns: list[HistoryTurn] = []
        self._count = 0
        self._texts: list[str] = []  # of an assistant who may not have finished
        self._calls: list[tuple[str, str, str]] = []

    def feed(self, messages: Sequence[Message]) -> None:
        """Take in what comes next."""
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
                self._turns.append(HistoryTurn(self._chained(_said(content)), self._count + 1))
            self._count += 1

    @property
    def turns(self) -> list[HistoryTurn]:
        """The turns so far; the last one may still grow."""
        open_turn = self._growing()
        return self._turns if open_turn is None else [*self._turns, open_turn]

    def _close(self) -> None:
        open_turn = self._growing()
        if open_turn is not None:
            self._turns.append(open_turn)
        self._texts, self._calls = [], []

    def _growing(self) -> HistoryTurn | None:
        text = "".join(self._texts).strip()
        if not text and not self._calls:
            return None
        return HistoryTurn(self._chained(["assistant", text, self._calls]), self._count)

    def _chained(self, fields: object) -> bytes:
        previous = self._turns[-1].digest if self._turns else b""
        return blake2b(previous + dumps(fields), digest_size=_SIZE).digest()


def _said(content: MessageContent) -> list[object]:
    if isinstance(content, InstructionContent):
        return ["user", (content.instruction or "").strip(), list(content.images or ())]
    if not isinstance(content, ActionResponseContent):
        return [content.chat_role, content.words.strip(), []]
    return ["tool", content.request_id or "", tool_text(content).strip()]


def _call(message: Message, content: ActionRequestContent) -> tuple[str, str, str]:
    arguments = arguments_of(message, content)
    if "arguments_text" not in message.metadata:
        arguments = dumps(_sorted(loads(arguments))).decode()
    return content.call_id or str(message.id), content.function or "", arguments


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}  # pyright: ignore
    return [_sorted(item) for item in value] if isinstance(value, list) else value  # pyright: ignore


def trail_of(messages: Sequence[Message]) -> list[HistoryTurn]:
    """The chain of messages that stand on no branch."""
    hasher = TurnHasher()
    hasher.feed(messages)
    return hasher.turns


def branch_trail(branch: Branch) -> list[HistoryTurn]:
    """The chain of a branch."""
    return read(TurnHasher, branch.session.messages, branch, lambda trail: trail.turns)


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """The length to which a history matches a branch."""

    branch: Branch
    turns: int
    """How many turns they share."""
    said: int
    """How many of the messages sent those are."""
    at: int
    """How many messages of the branch those are, without the system message."""

    last: UUID | None
    """The last of those."""

    @property
    def at_the_end(self) -> bool:
        """True if the branch says nothing more, so that it can be continued."""
        return self.at == self.branch.tail.total


def best_match(history: Sequence[HistoryTurn], branches: Iterable[Branch]) -> HistoryMatch | None:
    """The branch that a history goes along with furthest; of several, one that ends there.

    The last turn of a history is what is to be answered, or its answer is wanted anew: a match of
    all turns counts too.
    """
    best: HistoryMatch | None = None
    for branch in branches:
        match = _match(history, branch)
        if match is None or (best is not None and _rank(match) <= _rank(best)):
            continue
        best = match
        if match.at_the_end and match.turns >= len(history) - 1:
            break
    return best


def _rank(match: HistoryMatch) -> tuple[int, bool]:
    return match.turns, match.at_the_end


def _match(history: Sequence[HistoryTurn], branch: Branch) -> HistoryMatch | None:
    turns = branch_trail(branch)
    limit = min(len(history), len(turns))
    # Each digest covers all before it, so those that agree come first.
    shared = bisect_left(range(limit), True, key=lambda at: history[at].digest != turns[at].digest)
    if not shared:
        return None
    at = turns[shared - 1].end
    return HistoryMatch(branch, shared, history[shared - 1].end, at, message_at(branch, at))


def message_at(branch: Branch, length: int) -> UUID | None:
    """The last of so many messages of a branch, the system message aside; None if it has fewer."""
    return branch.tail.id_at(length - 1) if 0 < length <= branch.tail.total else None

"""Provider state: what a provider sent with a reply beside its texts and calls, and wants back.

Providers sign reasoning, encrypt or number items and run tools of their own, and refuse a later
request that lacks these or changes them. Each message of a reply keeps its share as opaque JSON in
its metadata, so that it is stored, forked, exported and erased with the message. The state goes
back to the same provider only while all messages of the reply stand together, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

STATE_KEY = "provider_state"
"""The key of the state in the metadata of a message, and in an assistant's chat message."""
PartKind: TypeAlias = Literal["text", "reasoning", "call", "other"]


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part of a reply as its provider sent it."""

    kind: PartKind
    """The content that the part belongs to; "other" parts have none, such as a web search."""
    text: str
    """The text or reasoning that it contributes, or the id of the call."""
    data: str
    """The part as JSON."""


@dataclass(frozen=True, slots=True)
class ProviderState:
    """The state of one reply, in the order of arrival."""

    provider: str
    """The provider that understands it."""
    response: str
    """What concerns the whole reply, as JSON."""
    parts: tuple[StatePart, ...]
    """The parts of the reply."""


def state_shares(
    state: ProviderState, reply: str, parts: Sequence[Sequence[StatePart]]
) -> list[dict[str, Any]]:
    """Return what each message of a reply stores under STATE_KEY; `parts` are those of each."""
    shares: list[dict[str, Any]] = [
        {
            "provider": state.provider,
            "reply": reply,
            "index": index,
            "of": len(parts),
            "parts": [part.data for part in own],
        }
        for index, own in enumerate(parts)
    ]
    shares[0]["response"] = state.response
    return shares


def without_state(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages as they are sent to a provider that understands none of the states."""
    return [
        {key: value for key, value in message.items() if key != STATE_KEY}
        for message in messages
        if STATE_KEY not in message or message.get("content") or message.get("tool_calls")
    ]


def joined_shares(shares: Sequence[Any]) -> dict[str, Any] | None:
    """Return the state of consecutive messages if they are all those of one reply, else None."""
    match shares[0]:
        case {"reply": reply, "provider": provider, "response": response}:
            expected = [(reply, index, len(shares)) for index in range(len(shares))]
        case _:
            return None
    if [_place(share) for share in shares] != expected:
        return None
    parts = [part for share in shares for part in share["parts"]]
    return {"provider": provider, "response": response, "parts": parts}


def _place(share: Any) -> tuple[Any, Any, Any] | None:
    match share:
        case {"reply": reply, "index": index, "of": count, "parts": [*_]}:
            return reply, index, count
        case _:
            return None

"""Conversion between turns and messages.

A turn is stored as an instruction and an answer with readable text; the exact inputs and outputs
are plain data in their metadata. Its history is stored as positions among the turns of the branch,
so the size of a turn does not grow with the conversation; an explicit history is stored in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, cast
from uuid import UUID

from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import HistoryEntry, HistorySpan, Turn, parse_history
from sennit.learning.dspy.plain_values import (
    fields_as_text,
    image_urls,
    plain_fields,
    without_blocks,
)
from sennit.learning.examples import METADATA_KEY, NODE_FIELD
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.unset import Unset

_NESTED_FIELDS = ("nodes", "call", "memories", NODE_FIELD)

TurnMetadata: TypeAlias = dict[str, Any]


def turn_metadata(turn: Turn, dropped: int = 0) -> TurnMetadata:
    """Return the history and the nested fields of a turn as plain data.

    Positions are relative to the list without its first `dropped` entries.
    """
    nested = {name: value for name in _NESTED_FIELDS if (value := getattr(turn, name))}
    past = turn.past
    if not isinstance(past, HistorySpan) or past.start + past.dropped < dropped:
        return {"history": [*map(plain_fields, turn.history_snapshot.messages)], **nested}
    start, stop = (position + past.dropped - dropped for position in (past.start, past.stop))
    initial = {"known": len(past.initial)} if past.initial else {}
    return {"from": start, "to": stop, **initial, **nested}


def nested_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested fields stored with a turn."""
    return {name: metadata.get(name) for name in _NESTED_FIELDS}


def stored_history(
    metadata: Mapping[str, Any],
    entries: list[HistoryEntry],
    initial: list[HistoryEntry],
    dropped: int = 0,
) -> Any:
    """Return the stored history of the next turn; None if none was stored.

    The first `dropped` entries are no longer in the list. If earlier turns were erased since, the
    stored positions are shifted accordingly.
    """
    history = metadata.get("history", metadata.get("history_snapshot"))
    if history is not None:
        return History(messages=parse_history(history))
    start, stop, initial_count = metadata.get("from"), metadata.get("to"), metadata.get("known", 0)
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(initial_count, int)):
        return None
    shift = dropped + max(0, stop - dropped - len(entries))
    start, stop = (max(0, position - shift) for position in (start, stop))
    initial_part = initial[len(initial) - initial_count :] if initial_count else ()
    return HistorySpan(entries, start, stop, initial_part, dropped)


def history_start(message: Message) -> float:
    """Return the first history position of a turn's answer; infinity if it has none."""
    metadata = message.metadata.get(METADATA_KEY)
    start = cast("TurnMetadata", metadata).get("from") if isinstance(metadata, Mapping) else None
    return start if isinstance(start, int) else inf


def turn_messages(turn: Turn) -> list[Message]:
    """Return the messages of a turn, and set their ids on the turn."""
    inputs, outputs = plain_fields(turn.inputs), plain_fields(turn.outputs)
    instruction = Message(
        InstructionContent(
            instruction=fields_as_text(without_blocks(inputs)), images=image_urls(inputs) or Unset
        ),
        metadata={METADATA_KEY: {"inputs": inputs}},
    )
    answer = Message(
        AssistantResponseContent(assistant_response=fields_as_text(without_blocks(outputs))),
        metadata={METADATA_KEY: {"outputs": outputs, **turn_metadata(turn)}},
    )
    turn.asked, turn.message = instruction.id, answer.id
    return [instruction, answer]


def initial_messages(initial: list[HistoryEntry], earlier: list[HistoryEntry]) -> list[Message]:
    """Return the initial history of a conversation as messages; empty if there is none."""
    if not initial and not earlier:
        return []
    plain_initial = [plain_fields(entry) for entry in initial]
    metadata: TurnMetadata = {"initial": plain_initial}
    if earlier:
        metadata["earlier"] = [plain_fields(entry) for entry in earlier]
    content = InstructionContent(context=without_blocks(plain_initial))
    return [Message(content, metadata={METADATA_KEY: metadata})]


@dataclass(frozen=True, slots=True)
class ConversationStart:
    """The start of a conversation on a branch."""

    initial: list[HistoryEntry]
    earlier: list[HistoryEntry]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn read from a branch."""

    instruction_id: UUID
    answer_id: UUID
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    metadata: TurnMetadata


def read_turns(messages: Iterable[Message]) -> Iterator[ConversationStart | StoredTurn]:
    """Yield the turns in the messages of a branch; other messages are skipped."""
    instruction: tuple[UUID, dict[str, Any]] | None = None
    for message in messages:
        value = message.metadata.get(METADATA_KEY)
        if not isinstance(value, Mapping):
            continue
        metadata = cast("TurnMetadata", value)
        if "initial" in metadata:
            yield ConversationStart(
                parse_history(metadata["initial"]), parse_history(metadata.get("earlier", []))
            )
        elif "inputs" in metadata:
            instruction = message.id, metadata["inputs"]
        elif "outputs" in metadata and instruction is not None:
            yield StoredTurn(
                instruction[0], message.id, instruction[1], metadata["outputs"], metadata
            )
            instruction = None

"""Conversion between turns and messages.

A turn is an instruction and an answer, readable as they are, with the exact inputs and outputs
beside them as plain data. What it knew is written as positions among the turns of its branch, so a
turn takes the same room however long the conversation; a history of its own it carries along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, cast
from uuid import UUID

from sennit.learning.dspy.blocks import images_in, without_blocks
from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import HistorySpan, Told, history_from
from sennit.learning.dspy.plain_values import plain_fields, spoken
from sennit.learning.dspy.turn import Turn
from sennit.learning.exchanges import KEY, NODE
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.unset import Unset

_INSIDE = ("nodes", "call", "memories", NODE)

Note: TypeAlias = dict[str, Any]


def note_of(turn: Turn, gone: int = 0) -> Note:
    """Return the history and the nested turns of a turn, as plain data.

    Positions count from the turn after the first `gone` ones.
    """
    inside = {name: one for name in _INSIDE if (one := getattr(turn, name))}
    past = turn.past
    if not isinstance(past, HistorySpan) or past.start + past.gone < gone:
        return {"history": [plain_fields(one) for one in turn.history_snapshot.messages], **inside}
    start, stop = (one + past.gone - gone for one in (past.start, past.stop))
    known = {"known": len(past.known)} if past.known else {}
    return {"from": start, "to": stop, **known, **inside}


def inside_of(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data stored with a turn beside its history."""
    return {name: note.get(name) for name in _INSIDE}


def past_in(note: Mapping[str, Any], told: list[Told], initial: list[Told], gone: int = 0) -> Any:
    """Return the stored history of the next turn; None if none was stored.

    Of what was told, the first `gone` are no longer in the list. Where turns before this one were
    erased since, those that are left stand earlier than it was noted.
    """
    given = note.get("history", note.get("history_snapshot"))
    if given is not None:
        return History(messages=history_from(given))
    start, stop, known = note.get("from"), note.get("to"), note.get("known", 0)
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(known, int)):
        return None
    earlier = gone + max(0, stop - gone - len(told))
    start, stop = (max(0, one - earlier) for one in (start, stop))
    return HistorySpan(told, start, stop, initial[len(initial) - known :] if known else (), gone)


def reaches(message: Message) -> float:
    """Return the position of the first turn that a turn's answer knew; infinity if it has none."""
    found = message.metadata.get(KEY)
    first = cast("Note", found).get("from") if isinstance(found, Mapping) else None
    return first if isinstance(first, int) else inf


def turn_messages(turn: Turn) -> list[Message]:
    """A turn as it stands on the branch; it remembers its place there."""
    asked, answered = plain_fields(turn.inputs), plain_fields(turn.outputs)
    asking = Message(
        InstructionContent(
            instruction=spoken(without_blocks(asked)), images=images_in(asked) or Unset
        ),
        metadata={KEY: {"inputs": asked}},
    )
    answer = Message(
        AssistantResponseContent(assistant_response=spoken(without_blocks(answered))),
        metadata={KEY: {"outputs": answered, **note_of(turn)}},
    )
    turn.asked, turn.message = asking.id, answer.id
    return [asking, answer]


def beginning(initial: list[Told], earlier: list[Told]) -> list[Message]:
    """Return the initial history of a conversation as messages; empty if there is none."""
    if not initial and not earlier:
        return []
    plain = [plain_fields(one) for one in initial]
    note: Note = {"initial": plain}
    if earlier:
        note["earlier"] = [plain_fields(one) for one in earlier]
    return [Message(InstructionContent(context=without_blocks(plain)), metadata={KEY: note})]


@dataclass(frozen=True, slots=True)
class ConversationStart:
    """A conversation begins here."""

    initial: list[Told]
    earlier: list[Told]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn that stands on a branch."""

    asked: UUID
    message: UUID
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    note: Note


def read(messages: Iterable[Message]) -> Iterator[ConversationStart | StoredTurn]:
    """Yield the turns in the messages of a branch; other messages are skipped."""
    asking: tuple[UUID, dict[str, Any]] | None = None
    for message in messages:
        found = message.metadata.get(KEY)
        if not isinstance(found, Mapping):
            continue
        note = cast("Note", found)
        if "initial" in note:
            yield ConversationStart(
                history_from(note["initial"]), history_from(note.get("earlier", []))
            )
        elif "inputs" in note:
            asking = message.id, note["inputs"]
        elif "outputs" in note and asking is not None:
            yield StoredTurn(asking[0], message.id, asking[1], note["outputs"], note)
            asking = None

"""The conversations and their questions, and how they are put into a store.

Six made-up conversations between two people, each over a dozen or so sittings and most of a year.
Each question names the turns that one needs to answer it, as "sitting.turn" from 1. Half of the
conversations are for trying things out; the other half is held out: whoever changes how things are
ranked looks at the first half alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sennit import AssistantResponseContent, Client, InstructionContent, Message

FOLDER = Path(__file__).parent / "conversations"
HALVES = ("dev", "held-out")
_TURN_INTERVAL = timedelta(seconds=40)


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that was said."""

    name: str
    """Its sitting and its place in it."""
    at: datetime
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the turns that one needs to answer it."""

    kind: str
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """All turns of two people, and questions about them."""

    name: str
    half: str
    turns: list[Turn]
    questions: list[Question]
    is_chat: bool = False
    """Whether it is with an assistant: each sitting is a session, and nobody has a name."""


def conversations(half: str) -> list[Conversation]:
    """Those of one half, in the order of their names."""
    all_ = [_read(path) for path in sorted(FOLDER.glob("*.json"))]
    return [conversation for conversation in all_ if conversation.half == half]


def _read(path: Path) -> Conversation:
    data = json.loads(path.read_text())
    turns: list[Turn] = []
    for sitting, entry in enumerate(data["sittings"], 1):
        begins = datetime.fromisoformat(entry["at"])
        for number, (speaker, text) in enumerate(entry["turns"], 1):
            at = begins + number * _TURN_INTERVAL
            turns.append(Turn(f"{sitting}.{number}", at, speaker, text))
    questions = [
        Question(question["kind"], question["question"], frozenset(question["evidence"]))
        for question in data["questions"]
    ]
    return Conversation(data["name"], data["half"], turns, questions)


def fill(client: Client, conversation: Conversation) -> dict[str, str]:
    """Put a conversation into a store; gives the turn of each message id."""
    first = conversation.turns[0].speaker
    names: dict[str, str] = {}
    for turn in conversation.turns:
        sitting = f"_{turn.name.partition('.')[0]}" if conversation.is_chat else ""
        session = client.session(f"{conversation.name}{sitting}")
        content = (
            InstructionContent(instruction=turn.text)
            if turn.speaker == first
            else AssistantResponseContent(turn.text)
        )
        sender = None if conversation.is_chat else turn.speaker
        message = Message(content, sender=sender, created_at=turn.at)
        session.add_message(message, branches=session.default_branch)
        names[str(message.id)] = turn.name
    return names

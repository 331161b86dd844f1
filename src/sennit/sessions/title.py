"""Titles of sessions: a text that a person has set, or else the first words of the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.content import InstructionContent

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore

TITLE_KEY = "title"
"""The key of the title in the metadata of a session."""
_MAX_CHARS = 80
_MAX_MESSAGES_READ = 3  # of a branch: its system message and a greeting may come first


def stored_title(metadata: Mapping[str, Any]) -> str | None:
    """Return the title in the metadata of a session, if it has one."""
    title = metadata.get(TITLE_KEY)
    return title if isinstance(title, str) and title else None


def with_title(metadata: Mapping[str, Any], title: str | None) -> dict[str, Any]:
    """Return the metadata with another title, or without one; raises InvalidTypeError."""
    if title is not None and not isinstance(title, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"A title is a text, or None, got {short_repr(title)}.")
    rest = {name: value for name, value in metadata.items() if name != TITLE_KEY}
    text = (title or "").strip()
    return {**rest, TITLE_KEY: text} if text else rest


def title_of(session: SessionCore) -> str | None:
    """Return the title of a session, else the first words that a user wrote, else None."""
    return stored_title(session.metadata) or first_words(session)


def first_words(session: SessionCore) -> str | None:
    """Return the first words that a user wrote in a session, in one line, if there are any."""
    for branch in session.branches:
        for uid in branch[:_MAX_MESSAGES_READ]:
            content = session.messages.get(uid).content
            if isinstance(content, InstructionContent) and content.words:
                words = " ".join(content.words[: 4 * _MAX_CHARS].split())
                return words if len(words) <= _MAX_CHARS else f"{words[: _MAX_CHARS - 1]}…"
    return None

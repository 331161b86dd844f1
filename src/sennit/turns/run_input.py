"""The input of a run: what to say first, and where.

A plain run has none: it lets the model answer what is there. One with an aim says something first,
looks at the answer before it counts, or makes a single call and asks no model at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

import msgspec

from sennit.messages.message import Message

Check: TypeAlias = Callable[[str, str | None], str | None]
"""From an answer, and why the model stopped, to what it is told of it; None if it may stand."""


class RunInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a run."""

    say: tuple[Message, ...] = ()
    """Put on the branch as the run begins: one that is refused leaves nothing behind."""
    at: int | None = None
    """How many messages, the system message aside, the branch must hold as the run begins."""
    last: UUID | None = None
    """The last of those messages; None if any will do."""
    check: Check | None = None
    """Looks at each answer; what it objects to is told to the model, which answers again."""
    only: UUID | None = None
    """The one request whose tool is called; nothing else is done."""


NO_INPUT = RunInput()

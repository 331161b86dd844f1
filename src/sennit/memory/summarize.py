"""What a conversation was about: the summary, its one-line abstract and its overview."""

from __future__ import annotations

from collections.abc import Iterable

from sennit.memory.values import Summary
from sennit.messages.message import Message


def summary_by_rules(messages: Iterable[Message]) -> Summary:
    """A summary without a model; the same for the same messages."""
    raise NotImplementedError


def markdown(summary: Summary) -> str:
    """The summary as `.overview.md` keeps it: at most 4000 characters."""
    raise NotImplementedError


def abstract(summary: Summary) -> str:
    """The summary as `.abstract.md` keeps it: one line of at most 256 characters."""
    raise NotImplementedError

"""Patterns of tool use: calls that worked after a failure, and calls that go together.

Only success teaches, and one success is no pattern: it takes a failed call that another call of the
same tool corrects, or the same two tools in a row in two requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sennit.memory.extraction.english.clauses import is_injection, is_unsafe
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence, abstract_of
from sennit.messages.codec import dumps

_MAX_CHARS = 160


def patterns(conversation: Utterances) -> Iterator[Candidate]:
    """Yield patterns learnt from the tool calls of a conversation."""
    for candidate in (*_corrected_calls(conversation.tool_uses), *_call_sequences(conversation)):
        if not is_unsafe(candidate.text) and not is_injection(candidate.text):
            yield candidate


def _corrected_calls(uses: list[ToolUse]) -> Iterator[Candidate]:
    failed: dict[str, ToolUse] = {}
    for use in uses:
        before = failed.pop(use.name, None)
        if not use.success:
            failed[use.name] = use
        elif before is not None and before.arguments != use.arguments:
            text = (
                f"Tool {use.name}: {_to_text(before.arguments)} failed "
                f"({abstract_of(before.result, _MAX_CHARS)}); {_to_text(use.arguments)} worked."
            )
            yield _candidate(
                text, slug(use.name, "works with", _to_text(use.arguments)), before, use
            )


def _call_sequences(conversation: Utterances) -> Iterator[Candidate]:
    """Yield pairs of tools that succeeded one right after the other, in more than one request."""
    seen: dict[tuple[str, str], ToolUse] = {}
    reported: set[tuple[str, str]] = set()
    for request in _successful_calls(conversation):
        pairs = {
            (first.name, second.name): second
            for first, second in pairwise(request)
            if first.name != second.name
        }
        for pair, use in pairs.items():
            if pair in seen and pair not in reported:
                reported.add(pair)
                text = f"Tool {pair[0]}, then tool {pair[1]}, worked in more than one request."
                yield _candidate(text, slug(pair[0], "then", pair[1]), seen[pair], use)
            seen.setdefault(pair, use)


def _successful_calls(conversation: Utterances) -> Iterator[list[ToolUse]]:
    """Yield the successful tool calls of each request of the user."""
    uses: list[ToolUse] = []
    for item in conversation.items:
        if isinstance(item, Utterance) and item.speaker == "user":
            yield uses
            uses = []
        elif isinstance(item, ToolUse) and item.success:
            uses.append(item)
    yield uses


def _candidate(text: str, name: str, *uses: ToolUse) -> Candidate:
    evidence = tuple(
        QuotedEvidence(id, use.name) for use in uses for id in (use.message_id, use.result_id)
    )
    return Candidate(
        category=Category.PATTERNS, text=text, slug=name, evidence=evidence, said_at=uses[-1].at
    )


def _to_text(arguments: dict[str, object]) -> str:
    return abstract_of(dumps(arguments).decode(), _MAX_CHARS)

"""Patterns of tool use: which call works after another failed, which calls go together.

Only what succeeded teaches. One success is no pattern: it takes a failure that another call of the
same tool made good, or the same tools one after another in two requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sennit.memory.extraction.clauses import is_injection, is_unsafe
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence, abstract_of
from sennit.messages.codec import dumps

_LONGEST = 160


def patterns(conversation: Utterances) -> Iterator[Candidate]:
    """Return patterns learnt from the tool calls of a conversation."""
    for candidate in (*_made_good(conversation.tool_uses), *_together(conversation)):
        if not is_unsafe(candidate.text) and not is_injection(candidate.text):
            yield candidate


def _made_good(uses: list[ToolUse]) -> Iterator[Candidate]:
    failed: dict[str, ToolUse] = {}
    for use in uses:
        before = failed.pop(use.name, None)
        if not use.success:
            failed[use.name] = use
        elif before is not None and before.arguments != use.arguments:
            text = (
                f"Tool {use.name}: {_shown(before.arguments)} failed "
                f"({abstract_of(before.result, _LONGEST)}); {_shown(use.arguments)} worked."
            )
            yield _candidate(text, slug(use.name, "works with", _shown(use.arguments)), before, use)


def _together(conversation: Utterances) -> Iterator[Candidate]:
    """Two tools that succeeded one right after the other, in more than one request."""
    seen: dict[tuple[str, str], ToolUse] = {}
    told: set[tuple[str, str]] = set()
    for request in _requests(conversation):
        pairs = {
            (one.name, two.name): two for one, two in pairwise(request) if one.name != two.name
        }
        for pair, use in pairs.items():
            if pair in seen and pair not in told:
                told.add(pair)
                text = f"Tool {pair[0]}, then tool {pair[1]}, worked in more than one request."
                yield _candidate(text, slug(pair[0], "then", pair[1]), seen[pair], use)
            seen.setdefault(pair, use)


def _requests(conversation: Utterances) -> Iterator[list[ToolUse]]:
    """The tools that succeeded, request by request of the user."""
    uses: list[ToolUse] = []
    for one in conversation.said:
        if isinstance(one, Utterance) and one.speaker == "user":
            yield uses
            uses = []
        elif isinstance(one, ToolUse) and one.success:
            uses.append(one)
    yield uses


def _candidate(text: str, name: str, *uses: ToolUse) -> Candidate:
    evidence = tuple(
        QuotedEvidence(id, use.name) for use in uses for id in (use.message_id, use.result_id)
    )
    return Candidate(
        category=Category.PATTERNS, text=text, slug=name, evidence=evidence, said_at=uses[-1].at
    )


def _shown(arguments: dict[str, object]) -> str:
    return abstract_of(dumps(arguments).decode(), _LONGEST)

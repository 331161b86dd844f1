"""Whole branches as conversations for fine-tuning.

Each branch that no other goes on from is told once, from its beginning to its last answer. Where a
filter asks for a score, answers that fall short are marked, so that a format can keep them as
context without teaching them; a strict one ends the conversation before the first of them.

They are told from what a store keeps, and no session is opened for it: of a million messages none
is in memory for longer than the conversation it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from uuid import UUID

from sennit.learning.examples import Filter
from sennit.learning.exchanges import leaves, of_predictor
from sennit.learning.export.formats import Chat, ChatConversation, LeftOut, Row, tools_in
from sennit.learning.export.stored_rows import kept_chat
from sennit.learning.labels import Label, average, labels_from
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import as_told, asked_message
from sennit.services.registry import ServiceRegistry
from sennit.services.tools.tool import Tool
from sennit.sessions.repository import segments_from
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import LabelRecord, MessageRecord, Snapshot

NO_ANSWER = LeftOut("has no answer")
NOT_GOOD_ENOUGH = LeftOut("has no answer that is scored high enough")


@dataclass(frozen=True, slots=True)
class _Strand:
    """A branch as it is kept."""

    tail: Segment
    system: UUID | None


def conversations(
    kept: Snapshot, labels: Iterable[LabelRecord], keep: Filter, described: Mapping[str, Row]
) -> Iterator[ChatConversation | LeftOut]:
    """Every conversation of a session; in place of one of which nothing is left, why."""
    known = labels_from(labels, by=keep.by)
    stored = {record.id.int: record for record in kept.messages}
    segments: dict[UUID, Segment] = {}
    segments_from(kept.segments, segments)
    strands = [_Strand(segments[one.segment], one.system) for one in kept.branches]
    for strand in leaves(strands):
        ids = strand.tail.between(0, strand.tail.total)
        if ids and of_predictor(loads(stored[ids[-1].int].body).get("metadata", {})):
            continue
        if strand.system is not None:
            ids.insert(0, strand.system)
        yield _told([stored[uid.int] for uid in ids], known, keep, described)


def _told(
    said: Sequence[MessageRecord],
    known: Mapping[UUID, list[Label]],
    keep: Filter,
    described: Mapping[str, Row],
) -> ChatConversation | LeftOut:
    chat = kept_chat(said)
    weak: frozenset[int] = frozenset[int]()
    if keep.min_score is not None:
        weak = _weak(chat, _scores(said, known), keep.min_score)
        if keep.strict_trajectory and weak:
            chat, weak = chat[: min(weak)], frozenset[int]()
    chat = _up_to_the_last_answer(chat)
    if all(at in weak for at, one in enumerate(chat) if one["role"] == "assistant"):
        return NO_ANSWER if keep.min_score is None else NOT_GOOD_ENOUGH
    return ChatConversation(chat, tools_in(chat, described), weak)


def _scores(said: Sequence[MessageRecord], known: Mapping[UUID, list[Label]]) -> list[float | None]:
    """Return the score of what was said unasked, then of the answer to each instruction."""
    found: list[list[Label]] = [[]]
    for record in said:
        content = Message.kept(record.id, record.created, record.body).content
        if content.from_user and asked_message(as_told(content)):
            found.append([])
        else:
            found[-1] += known.get(record.id, ())
    return [average(labels) for labels in found]


def _weak(chat: Chat, scores: list[float | None], enough: float) -> frozenset[int]:
    """The answers that fall short: where they stand among the messages.

    Unlike an answer, what was said unasked, such as a greeting, need not have a score.
    """
    unasked = -1
    asked = [at for at, message in enumerate(chat) if message["role"] == "user"]
    spans = list(pairwise([unasked, *asked, len(chat)]))
    return frozenset(
        at
        for (begin, end), score in zip_longest(spans, scores[: len(spans)])
        if (begin != unasked if score is None else score < enough)
        for at in range(begin + 1, end)
    )


def _up_to_the_last_answer(chat: Chat) -> Chat:
    end = len(chat)
    while end and chat[end - 1]["role"] != "assistant":
        end -= 1
    return chat if end == len(chat) else chat[:end]


def described_tools(services: ServiceRegistry) -> dict[str, Row]:
    """The registered tools as a chat API describes them."""
    found: dict[str, Row] = {}
    for name in services.list_names():
        service = services.get(name)
        if isinstance(service, Tool):
            schema = service.schema
            described = {"name": name, "description": schema.description}
            found[name] = {
                "type": "function",
                "function": {**described, "parameters": schema.parameters},
            }
    return found

"""Conversations for fine-tuning, one per leaf branch.

Each branch that no other one extends is one conversation, up to its last answer. With a minimum
score, answers below it are marked, so that a format can include them as context without training
on them; a strict filter ends the conversation before the first of them.

Conversations are built from stored rows without opening the session, so a message is in memory only
as long as its conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from uuid import UUID

from sennit.learning.examples import Filter, StoredBranch, is_predictor_turn, leaves
from sennit.learning.export.formats import Chat, ChatConversation, LeftOut, Row, called_tools
from sennit.learning.export.stored_rows import chat_from_rows
from sennit.learning.labels import Label, average_score, group_labels
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.messages.openai_chat import accepted_chat
from sennit.messages.prompt.tool_chat import history_content, request_message
from sennit.services.registry import ServiceRegistry
from sennit.services.tools.tool import Tool
from sennit.sessions.records import merge_segments
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import LabelRecord, MessageRecord, Snapshot

NO_ANSWER = LeftOut("has no answer")
NOT_GOOD_ENOUGH = LeftOut("has no answer that is scored high enough")


def conversations(
    snapshot: Snapshot,
    label_records: Iterable[LabelRecord],
    keep: Filter,
    tools: Mapping[str, Row],
    inline: Callable[[Chat], Chat],
) -> Iterator[ChatConversation | LeftOut]:
    """Yield the conversations of a session, or the reason why one is left out."""
    labels = group_labels(label_records, by=keep.by)
    records = {record.id.int: record for record in snapshot.messages}
    segments: dict[UUID, Segment] = {}
    merge_segments(snapshot.segments, segments)
    branches = [
        StoredBranch(segments[record.segment], record.system) for record in snapshot.branches
    ]
    for branch in leaves(branches):
        ids = branch.tail.between(0, branch.tail.total)
        if ids and is_predictor_turn(loads(records[ids[-1].int].body).get("metadata", {})):
            continue
        if branch.system is not None:
            ids.insert(0, branch.system)
        rows = [records[uid.int] for uid in ids]
        chat = accepted_chat(inline(chat_from_rows(rows)))
        yield _build_conversation(chat, rows, labels, keep, tools)


def _build_conversation(
    chat: Chat,
    records: Sequence[MessageRecord],
    labels: Mapping[UUID, list[Label]],
    keep: Filter,
    tools: Mapping[str, Row],
) -> ChatConversation | LeftOut:
    low_scored: frozenset[int] = frozenset[int]()
    if keep.min_score is not None:
        low_scored = _low_scored(chat, _scores(records, labels), keep.min_score)
        if keep.strict_trajectory and low_scored:
            chat, low_scored = chat[: min(low_scored)], frozenset[int]()
    chat = _until_last_answer(chat)
    if all(
        index in low_scored for index, message in enumerate(chat) if message["role"] == "assistant"
    ):
        return NO_ANSWER if keep.min_score is None else NOT_GOOD_ENOUGH
    return ChatConversation(chat, called_tools(chat, tools), low_scored)


def _scores(
    records: Sequence[MessageRecord], labels: Mapping[UUID, list[Label]]
) -> list[float | None]:
    """Return the score of messages before the first instruction, then of each answer."""
    answer_labels: list[list[Label]] = [[]]
    for record in records:
        content = Message.from_stored(record.id, record.created, record.body).content
        if content.from_user and request_message(history_content(content)):
            answer_labels.append([])
        else:
            answer_labels[-1] += labels.get(record.id, ())
    return [average_score(group) for group in answer_labels]


def _low_scored(chat: Chat, scores: list[float | None], min_score: float) -> frozenset[int]:
    """Return the indexes of messages in answers that have a low score or none.

    Messages before the first instruction, such as a greeting, need no score.
    """
    before_first = -1
    instructions = [index for index, message in enumerate(chat) if message["role"] == "user"]
    spans = list(pairwise([before_first, *instructions, len(chat)]))
    return frozenset(
        index
        for (begin, end), score in zip_longest(spans, scores[: len(spans)])
        if (begin != before_first if score is None else score < min_score)
        for index in range(begin + 1, end)
    )


def _until_last_answer(chat: Chat) -> Chat:
    end = len(chat)
    while end and chat[end - 1]["role"] != "assistant":
        end -= 1
    return chat if end == len(chat) else chat[:end]


def tool_definitions(services: ServiceRegistry) -> dict[str, Row]:
    """Return the chat API definitions of the registered tools, by name."""
    definitions: dict[str, Row] = {}
    for name in services.list_names():
        service = services.get(name)
        if isinstance(service, Tool):
            schema = service.schema
            function = {"name": name, "description": schema.description}
            definitions[name] = {
                "type": "function",
                "function": {**function, "parameters": schema.parameters},
            }
    return definitions

"""Whole branches as conversations to learn from.

Each branch that no other goes on from is told once, from its beginning to its last answer. Where a
filter asks for a score, answers that fall short are marked, so that a format can keep them as
context without teaching them; a strict one ends the conversation before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from sennit.learning.examples import Filter, branches_of
from sennit.learning.formats import Chat, Conversation, Row, tools_in
from sennit.learning.labels import Label, average, labels_of
from sennit.messages.content import InstructionContent
from sennit.messages.native import model_messages
from sennit.messages.prepare import as_history
from sennit.services.registry import ServiceRegistry
from sennit.services.tools import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.session import SessionCore


def conversations(session: SessionCore, keep: Filter) -> Iterator[Conversation | None]:
    """Every conversation of a session; None for one of which nothing is left."""
    known = labels_of(session, by=keep.by) if keep.min_score is not None else {}
    for branch in branches_of(session, None):
        yield _told(branch, known, keep)


def _told(branch: Branch, known: dict[UUID, list[Label]], keep: Filter) -> Conversation | None:
    chat = model_messages(branch.session.messages, branch)
    weak: frozenset[int] = frozenset[int]()
    if keep.min_score is not None:
        weak = _weak(chat, _scores(branch, known), keep.min_score)
        if keep.strict_trajectory and weak:
            chat, weak = chat[: min(weak)], frozenset[int]()
    chat = _up_to_the_last_answer(chat)
    if not any(at not in weak for at, one in enumerate(chat) if one["role"] == "assistant"):
        return None
    return Conversation(chat, tools_in(chat, _described(branch.session.services)), weak)


def _scores(branch: Branch, known: dict[UUID, list[Label]]) -> list[float | None]:
    """What the answer to each instruction was found to be worth."""
    found: list[list[Label]] = []
    for message in branch.messages:
        content = message.content
        if isinstance(content, InstructionContent) and not as_history(content).empty:
            found.append([])
        elif found:
            found[-1] += known.get(message.id, ())
    return [average(labels) for labels in found]


def _weak(chat: Chat, scores: list[float | None], enough: float) -> frozenset[int]:
    """The answers that fall short: where they stand among the messages."""
    asked = [at for at, message in enumerate(chat) if message["role"] == "user"]
    spans = pairwise([*asked, len(chat)])
    return frozenset(
        at
        for (begin, end), score in zip(spans, scores, strict=False)
        if score is None or score < enough
        for at in range(begin + 1, end)
    )


def _up_to_the_last_answer(chat: Chat) -> Chat:
    end = len(chat)
    while end and chat[end - 1]["role"] not in ("assistant", "tool"):
        end -= 1
    return chat[:end]


def _described(services: ServiceRegistry) -> dict[str, Row]:
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

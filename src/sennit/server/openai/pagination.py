"""Pagination of items, as OpenAI's API has it.

Items are made of messages, and the id of an item holds that of its message: so a page is made from
where it begins, and no item that is not shown is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal
from uuid import UUID

import msgspec

from sennit.messages.message import Message
from sennit.server.http.endpoint import RequestModel, within
from sennit.server.openai.chat_schemas import bad
from sennit.server.openai.item_schemas import items_of


class IncludeQuery(RequestModel):
    """The `include` parameter, which adds nothing here."""

    include: list[str] = msgspec.field(name="include[]", default_factory=list[str])


class ItemsQuery(IncludeQuery):
    """A page of items."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def page(messages: Sequence[Message], query: ItemsQuery, max_bytes: int) -> dict[str, Any]:
    """A page of items, of at most so many bytes; raises HTTPError 400 for one that cannot be."""
    if not 1 <= query.limit <= 100:
        raise bad("limit", f"'limit' is a number from 1 to 100, got {query.limit}.")
    items = list(islice(_wanted(messages, query), query.limit + 1))
    fitting = list(within(items[: query.limit], max_bytes))
    return listed(fitting, has_more=len(items) > len(fitting))


def listed(items: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Items as a list, and whether there are more of them."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def message_of(item: str) -> UUID | None:
    """The message that an item belongs to, by its id; None for what can be none."""
    try:
        return UUID(hex=item.rpartition("_")[2])
    except ValueError:
        return None


def _wanted(messages: Sequence[Message], query: ItemsQuery) -> Iterator[dict[str, Any]]:
    """The items in the order that is wanted, past the one that is named."""
    step = 1 if query.order == "asc" else -1
    if query.after is None:
        return _items(messages, step)
    uid = message_of(query.after)
    at = next((at for at, message in enumerate(messages) if message.id == uid), None)
    if at is not None:
        items = _items(messages[at:] if step > 0 else messages[: at + 1], step)
        if any(item["id"] == query.after for item in items):  # which are taken up to there
            return items
    raise bad("after", f"There is no item {query.after[:100]!r} here.")


def _items(messages: Sequence[Message], step: int) -> Iterator[dict[str, Any]]:
    return (item for message in messages[::step] for item in list(items_of(message))[::step])

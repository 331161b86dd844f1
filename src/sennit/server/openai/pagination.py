"""Cursor pagination of items, as in OpenAI's API.

The id of an item contains the id of its message, so a page starts at the message of its cursor, and
only the items of the page are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from sennit.messages.message import Message
from sennit.server.http.endpoint import RequestModel, fitting
from sennit.server.http.errors import bad_param
from sennit.server.openai.items import items_of
from sennit.sessions.blobs import inline_blobs

if TYPE_CHECKING:
    from sennit.api.session import Session


class IncludeQuery(RequestModel):
    """The `include` parameter, which is accepted without effect."""

    include: list[str] = msgspec.field(name="include[]", default_factory=list[str])


class ItemsQuery(IncludeQuery):
    """A page of items."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def page(
    session: Session, messages: Sequence[Message], query: ItemsQuery, max_bytes: int
) -> dict[str, Any]:
    """Return a page of at most `max_bytes`; raise HTTPError 400 for an invalid limit or cursor."""
    if not 1 <= query.limit <= 100:
        raise bad_param("limit", f"'limit' must be from 1 to 100, got {query.limit}.")
    items = list(islice(_requested_items(session, messages, query), query.limit + 1))
    shown = list(fitting(items[: query.limit], max_bytes))
    return item_list(shown, has_more=len(items) > len(shown))


def item_list(items: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Return items as a list object."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def message_id(item: str) -> UUID | None:
    """Return the id of the message of an item; None if the item id is invalid."""
    try:
        return UUID(hex=item.rpartition("_")[2])
    except ValueError:
        return None


def _requested_items(
    session: Session, messages: Sequence[Message], query: ItemsQuery
) -> Iterator[dict[str, Any]]:
    """Return the items after the cursor, in the requested order; raise HTTPError 400 if missing."""
    step = 1 if query.order == "asc" else -1
    if query.after is None:
        return _items(session, messages, step)
    uid = message_id(query.after)
    at = next((at for at, message in enumerate(messages) if message.id == uid), None)
    if at is not None:
        items = _items(session, messages[at:] if step > 0 else messages[: at + 1], step)
        if any(item["id"] == query.after for item in items):  # consumes the items up to the cursor
            return items
    raise bad_param("after", f"There is no item {query.after[:100]!r} in this list.")


def _items(session: Session, messages: Sequence[Message], step: int) -> Iterator[dict[str, Any]]:
    inlined = inline_blobs(session, messages[::step])
    return (item for message in inlined for item in list(items_of(message))[::step])

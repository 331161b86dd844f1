"""References to items of earlier answers, which clients send instead of the items.

An id names a message, and the start of the id which of its items is meant. The session is the one
that the request names or continues, else one whose conversation begins with the same first turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.messages.content import ActionRequestContent
from sennit.messages.message import Message
from sennit.server.http.caches import BranchCache
from sennit.server.http.callers import Caller
from sennit.server.http.errors import bad_param
from sennit.server.openai.derived_sessions import DerivedSessions
from sennit.server.openai.history import turns_of
from sennit.server.openai.items import items_of, parse_items
from sennit.server.openai.locate import NamedSession

_KIND = "item_reference"


def has_references(items: str | Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an input refers to items instead of holding them."""
    return not isinstance(items, str) and any(item.get("type") == _KIND for item in items)


def resolve_references(
    caller: Caller,
    cache: BranchCache,
    named: NamedSession | None,
    items: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Return the input with the items in place of references; raise HTTPError 400 for an unknown.

    Reads the store.
    """
    sessions = list(_sessions(caller, cache, named, items))
    return [
        _item(sessions, item.get("id"), at) if item.get("type") == _KIND else item
        for at, item in enumerate(items)
    ]


def _sessions(
    caller: Caller,
    cache: BranchCache,
    named: NamedSession | None,
    items: Sequence[Mapping[str, Any]],
) -> Iterator[Session]:
    """Yield the sessions that may have the items."""
    if named is not None:
        try:
            yield caller.hold(caller.client.session(named.session, create=False))
        except NotFoundError:
            return
        return
    first = next(at for at, item in enumerate(items) if item.get("type") == _KIND)
    if turns := turns_of(parse_items(items[:first], "input").messages):
        yield from DerivedSessions(caller, cache, turns[0].digest).sessions()


def _item(sessions: Iterable[Session], name: Any, at: int) -> Mapping[str, Any]:
    """Return the item with this id; raise HTTPError 400 if no session has it."""
    uid = _message_id(name)
    for session in sessions:
        if uid is not None and uid in session.messages:
            message = session.messages.get(uid)
            # Only the id says that the tool was a custom one.
            for item in items_of(message, _function(message) if name.startswith("ctc_") else ()):
                if item["id"] == name:
                    return item
    message = f"Item with id {str(name)[:100]!r} not found; send the item itself."
    raise bad_param(f"input[{at}]", message, "not_found")


def _function(message: Message) -> tuple[str, ...]:
    content = message.content
    return (content.function or "",) if isinstance(content, ActionRequestContent) else ()


def _message_id(name: Any) -> UUID | None:
    if not isinstance(name, str):
        return None
    try:
        return UUID(hex=name.partition("_")[2])
    except ValueError:
        return None

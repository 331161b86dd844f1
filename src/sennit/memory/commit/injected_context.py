"""Text injected into prompts, marked so that it is not extracted as the user's words.

Usage records name what was recalled: a file by its URI, a message by its id, an archive by its
abstract. The texts are read from the store; erased ones are missing. A file may have changed
between the prompt and the commit, so all its versions since its first use count. Applications paste
such lines into user messages, so a recalled message also counts with its date and speaker in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError
from sennit.memory.commit.usage import RECALLED
from sennit.memory.history.evidence import quote_messages
from sennit.memory.history.history import EvidenceSource
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import loads
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.stores.records.commits import UseRecord

_ABSTRACT = re.compile(r"viking://session/([^/]+)/history/archive_(\d{1,9})/\.abstract\.md")


def mark_injected(
    scope: MemoryScope, messages: Sequence[Message], uses: Iterable[UseRecord]
) -> list[Message]:
    """Return messages with the injected texts among them, marked as injected.

    A text recalled for a message comes after it, because the message was written first.
    """
    entries = {message.id for message in messages}
    unplaced: list[UseRecord] = []
    by_message: dict[UUID, list[UseRecord]] = {}
    for use in uses:
        is_recalled = use.head in entries and loads(use.body).get(RECALLED)
        (by_message.setdefault(use.head, []) if is_recalled and use.head else unplaced).append(use)
    result = [*map(_injected_message, _injected_texts(scope, messages, unplaced))]
    seen = {use.body for use in unplaced}
    for message in messages:
        new = [use for use in by_message.get(message.id, ()) if use.body not in seen]
        seen.update(use.body for use in new)
        result += [message, *map(_injected_message, _injected_texts(scope, (), new))]
    return result


def _injected_message(text: str) -> Message:
    return Message(InstructionContent(instruction=text), metadata={"injected": True})


def _injected_texts(
    scope: MemoryScope, messages: Iterable[Message], uses: Iterable[UseRecord]
) -> list[str]:
    """Return the texts of contexts that were sent with messages or recorded as used."""
    parts = [
        (part, clock.from_datetime(message.created_at))
        for message in messages
        for part in contexts_of(message)
    ]
    bodies: list[dict[str, Any]] = []
    uris = [(part.uri, created) for part, created in parts]
    for use in uses:
        bodies.append(loads(use.body))
        uris.append((bodies[-1]["uri"], use.created))
    first_use: dict[str, int] = {}
    for uri, created in uris:
        first_use[uri] = min(created, first_use.get(uri, created))
    files = [text for uri, since in first_use.items() for text in _texts_at(scope, uri, since)]
    return [
        *(part.abstract for part, _ in parts if part.abstract),
        *files,
        *_recalled_texts(scope, bodies),
    ]


def _texts_at(scope: MemoryScope, uri: str, since: int) -> Iterator[str]:
    """Yield the texts of a file since a time, or the abstract of an archive."""
    file = scope.file_at(uri)
    if file is not None:
        versions = [file.latest]
        if file.latest.written > since:
            versions = scope.store.file_versions(file.owner, file.id)
        earlier = sum(version.written <= since for version in versions)
        for version in versions[max(earlier - 1, 0) :]:
            yield version.body.decode(errors="replace")
    elif match := _ABSTRACT.fullmatch(uri):
        yield from _archive_abstract(scope, match[1], int(match[2]))


def _archive_abstract(scope: MemoryScope, session: str, number: int) -> Iterator[str]:
    try:
        commits = scope.store.commits_numbered(scope.user, scope.session_id(session), [number])
    except NotFoundError:
        return  # the session is gone
    for commit in commits:
        yield str(loads(commit.body).get("abstract", ""))


def _recalled_texts(scope: MemoryScope, bodies: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield recalled messages, bare and as prompts show them."""
    wanted = [
        EvidenceSource(UUID(session), UUID(message))
        for body in bodies
        if (session := body.get("session")) and (message := body.get("message"))
    ]
    for quoted in quote_messages(scope, wanted).values():
        day = f"[{quoted.said_at:%Y-%m-%d}]"
        yield from (quoted.text, f"{day} {quoted.text}")
        if quoted.speaker:
            yield f"{day} {quoted.speaker}: {quoted.text}"

"""Text that was injected into prompts, so that it is not extracted as the user's words.

Uses name what was recalled: a file by its address, a message by its id, an archive by its abstract.
Each is read where it stands; what was erased since says nothing. A file may have changed between
the prompt and the commit, so all is known that it has said since it was first used. Programs paste
such lines into what users say, so a message is known with the day and the speaker before it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError
from sennit.memory.commit.usage import RECALLED
from sennit.memory.history.evidence import said_in
from sennit.memory.history.history import EvidenceSource
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import loads
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.stores.records.commits import UseRecord

_ABSTRACT = re.compile(r"viking://session/([^/]+)/history/archive_(\d{1,9})/\.abstract\.md")


def with_injected(
    realm: MemoryScope, messages: Sequence[Message], uses: Iterable[UseRecord]
) -> list[Message]:
    """Return messages, and among them, marked as such, what was injected into prompts.

    What was recalled for a message stands behind it: nobody had it when the message was written.
    """
    entries = {message.id for message in messages}
    anywhere: list[UseRecord] = []
    behind: dict[UUID, list[UseRecord]] = {}
    for use in uses:
        here = use.head in entries and loads(use.body).get(RECALLED)
        (behind.setdefault(use.head, []) if here and use.head else anywhere).append(use)
    found = [*map(_marked, _injected(realm, messages, anywhere))]
    known = {use.body for use in anywhere}
    for message in messages:
        new = [use for use in behind.get(message.id, ()) if use.body not in known]
        known.update(use.body for use in new)
        found += [message, *map(_marked, _injected(realm, (), new))]
    return found


def _marked(text: str) -> Message:
    return Message(InstructionContent(instruction=text), metadata={"injected": True})


def _injected(
    realm: MemoryScope, messages: Iterable[Message], uses: Iterable[UseRecord]
) -> list[str]:
    """Return the texts of contexts that were sent with messages or recorded as used."""
    parts = [
        (part, clock.from_datetime(message.created_at))
        for message in messages
        for part in contexts_of(message)
    ]
    bodies: list[dict[str, Any]] = []
    named = [(part.uri, created) for part, created in parts]
    for use in uses:
        bodies.append(loads(use.body))
        named.append((bodies[-1]["uri"], use.created))
    first: dict[str, int] = {}
    for uri, created in named:
        first[uri] = min(created, first.get(uri, created))
    files = [text for uri, since in first.items() for text in _at(realm, uri, since)]
    return [*(part.abstract for part, _ in parts if part.abstract), *files, *_said(realm, bodies)]


def _at(realm: MemoryScope, said: str, since: int) -> Iterator[str]:
    """Yield the texts of a file since a time, or the abstract of an archive."""
    file = realm.named(said)
    if file is not None:
        versions = [file.latest]
        if file.latest.written > since:
            versions = realm.store.file_versions(file.owner, file.id)
        earlier = sum(one.written <= since for one in versions)
        for version in versions[max(earlier - 1, 0) :]:
            yield version.body.decode(errors="replace")
    elif found := _ABSTRACT.fullmatch(said):
        yield from _abstract(realm, found[1], int(found[2]))


def _abstract(realm: MemoryScope, session: str, number: int) -> Iterator[str]:
    try:
        commits = realm.store.commits_numbered(realm.user, realm.session_id(session), [number])
    except NotFoundError:
        return  # the session is gone
    for commit in commits:
        yield str(loads(commit.body).get("abstract", ""))


def _said(realm: MemoryScope, bodies: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield recalled messages, bare and as prompts show them."""
    wanted = [
        EvidenceSource(UUID(session), UUID(message))
        for body in bodies
        if (session := body.get("session")) and (message := body.get("message"))
    ]
    for one in said_in(realm, wanted).values():
        day = f"[{one.said_at:%Y-%m-%d}]"
        yield from (one.text, f"{day} {one.text}")
        if one.speaker:
            yield f"{day} {one.speaker}: {one.text}"

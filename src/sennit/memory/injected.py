"""What was put into prompts, as text: so that nothing of it is taken for what the user has said.

Uses name what was recalled: a file by its address, a message by its id, an archive by its abstract.
Each is read where it stands; what was erased since says nothing. Programs paste such lines into
what users say, so a message is known with the day and the speaker that stand before it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.memory.evidence import said_in
from sennit.memory.history import Source
from sennit.memory.realm import Realm
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.stores.commits import UseRecord

_ABSTRACT = re.compile(r"viking://session/([^/]+)/history/archive_(\d{1,9})/\.abstract\.md")


def injected_texts(
    realm: Realm, messages: Iterable[Message], uses: Iterable[UseRecord]
) -> list[str]:
    """What the contexts say that came with messages or were recorded as used."""
    parts = [part for message in messages for part in contexts_of(message)]
    bodies: list[dict[str, Any]] = [loads(use.body) for use in uses]
    uris = [part.uri for part in parts] + [body["uri"] for body in bodies]
    files = [text for uri in dict.fromkeys(uris) for text in _at(realm, uri)]
    return [*(part.abstract for part in parts if part.abstract), *files, *_said(realm, bodies)]


def _at(realm: Realm, said: str) -> Iterator[str]:
    """What a file or the abstract of an archive says."""
    file = realm.named(said)
    if file is not None:
        yield file.latest.body.decode(errors="replace")
    elif found := _ABSTRACT.fullmatch(said):
        yield from _abstract(realm, found[1], int(found[2]))


def _abstract(realm: Realm, session: str, number: int) -> Iterator[str]:
    try:
        commits = realm.store.commits_numbered(realm.user, realm.session_id(session), [number])
    except NotFoundError:
        return  # the session is gone
    for commit in commits:
        yield str(loads(commit.body).get("abstract", ""))


def _said(realm: Realm, bodies: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What messages say that were recalled, bare and as prompts show them."""
    wanted = [
        Source(UUID(session), UUID(message))
        for body in bodies
        if (session := body.get("session")) and (message := body.get("message"))
    ]
    for one in said_in(realm, wanted).values():
        day = f"[{one.said_at:%Y-%m-%d}]"
        yield from (one.text, f"{day} {one.text}")
        if one.speaker:
            yield f"{day} {one.speaker}: {one.text}"

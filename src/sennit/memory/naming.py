"""References to memory files in usage records, run events and commits.

Names are made of what files say, and the reasons of a commit quote it. So they go when a file goes,
and change when it is moved: who forgets it later finds every note by the name it has then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.memory.commit import profile
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import dumps, loads
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import PutCommit
from sennit.stores.records.files import FileRecord, VersionRecord


def unname(realm: MemoryScope, touched: Iterable[FileRecord], *, leaving: bool = False) -> None:
    """Take what the user's sessions say of files that are gone, or of what they no longer say.

    With `leaving` all of them count as gone. When a file is gone, nobody knows any more by which
    address to find the notes on it. So they go first: who is cut off then can remove it again.
    """
    mine: dict[str, set[str]] = {}
    for file in touched:
        agent = file.owner.name if file.owner.kind == "agent" else realm.agent_name
        if realm.owns(file.owner):
            mine.setdefault(agent, set()).add(str(realm.uri(file)))
    for agent, uris in mine.items():
        _unname(realm.of_agent(agent), sorted(uris), leaving=leaving)


def _unname(realm: MemoryScope, mine: Sequence[str], *, leaving: bool) -> None:
    def stays(uri: str) -> bool:
        return not leaving and is_there(realm, uri)

    _note_anew(realm, mine, partial(_without, stays, mine))
    if gone := [uri for uri in mine if not stays(uri)]:
        realm.store.unname(realm.user, gone)


def rename(realm: MemoryScope, moved: Mapping[str, str]) -> None:
    """Give files their new addresses in what the user's sessions say of them."""
    _note_anew(realm, list(moved), partial(_renamed, moved))
    realm.store.rename(realm.user, moved)


def _renamed(moved: Mapping[str, str], noted: bytes) -> bytes:
    """The body of a commit with new addresses, those of the facts in a file included."""
    for old, new in moved.items():
        for end in (b'"', b"#"):
            noted = noted.replace(dumps(old)[:-1] + end, dumps(new)[:-1] + end)
    return noted


def _note_anew(realm: MemoryScope, uris: Sequence[str], change: Callable[[bytes], bytes]) -> None:
    """Change the bodies of the commits that name one of these addresses."""
    for session, commit in realm.store.commits_naming(realm.user, uris):
        with suppress(NotFoundError):  # its session was deleted meanwhile, and it with it
            retry_on_conflict(partial(_put, realm, session, commit, change), f"commit {commit}")


def _put(realm: MemoryScope, session: UUID, commit: UUID, change: Callable[[bytes], bytes]) -> None:
    found = realm.store.find_commit(realm.user, commit)
    if found is None:
        return
    record = found[1]
    body = change(record.body)
    if body != record.body:
        put = PutCommit(commit, record.state, body, record.version)
        realm.store.write(realm.user, session, [put])


def _without(stays: Callable[[str], bool], touched: Sequence[str], noted: bytes) -> bytes:
    """The body of a commit that names nothing gone, and quotes nothing of what was touched."""
    body: dict[str, Any] = loads(noted)
    body |= {
        "diff": [
            {**one, "reason": ""} if _file_of(one["uri"]) in touched else one
            for one in body.get("diff", ())
            if _file_of(one["uri"]) not in touched or stays(one["uri"])
        ],
        "used": {
            uri: times
            for uri, times in body.get("used", {}).items()
            if uri not in touched or stays(uri)
        },
    }
    decisions: list[dict[str, Any]] = body.get("digest", {}).get("decisions", [])
    if any(_file_of(one["target"] or "") in touched for one in decisions):
        del body["digest"]  # it is thought about anew, in view of what is left
    return dumps(body)


def is_there(realm: MemoryScope, uri: str) -> bool:
    """Return whether a file, or the fact of the profile that a fragment names, is still there."""
    file = realm.named(_file_of(uri))
    fact = uri.partition("#")[2]
    return file is not None and (not fact or has_fact(file.latest, fact))


def _file_of(uri: str) -> str:
    """The address of the file that something was written to; a fact is a part of one."""
    return uri.partition("#")[0]


def has_fact(version: VersionRecord, fact: str) -> bool:
    """Return whether a version of the profile has a line."""
    return any(one.id == fact for one in profile.facts_in(version.info))

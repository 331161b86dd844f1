"""Removal of the memories that rest on a removed message.

It goes the way of a forgotten session: what rests on it is erased, what was said elsewhere too
stays on that evidence alone. The summary of its archive is written anew from what is left, and
whoever thinks about the archive at this moment has to look again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar
from uuid import UUID

from sennit.memory.extraction import summarize
from sennit.memory.extraction.pipeline import digest_by_rules
from sennit.memory.history.forget import forget_derived
from sennit.memory.naming import unname
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import dumps, loads
from sennit.sessions.repository import message_from
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import CommitRecord, PutCommit
from sennit.stores.records.files import FileRecord

_T = TypeVar("_T")

_QUOTING = ("warnings", "reasons")
"""What went wrong, which may quote a message in the words of a provider."""
_GONE = "It is not told any more, as a message was removed."


def remove(
    realm: MemoryScope,
    session: UUID,
    messages: Sequence[UUID],
    erase: Callable[[], _T],
    *,
    forget: bool,
) -> _T:
    """Erase messages of the user's by `erase`, and with `forget` what was learnt from them."""
    gone = set(messages)
    covering = [one.id for one in _commits(realm, session) if not gone.isdisjoint(one.entries)]
    learnt = _forget(realm, session, messages) if forget else []
    for commit in covering:  # first: nobody could tell later which commits had covered them
        _tell_anew(realm, session, commit, gone)
    erased = erase()
    for commit in _commits(realm, session):
        if commit.state == "open" or commit.id in covering:
            _tell_anew(realm, session, commit.id, gone)
    learnt += _forget(realm, session, messages) if forget else []  # a commit may have ended since
    unname(realm, learnt)
    realm.store.scrub()
    return erased


def _forget(realm: MemoryScope, session: UUID, messages: Sequence[UUID]) -> list[FileRecord]:
    return [file for one in messages for file in forget_derived(realm, session, one)]


def _commits(realm: MemoryScope, session: UUID) -> Sequence[CommitRecord]:
    return realm.store.commits(realm.user, session).commits


def _tell_anew(realm: MemoryScope, session: UUID, commit: UUID, gone: Container[UUID]) -> None:
    """Take what messages said out of what a commit has noted."""

    def tell() -> None:
        found = realm.store.find_commit(realm.user, commit)
        if found is None:
            return
        record = found[1]
        body: dict[str, Any] = loads(record.body)
        body.pop("digest", None)  # what a model said of it
        told: dict[str, Any] = body.get("result", {})
        told |= {name: [_GONE] for name in _QUOTING if told.get(name)}
        if "overview" in body:
            body |= _summary(realm, session, record, gone)
        change = PutCommit(commit, record.state, dumps(body), record.version)
        realm.store.write(realm.user, session, [change])

    retry_on_conflict(tell, f"commit {commit}")


def _summary(
    realm: MemoryScope, session: UUID, commit: CommitRecord, gone: Container[UUID]
) -> dict[str, str]:
    entries = [one for one in commit.entries if one not in gone]
    left = map(message_from, realm.store.messages(realm.user, session, entries))
    summary = digest_by_rules(left, lambda _: ()).summary
    return {"abstract": summarize.abstract(summary), "overview": summarize.markdown(summary)}

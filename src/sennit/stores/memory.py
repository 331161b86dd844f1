"""The store in memory: the twin of the real ones, for tests and for what need not last.

It keeps every promise of a Store except that of surviving the process. One lock makes each call one
step; what a session is made of and takes is in `memory_session`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar
from uuid import UUID

from sennit.errors import SennitError, StoreError
from sennit.stores import words
from sennit.stores.base import no_session
from sennit.stores.memory_session import MemorySession, copied
from sennit.stores.records import (
    Change,
    EventRecord,
    Found,
    Head,
    Lease,
    Owner,
    RunRecord,
    SessionRecord,
    Snapshot,
    Whole,
    Write,
)

_T = TypeVar("_T")

_WORD = re.compile(r"\w+")
_STEM = 4


class MemoryStore:
    """A Store that keeps everything in this process and forgets it with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._owners: dict[Owner, dict[UUID, MemorySession]] = {}
        self._closed = False

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        with self._step():
            sessions = self._owners.setdefault(owner, {})
            if session.id not in sessions:
                sessions[session.id] = MemorySession(copied(session))
            return copied(sessions[session.id].session)

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        with self._step():
            kept = self._of(owner).get(session)
            return None if kept is None else copied(kept.session)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        with self._step():
            found = [
                kept.session
                for kept in self._of(owner).values()
                if _contains(kept.session.key, contains)
                and (before is None or _when(kept.session) < before)
            ]
            found.sort(key=_when, reverse=True)
            return [copied(record) for record in found[: max(0, limit)]]

    def delete_session(self, owner: Owner, session: UUID) -> bool:
        with self._step():
            return self._of(owner).pop(session, None) is not None

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        with self._step():
            return self._kept(owner, session).all()

    def with_everything(self, work: Callable[[Iterable[Whole]], _T]) -> _T:
        """Hand `work` all sessions of all owners, as they are at this moment."""
        with self._step():
            found = [
                Whole(owner, kept.all(), kept.log.journals())
                for owner, sessions in self._owners.items()
                for kept in sessions.values()
            ]
        return work(found)

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        with self._step():
            kept = self._kept(owner, session)
            segments = [
                segment.record(known.get(segment.id, 0))
                for segment in kept.needed()
                if segment.id not in known or len(segment.entries) > known[segment.id]
            ]
            branches = kept.listed()
            return Snapshot(
                copied(kept.session), kept.messages_of(segments, branches), segments, branches
            )

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[Head]:
        with self._step():
            return self._kept(owner, session).make(changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        with self._step():
            return [self._tried(write) for write in writes]

    def search(self, owner: Owner, text: str, *, session: UUID | None, limit: int) -> list[Found]:
        wanted = list(dict.fromkeys(words.asked(text)))
        with self._step():
            found = [
                (_score(said, wanted), message.created, message.id, uid, said)
                for uid, kept in self._of(owner).items()
                if session is None or uid == session
                for message in kept.messages.values()
                for said in [words.said(message.body)]
            ]
        best = sorted((hit for hit in found if hit[0]), key=lambda hit: hit[:3], reverse=True)
        return [
            Found(uid, message, words.snippet(said, wanted), float(score))
            for score, _, message, uid, said in best[: max(0, limit)]
        ]

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        with self._step():
            return self._kept(owner, session).acquire(branch, holder, ttl)

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        with self._step():
            return self._kept(owner, session).log.renew(lease, ttl)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        with self._step():
            kept = self._of(owner).get(session)
            if kept is not None:
                kept.log.release(lease)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        with self._step():
            return self._kept(owner, session).log.of_branch(branch)

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        with self._step():
            return self._kept(owner, session).log.last_of(branch)

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        with self._step():
            return self._kept(owner, session).log.after(branch, after)[: max(0, limit)]

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        with self._step():
            return self._kept(owner, session).log.last_seq(branch)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._owners.clear()

    @contextmanager
    def _step(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise StoreError("This store is closed; open another one.")
            yield

    def _of(self, owner: Owner) -> dict[UUID, MemorySession]:
        return self._owners.get(owner, {})

    def _kept(self, owner: Owner, session: UUID) -> MemorySession:
        kept = self._of(owner).get(session)
        if kept is None:
            raise no_session(session)
        return kept

    def _tried(self, write: Write) -> list[Head] | SennitError:
        try:
            return self.write(write.owner, write.session, write.changes)
        except SennitError as error:
            return error


def _when(session: SessionRecord) -> tuple[int, UUID]:
    return session.updated, session.id


def _contains(key: str | None, part: str | None) -> bool:
    return part is None or (key is not None and part.lower() in key.lower())


def _score(said: str, wanted: list[str]) -> int:
    """How many of the wanted words are said."""
    spoken = set(_WORD.findall(said.lower()))
    return sum(word in spoken or any(_is_stem(word, other) for other in spoken) for word in wanted)


def _is_stem(one: str, other: str) -> bool:
    """Whether the shorter word begins the longer one, and is long enough to mean something."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short)

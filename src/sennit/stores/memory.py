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
from sennit.stores.commits import CommitRecord, CommitsRecord
from sennit.stores.files import (
    Derived,
    EndCommit,
    Evidence,
    FileChange,
    FileRecord,
    KeptFile,
    VersionRecord,
)
from sennit.stores.memory_files import FileLog
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
        self._files = FileLog()
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

    def with_everything(self, work: Callable[[Iterable[Whole], Iterable[KeptFile]], _T]) -> _T:
        """Hand `work` all sessions and all files of all owners, as they are at this moment."""
        with self._step():
            found = [
                Whole(owner, kept.all(), kept.log.journals(), kept.commits.all())
                for owner, sessions in self._owners.items()
                for kept in sessions.values()
            ]
            files = [kept for owner in self._files.owners() for kept in self._files.of(owner)]
        return work(found, files)

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

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        with self._step():
            if end is None:
                self._files = self._files.after(changes)
                return
            kept = self._kept(end.owner, end.session)
            ended = kept.commits.after(end.change)
            uid = end.change.commit
            if ended.commits[uid] is not kept.commits.commits[uid]:  # else it was made before
                self._files = self._files.after(changes)
                kept.commits = ended

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        with self._step():
            return self._files.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        with self._step():
            found = self._files.of(owner)
        return [kept.file for kept in found if kept.file.path.startswith(under)]

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        with self._step():
            return self._files.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        def is_meant(one: Evidence) -> bool:
            return (
                one.owner == owner
                and session in (None, one.session)
                and message in (None, one.message)
            )

        with self._step():
            return self._files.derived(lambda _, version: any(map(is_meant, version.evidence)))

    def written_by(self, tenant: str, commit: UUID) -> list[Derived]:
        with self._step():
            return self._files.derived(
                lambda owner, version: owner.tenant == tenant and version.commit == commit
            )

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        with self._step():
            return self._kept(owner, session).commits.all()

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        with self._step():
            for uid, kept in self._of(owner).items():
                if (found := kept.commits.commits.get(commit)) is not None:
                    return uid, found
        return None

    def scrub(self) -> None:
        with self._step():
            pass  # what was erased is nowhere

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        with self._step():
            found = [
                (one.created, one.id, uid)
                for uid, kept in self._of(owner).items()
                for one in kept.commits.commits.values()
                if one.state == "open"
            ]
        return [(session, uid) for _, uid, session in sorted(found)]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._owners.clear()
            self._files = FileLog()

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

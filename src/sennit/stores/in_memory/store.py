"""The in-memory store, for tests and data that need not last.

It keeps every promise of a Store except that of surviving the process. One lock makes each call one
step; what a session is made of and takes is in `memory_session`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import TypeVar
from uuid import UUID

from sennit.closing import Closing
from sennit.errors import SennitError, StoreError
from sennit.messages.codec import dumps
from sennit.stores import leases
from sennit.stores.base import AFTER_ALL, no_session, session_taken
from sennit.stores.in_memory.files import FileLog
from sennit.stores.in_memory.search import scored
from sennit.stores.in_memory.session import InMemorySession, copied
from sennit.stores.records.commits import ArchiveRecord, CommitRecord, CommitsRecord, UseRecord
from sennit.stores.records.files import (
    Derived,
    EndCommit,
    EvidenceRecord,
    FileChange,
    FileRecord,
    StoredFile,
    VersionRecord,
)
from sennit.stores.records.search import (
    FileHit,
    FileQuery,
    Hit,
    StoredMessage,
    TextQuery,
    file_place,
    in_order_of,
    is_asked_for,
)
from sennit.stores.records.sessions import (
    BranchHead,
    Change,
    EventRecord,
    FoundMessage,
    LabelRecord,
    Lease,
    MessageRecord,
    Owner,
    RemovedMessage,
    RunRecord,
    SessionDump,
    SessionRecord,
    Snapshot,
    TakeLease,
    Write,
)
from sennit.stores.records.vectors import Embedded, Unembedded, unit
from sennit.stores.search import tokenizer

_T = TypeVar("_T")


class MemoryStore(Closing):
    """A Store that keeps everything in this process and forgets it with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._owners: dict[Owner, dict[UUID, InMemorySession]] = {}
        self._files = FileLog()
        self._vectors: dict[tuple[Owner, str], dict[int, list[float]]] = {}
        self._closed = False

    @property
    def identity(self) -> Hashable:
        return id(self)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        with self._step():
            sessions = self._owners.setdefault(owner, {})
            if session.id not in sessions:
                sessions[session.id] = InMemorySession(copied(session))
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
                if _is_called(kept.session, contains)
                and (before is None or _when(kept.session) < before)
            ]
            found.sort(key=_when, reverse=True)
            return [copied(record) for record in found[: max(0, limit)]]

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        with self._step():
            found = self._of(owner).get(session)
            if found is None or (before is not None and found.session.updated >= before):
                return False
            del self._of(owner)[session]
            return True

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        with self._step():
            return self._kept(owner, session).all()

    def with_everything(
        self, work: Callable[[Iterable[SessionDump], Iterable[StoredFile]], _T]
    ) -> _T:
        """Hand `work` all sessions and all files of all owners, as they are at this moment."""
        with self._step():
            found = [
                SessionDump(
                    owner,
                    kept.all(),
                    kept.log.journals(),
                    kept.commits.all(),
                    kept.judged(),
                    _removed(owner, kept, AFTER_ALL[0]),
                    dict(kept.log.starts),
                )
                for owner, sessions in self._owners.items()
                for kept in sessions.values()
            ]
            files = [kept for owner in self._files.owners() for kept in self._files.of(owner)]
        return work(found, files)

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        with self._step():
            found = [
                one
                for whose, sessions in self._owners.items()
                if owner in (None, whose)
                for kept in sessions.values()
                if session in (None, kept.session.id)
                for one in _removed(whose, kept, before)
            ]
        found.sort(key=lambda one: (one.since, one.message))
        return found[: max(0, limit)]

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        with self._step():
            kept = self._of(owner).get(session)
            return [] if kept is None else kept.erase_removed(before)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        with self._step():
            kept = self._of(owner).get(session)
            return {} if kept is None else kept.branches_holding(messages)

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

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        with self._step():
            return self._kept(owner, session).make(changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        with self._step():
            return [self._tried(write) for write in writes]

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        wanted = tokenizer.asked(text)
        scores = {hit.place: hit.score for hit in self.hits(owner, _asked(wanted, session, limit))}
        return [
            FoundMessage(
                one.session,
                one.message.id,
                tokenizer.snippet(tokenizer.said(one.message.body), wanted),
                scores[one.place],
            )
            for one in self.at_places(owner, list(scores))
        ]

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        with self._step():
            texts = [
                (
                    (message.created, message.id, kept, at),
                    tokenizer.indexed(message.body, message.created),
                )
                for kept in self._of(owner).values()
                if asked.session in (None, kept.session.id)
                for at, message in enumerate(kept.messages.values())
                if message.id not in kept.detached
                and (asked.since is None or message.created >= asked.since)
                and (asked.until is None or message.created < asked.until)
            ]
            files = [one.text for one in self._texts(owner) if one.place < 0]
            found = scored(texts, asked.words, files)
            found.sort(key=lambda one: (one[0], one[1][:2]), reverse=True)
            best = found[: max(0, asked.limit)]
            scores: dict[InMemorySession, dict[int, float]] = {}
            for score, (_, _, kept, at) in best:
                scores.setdefault(kept, {})[at] = score
            hits = {hit.place: hit for kept, own in scores.items() for hit in kept.hits(own)}
            return [hits[kept.place(uid)] for _, (_, uid, kept, _) in best]

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        with self._step():
            wanted = set(places)
            found = [one for kept in self._of(owner).values() for one in kept.placed(wanted)]
        return in_order_of(places, found)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        with self._step():
            texts = [
                (replace(kept.file, latest=version), version.body.decode(errors="replace"))
                for owner in asked.owners
                for kept in self._files.of(owner)
                for version in kept.versions
                if is_asked_for(asked, kept.file, version)
            ]
            every = [one.text for owner in asked.owners for one in self._texts(owner)]
        places = [file_place(file) for file, _ in texts]
        found = {
            place: FileHit(file, place, 0.0)
            for place, (file, _) in zip(places, texts, strict=True)
            if place in asked.places
        }
        ranked = scored(texts, asked.words, every)
        hits = [FileHit(one, file_place(one), score) for score, one in ranked]
        hits.sort(key=lambda hit: (hit.score, hit.file.created), reverse=True)
        found |= {hit.place: hit for hit in hits[: max(0, asked.limit)]}
        return list(found.values())

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        with self._step():
            known = self._vectors.get((owner, model), {})
            found = [one for one in self._texts(owner) if one.place not in known]
        return found[: max(0, limit)]

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        with self._step():
            there = {(one.place, one.id) for one in self._texts(owner)}
            kept = self._vectors.setdefault((owner, model), {})
            for one in embedded:
                if (one.place, one.id) in there:
                    kept[one.place] = unit(one.vector)

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        with self._step():
            kept, wanted = self._vectors.get((owner, model), {}), unit(vector)
            there = {one.place for one in self._texts(owner)}
            cosines = {
                place: sum(a * b for a, b in zip(wanted, other, strict=True))
                for place, other in kept.items()
                if place in there
            }
        best = sorted(cosines, key=lambda place: cosines[place], reverse=True)[: max(0, limit)]
        return {place: cosines[place] for place in {*best, *also} & cosines.keys()}

    def _texts(self, owner: Owner) -> list[Unembedded]:
        """All that could have a vector."""
        messages = [
            Unembedded(kept.place(one.id), one.id, tokenizer.told(one.body, one.created))
            for kept in self._of(owner).values()
            for one in kept.messages.values()
            if one.id not in kept.detached
        ]
        return messages + [
            Unembedded(
                file_place(replace(kept.file, latest=version)),
                kept.file.id,
                version.body.decode(errors="replace"),
            )
            for kept in self._files.of(owner)
            for version in kept.versions
        ]

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        with self._step():
            return self._kept(owner, session).log.renew(lease, ttl)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        with self._step():
            kept = self._of(owner).get(session)
            if kept is not None:
                kept.log.release(lease)

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        with self._step():
            last = self._kept(owner, session).log.leases.get(branch)
            return leases.is_live(last, leases.ticks())

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        with self._step():
            return self._kept(owner, session).log.of_branch(branch)

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        with self._step():
            return self._kept(owner, session).log.last_of(branch)

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        with self._step():
            return self._kept(owner, session).log.last_runs()

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

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        with self._step():
            return self._files.by_id(owner, ids)

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        with self._step():
            return self._files.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        def is_meant(one: EvidenceRecord) -> bool:
            return (
                one.owner == owner
                and session in (None, one.session)
                and message in (None, one.message)
            )

        with self._step():
            return self._files.derived(lambda _, version: any(map(is_meant, version.evidence)))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        with self._step():
            return self._files.derived(
                lambda owner, version: owner.is_of(user) and version.commit == commit
            )

    def owned_by(self, user: Owner) -> list[Owner]:
        with self._step():
            found = {one for one in self._files.owners() if one.is_of(user)} - {user}
            return [user, *sorted(found, key=lambda one: one.key)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        with self._step():
            return self._kept(owner, session).commits.all()

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        with self._step():
            return self._kept(owner, session).commits.archived(after)

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        with self._step():
            return self._kept(owner, session).commits.numbered(numbers)

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        with self._step():
            return self._kept(owner, session).commits.uses_of(commit)

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        with self._step():
            for uid, kept in self._of(owner).items():
                if (found := kept.commits.commits.get(commit)) is not None:
                    return uid, found
        return None

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        named = [dumps(text)[:-1] for text in texts]
        with self._step():
            return [
                (session, commit.id)
                for session, kept in self._of(owner).items()
                for commit in kept.commits.commits.values()
                if any(one in commit.body for one in named)
            ]

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        with self._step():
            for named in map(dumps, texts):
                for kept in self._of(owner).values():
                    kept.commits = kept.commits.unnaming(named)
                    kept.log.forget_naming(named)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        with self._step():
            for old, new in ((dumps(old), dumps(new)) for old, new in names.items()):
                for kept in self._of(owner).values():
                    kept.commits = kept.commits.renaming(old, new)
                    kept.log.rename(old, new)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        with self._step():
            kept = self._of(owner).get(session)
            there = {} if kept is None else kept.messages
            return [there[uid] for uid in ids if uid in there]

    def scrub(self) -> None:
        with self._step():
            pass  # what was erased is nowhere

    def is_served(self) -> bool:
        """Never: who opens commits here finishes them."""
        return False

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        with self._step():
            found = [
                (one.created, one.id, uid)
                for uid, kept in self._of(owner).items()
                for one in kept.commits.commits.values()
                if one.state == "open"
            ]
        return [(session, uid) for _, uid, session in sorted(found)]

    def stored(self, owner: Owner) -> tuple[int, int]:
        with self._step():
            sessions = self._of(owner)
            files = self._files.of(owner)
            size = sum(one.size() for one in sessions.values())
            return len(sessions), size + sum(len(it.body) for one in files for it in one.versions)

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        with self._step():
            return self._kept(owner, session).judged()

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        with self._step():
            found = self._kept(owner, session).log.starts
            chosen = found if messages is None else messages
            return {uid: found[uid] for uid in chosen if uid in found}

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

    def _of(self, owner: Owner) -> dict[UUID, InMemorySession]:
        return self._owners.get(owner, {})

    def _kept(self, owner: Owner, session: UUID) -> InMemorySession:
        kept = self._of(owner).get(session)
        if kept is None:
            raise no_session(session)
        return kept

    def _tried(self, write: Write) -> list[BranchHead] | SennitError:
        sessions, new = self._owners.setdefault(write.owner, {}), write.create
        if new is not None and new.id in sessions:
            return session_taken(new.id)
        if new is not None:
            sessions[new.id] = InMemorySession(copied(new))
        try:
            return self.write(write.owner, write.session, write.changes)
        except SennitError as error:
            if new is not None:
                del sessions[new.id]
            return error


def _removed(owner: Owner, kept: InMemorySession, before: int) -> list[RemovedMessage]:
    home = kept.session.id
    return [RemovedMessage(owner, home, uid, at) for uid, at in kept.removed(before).items()]


def _when(session: SessionRecord) -> tuple[int, UUID]:
    return session.updated, session.id


def _is_called(session: SessionRecord, part: str | None) -> bool:
    names = (session.key, session.metadata.get("title"))
    return part is None or any(
        isinstance(name, str) and part.casefold() in name.casefold() for name in names
    )


def _asked(wanted: list[str], session: UUID | None, limit: int) -> TextQuery:
    return TextQuery(tuple(wanted), session, limit=limit)

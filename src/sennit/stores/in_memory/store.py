"""The in-memory store, for tests and data that need not last.

It keeps every guarantee of a Store except durability. One lock makes each call atomic; the data of
a session is in `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import TypeVar
from uuid import UUID

from sennit import clock
from sennit.closing import Closing
from sennit.errors import SennitError, StoreError
from sennit.messages.codec import dumps
from sennit.stores import leases
from sennit.stores.base import FIRST_PAGE, no_session, session_taken
from sennit.stores.in_memory.blobs import BlobDict, received
from sennit.stores.in_memory.files import FileLog
from sennit.stores.in_memory.search import scored
from sennit.stores.in_memory.session import InMemorySession, copied
from sennit.stores.records.blobs import (
    BLOB_GRACE_US,
    BlobLimits,
    BlobRecord,
    StoredBlob,
    hashes_in,
    missing,
)
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
    matches_filters,
)
from sennit.stores.records.sessions import (
    AddMessages,
    BranchHead,
    Change,
    EventRecord,
    FoundMessage,
    LabelRecord,
    Lease,
    MessageRecord,
    Owner,
    RemovedMessage,
    RemoveMessages,
    RequireBlobs,
    RunRecord,
    SessionDump,
    SessionRecord,
    Snapshot,
    TakeLease,
    Write,
)
from sennit.stores.records.vectors import Embedded, Unembedded, unit
from sennit.stores.search import tokenizer
from sennit.stores.search.messages import search_messages

_T = TypeVar("_T")


class MemoryStore(Closing):
    """A Store in the memory of this process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._owners: dict[Owner, dict[UUID, InMemorySession]] = {}
        self._files = FileLog()
        self._blobs = BlobDict()
        self._vectors: dict[tuple[Owner, str], dict[int, list[float]]] = {}
        self._closed = False

    @property
    def identity(self) -> Hashable:
        return id(self)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        with self._locked():
            sessions = self._owners.setdefault(owner, {})
            if session.id not in sessions:
                sessions[session.id] = InMemorySession(copied(session))
            return copied(sessions[session.id].session)

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            return None if state is None else copied(state.session)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        with self._locked():
            records = [
                state.session
                for state in self._sessions_of(owner).values()
                if _is_named_like(state.session, contains)
                and (before is None or _sort_key(state.session) < before)
            ]
            records.sort(key=_sort_key, reverse=True)
            return [copied(record) for record in records[: max(0, limit)]]

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            if state is None or (before is not None and state.session.updated >= before):
                return False
            del self._sessions_of(owner)[session]
            self._blobs.mark(owner, _named(state.messages.values()), erased=True)
            return True

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        with self._locked():
            return self._find(owner, session).all()

    def with_everything(
        self,
        work: Callable[[Iterable[SessionDump], Iterable[StoredFile], Iterable[StoredBlob]], _T],
    ) -> _T:
        """Call `work` with a snapshot of all sessions, files and blobs of all owners."""
        with self._locked():
            all_sessions = [
                SessionDump(
                    owner,
                    state.all(),
                    state.log.journals(),
                    state.commits.all(),
                    state.judged(),
                    _removed(owner, state, FIRST_PAGE[0]),
                    dict(state.log.starts),
                )
                for owner, sessions in self._owners.items()
                for state in sessions.values()
            ]
            files = [state for owner in self._files.owners() for state in self._files.of(owner)]
            blobs = self._blobs.all()
        return work(all_sessions, files, blobs)

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        with self._locked():
            messages = [
                message
                for session_owner, sessions in self._owners.items()
                if owner in (None, session_owner)
                for state in sessions.values()
                if session in (None, state.session.id)
                for message in _removed(session_owner, state, before)
            ]
        messages.sort(key=lambda message: (message.since, message.message))
        return messages[: max(0, limit)]

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            if state is None:
                return []
            messages = dict(state.messages)
            erased = state.erase_removed(before)
            self._blobs.mark(owner, _named(messages[uid] for uid in erased), erased=True)
            return erased

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            return {} if state is None else state.branches_holding(messages)

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        with self._locked():
            state = self._find(owner, session)
            segments, branches = state.beyond(known), state.listed()
            return Snapshot(
                copied(state.session), state.messages_of(segments, branches), segments, branches
            )

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        with self._locked():
            state = self._find(owner, session)
            present = self._blobs.hashes(owner)
            for change in changes:
                if isinstance(change, RequireBlobs):
                    missing(change.hashes, (hash for hash in change.hashes if hash in present))
            erased = self._about_to_erase(state, changes)
            heads = state.make(changes)
            self._blobs.mark(owner, _named(erased), erased=True)
            for change in changes:
                if isinstance(change, AddMessages):
                    self._blobs.mark(owner, _named(change.messages), erased=False)
            return heads

    def _about_to_erase(
        self, state: InMemorySession, changes: Sequence[Change]
    ) -> list[MessageRecord]:
        erased = (
            uid
            for change in changes
            if isinstance(change, RemoveMessages)
            for uid in change.messages
        )
        return [state.messages[uid] for uid in erased if uid in state.messages]

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        with self._locked():
            return [self._try_write(write) for write in writes]

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        return search_messages(self, owner, text, session, limit)

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        with self._locked():
            texts = [
                (
                    (message.created, message.id, state, index),
                    tokenizer.indexed_text(message.body, message.created),
                )
                for state in self._sessions_of(owner).values()
                if asked.session in (None, state.session.id)
                for index, message in enumerate(state.messages.values())
                if message.id not in state.detached
                and (asked.since is None or message.created >= asked.since)
                and (asked.until is None or message.created < asked.until)
            ]
            files = [item.text for item in self._embeddable(owner) if item.place < 0]
            results = scored(texts, asked.words, files)
            results.sort(key=lambda item: (item[0], item[1][:2]), reverse=True)
            best = results[: max(0, asked.limit)]
            scores: dict[InMemorySession, dict[int, float]] = {}
            for score, (_, _, state, index) in best:
                scores.setdefault(state, {})[index] = score
            hits = {
                hit.place: hit
                for state, state_scores in scores.items()
                for hit in state.hits(state_scores)
            }
            return [hits[state.place(uid)] for _, (_, uid, state, _) in best]

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        with self._locked():
            wanted_places = set(places)
            messages = [
                message
                for state in self._sessions_of(owner).values()
                for message in state.placed(wanted_places)
            ]
        return in_order_of(places, messages)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        with self._locked():
            texts = [
                (replace(stored.file, latest=version), version.body.decode(errors="replace"))
                for owner in asked.owners
                for stored in self._files.of(owner)
                for version in stored.versions
                if matches_filters(asked, stored.file, version)
            ]
            all_texts = [item.text for owner in asked.owners for item in self._embeddable(owner)]
        places = [file_place(file) for file, _ in texts]
        hits_by_place = {
            place: FileHit(file, place, 0.0)
            for place, (file, _) in zip(places, texts, strict=True)
            if place in asked.places
        }
        ranked = scored(texts, asked.words, all_texts)
        hits = [FileHit(item, file_place(item), score) for score, item in ranked]
        hits.sort(key=lambda hit: (hit.score, hit.file.created), reverse=True)
        hits_by_place |= {hit.place: hit for hit in hits[: max(0, asked.limit)]}
        return list(hits_by_place.values())

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        with self._locked():
            vectors = self._vectors.get((owner, model), {})
            items = [item for item in self._embeddable(owner) if item.place not in vectors]
        return items[: max(0, limit)]

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        with self._locked():
            present = {(item.place, item.id) for item in self._embeddable(owner)}
            vectors = self._vectors.setdefault((owner, model), {})
            for item in embedded:
                if (item.place, item.id) in present:
                    vectors[item.place] = unit(item.vector)

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        with self._locked():
            vectors, target = self._vectors.get((owner, model), {}), unit(vector)
            present = {item.place for item in self._embeddable(owner)}
            cosines = {
                place: sum(a * b for a, b in zip(target, other, strict=True))
                for place, other in vectors.items()
                if place in present
            }
        best = sorted(cosines, key=lambda place: cosines[place], reverse=True)[: max(0, limit)]
        return {place: cosines[place] for place in {*best, *also} & cosines.keys()}

    def _embeddable(self, owner: Owner) -> list[Unembedded]:
        """Return everything that can have a vector: attached messages and file versions."""
        messages = [
            Unembedded(
                state.place(message.id),
                message.id,
                tokenizer.embedded_text(message.body, message.created),
            )
            for state in self._sessions_of(owner).values()
            for message in state.messages.values()
            if message.id not in state.detached
        ]
        return messages + [
            Unembedded(
                file_place(replace(stored.file, latest=version)),
                stored.file.id,
                version.body.decode(errors="replace"),
            )
            for stored in self._files.of(owner)
            for version in stored.versions
        ]

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        with self._locked():
            return self._find(owner, session).log.renew(lease, ttl)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            if state is not None:
                state.log.release(lease)

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        with self._locked():
            last = self._find(owner, session).log.leases.get(branch)
            return leases.is_live(last, leases.monotonic_us())

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        with self._locked():
            return self._find(owner, session).log.of_branch(branch)

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        with self._locked():
            return self._find(owner, session).log.last_of(branch)

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        with self._locked():
            return self._find(owner, session).log.last_runs()

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        with self._locked():
            return self._find(owner, session).log.after(branch, after)[: max(0, limit)]

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        with self._locked():
            return self._find(owner, session).log.last_seq(branch)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        with self._locked():
            if end is None:
                self._files = self._files.after(changes)
                return
            state = self._find(end.owner, end.session)
            commits = state.commits.after(end.change)
            uid = end.change.commit
            if commits.commits[uid] is not state.commits.commits[uid]:  # else a retry
                self._files = self._files.after(changes)
                state.commits = commits

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        with self._locked():
            return self._files.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        with self._locked():
            files = self._files.of(owner)
        return [stored.file for stored in files if stored.file.path.startswith(under)]

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        with self._locked():
            return self._files.by_id(owner, ids)

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        with self._locked():
            return self._files.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        def is_meant(evidence: EvidenceRecord) -> bool:
            return (
                evidence.owner == owner
                and session in (None, evidence.session)
                and message in (None, evidence.message)
            )

        with self._locked():
            return self._files.derived(lambda _, version: any(map(is_meant, version.evidence)))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        with self._locked():
            return self._files.derived(
                lambda owner, version: owner.is_of(user) and version.commit == commit
            )

    def owned_by(self, user: Owner) -> list[Owner]:
        with self._locked():
            owners = {owner for owner in self._files.owners() if owner.is_of(user)} - {user}
            return [user, *sorted(owners, key=lambda owner: owner.key)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        with self._locked():
            return self._find(owner, session).commits.all()

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        with self._locked():
            return self._find(owner, session).commits.archived(after)

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        with self._locked():
            return self._find(owner, session).commits.numbered(numbers)

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        with self._locked():
            return self._find(owner, session).commits.uses_of(commit)

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        with self._locked():
            for uid, state in self._sessions_of(owner).items():
                if (record := state.commits.commits.get(commit)) is not None:
                    return uid, record
        return None

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        prefixes = [dumps(text)[:-1] for text in texts]
        with self._locked():
            return [
                (session, commit.id)
                for session, state in self._sessions_of(owner).items()
                for commit in state.commits.commits.values()
                if any(prefix in commit.body for prefix in prefixes)
            ]

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        with self._locked():
            self.erase_uses(owner, texts)
            for string in map(dumps, texts):
                for state in self._sessions_of(owner).values():
                    state.log.forget_naming(string)

    def erase_uses(self, owner: Owner, texts: Sequence[str]) -> None:
        with self._locked():
            for string in map(dumps, texts):
                for state in self._sessions_of(owner).values():
                    state.commits = state.commits.unnaming(string)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        with self._locked():
            for old, new in ((dumps(old), dumps(new)) for old, new in names.items()):
                for state in self._sessions_of(owner).values():
                    state.commits = state.commits.renaming(old, new)
                    state.log.rename(old, new)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        with self._locked():
            state = self._sessions_of(owner).get(session)
            messages = {} if state is None else state.messages
            return [messages[uid] for uid in ids if uid in messages]

    def scrub(self) -> None:
        self.collect_blobs(clock.now_us() - BLOB_GRACE_US)  # other erased data leaves no trace

    def put_blob(
        self,
        owner: Owner,
        chunks: Iterable[bytes],
        media_type: str,
        limits: BlobLimits,
        hash: bytes | None = None,
    ) -> BlobRecord:
        data, hasher = received(chunks, limits, self.blob_bytes(owner))
        with self._locked():
            return self._blobs.put(owner, data, hasher, media_type, is_named_next=hash is not None)

    def find_blob(self, owner: Owner, hash: bytes) -> BlobRecord | None:
        with self._locked():
            return self._blobs.find(owner, hash)

    def read_blob(self, owner: Owner, hash: bytes, offset: int, length: int) -> bytes:
        with self._locked():
            return self._blobs.read(owner, hash, offset, length)

    def blob_bytes(self, owner: Owner) -> int:
        with self._locked():
            return self._blobs.used(owner)

    def collect_blobs(self, before: int, owner: Owner | None = None) -> int:
        def named_by(owner: Owner) -> set[bytes]:
            sessions = self._sessions_of(owner).values()
            return {hash for state in sessions for hash in _named(state.messages.values())}

        with self._locked():
            return self._blobs.collect(before, owner, named_by)

    def has_workers(self) -> bool:
        """Return False: the process that opens a commit finishes it."""
        return False

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        with self._locked():
            commits = [
                (commit.created, commit.id, uid)
                for uid, state in self._sessions_of(owner).items()
                for commit in state.commits.commits.values()
                if commit.state == "open"
            ]
        return [(session, uid) for _, uid, session in sorted(commits)]

    def stored(self, owner: Owner) -> tuple[int, int]:
        with self._locked():
            sessions = self._sessions_of(owner)
            files = self._files.of(owner)
            size = sum(state.size() for state in sessions.values())
            return len(sessions), size + sum(
                len(it.body) for state in files for it in state.versions
            )

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        with self._locked():
            return self._find(owner, session).judged()

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        with self._locked():
            starts = self._find(owner, session).log.starts
            chosen = starts if messages is None else messages
            return {uid: starts[uid] for uid in chosen if uid in starts}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._owners.clear()
            self._files = FileLog()

    @contextmanager
    def _locked(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise StoreError("This store is closed; open another one.")
            yield

    def _sessions_of(self, owner: Owner) -> dict[UUID, InMemorySession]:
        return self._owners.get(owner, {})

    def _find(self, owner: Owner, session: UUID) -> InMemorySession:
        state = self._sessions_of(owner).get(session)
        if state is None:
            raise no_session(session)
        return state

    def _try_write(self, write: Write) -> list[BranchHead] | SennitError:
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


def _named(messages: Iterable[MessageRecord]) -> list[bytes]:
    """Return the hashes of the blobs that messages name."""
    return [hash for message in messages for hash in hashes_in(message)]


def _removed(owner: Owner, state: InMemorySession, before: int) -> list[RemovedMessage]:
    session_id = state.session.id
    return [
        RemovedMessage(owner, session_id, uid, since)
        for uid, since in state.removed(before).items()
    ]


def _sort_key(session: SessionRecord) -> tuple[int, UUID]:
    return session.updated, session.id


def _is_named_like(session: SessionRecord, part: str | None) -> bool:
    names = (session.key, session.metadata.get("title"))
    return part is None or any(
        isinstance(name, str) and part.casefold() in name.casefold() for name in names
    )

"""The Store protocol and its guarantees.

Every store guarantees:

1. Durability. When `write` returns, its changes survive a crash of the process and, on stores with
   a disk, of the machine.
2. Atomicity. The changes of one `write` become visible together or not at all.
3. Appends never conflict, unless they name the end that they expect. Concurrent appends to one
   branch, from any number of processes, all succeed, and each writer's order is kept. Other
   changes of a branch raise ConflictError if another writer changed it since it was read. Renaming
   is independent: the last name wins, and a writer that has read the old name is not refused.
4. Idempotency. Ids are chosen by the writer, so repeating a write whose acknowledgement was lost
   changes nothing.
5. Isolation. The owner is part of every key; another owner's data does not exist.
6. Deletion is complete: no row, index entry or orphan remains and, after `scrub`, no erased text in
   the files that the store manages.
7. Removed messages are not searched. A message that is on no branch, is no branch's system message
   and is in no archive stays stored, but search does not return it until it is attached again.
8. Blobs stay. A blob that a stored message names is not collected, and a write that requires a blob
   is refused without it.

A store may be used from any thread. It takes and returns records and does not know sessions.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol
from uuid import UUID

from sennit.errors import (
    ConflictError,
    ExistsError,
    NotFoundError,
    SennitError,
    StoreError,
    ValidationError,
    short_repr,
)
from sennit.stores.records.blobs import BlobStore
from sennit.stores.records.files import FileStore
from sennit.stores.records.search import TextSearchStore
from sennit.stores.records.sessions import (
    Append,
    BranchHead,
    BranchRecord,
    Change,
    EventRecord,
    FoundMessage,
    LabelRecord,
    Lease,
    Owner,
    RemovedMessage,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    Write,
)
from sennit.stores.records.vectors import VectorStore
from sennit.stores.schema_version import SCHEMA_VERSION

FIRST_PAGE = (2**63 - 1, UUID(int=2**128 - 1))
"""A time and an id after those of every session: the cursor of the first page."""


class Store(FileStore, TextSearchStore, VectorStore, BlobStore, Protocol):
    """A store of sessions and memories."""

    @property
    def identity(self) -> Hashable:
        """The key of the stored data in this process; stores opened on the same file share it."""
        ...

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Add a session, or return the stored one if its id exists."""
        ...

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """Return the owner's session with that id, or None."""
        ...

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Return a page of sessions, last changed first, after `before`, the previous page's last.

        `contains` is a substring of the key, or of a text "title" in the metadata.
        """
        ...

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        """Erase a session and its contents; return False if it does not exist.

        With `before`, erase it only if it was last changed before that time.
        """
        ...

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """Return the whole session; raises NotFoundError."""
        ...

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError.

        The snapshot has all branches, the segments they use that `known` lacks, of known segments
        only the entries past the known length, and the messages of these entries and of the
        branches' system messages. Rewrites and erasures are not reported: if a branch is gone or
        has another version, call `load`.
        """
        ...

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply changes atomically; return the head before each Append and TakeLease, in order.

        `updated` of the session grows with each write, whatever the clock says: clients reload an
        open session only when it has changed.
        An Append whose messages are all on the branch already counts as a retry after a lost
        acknowledgement: nothing is added, and the head gives the position where they begin.
        Raises NotFoundError if the session, a branch, a message or a required blob does not exist,
        ConflictError if another writer has changed a branch, holds its lease or has started a tool
        call, and ExistsError if an id or a name is taken.
        """
        ...

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Apply several writes with one sync to disk; each succeeds or fails on its own."""
        ...

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        """Return messages that contain words of `text`, best first."""
        ...

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Return messages removed from their last branch before a time, longest removed first.

        Of one owner, or of all; of one session, or of all. A message that was never on a branch was
        not removed, and neither was one in an archive.
        """
        ...

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        """Erase the removed messages of a session with their events and labels; return their ids.

        This does not count as a change of the session. A deleted session has none.
        """
        ...

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """Return the branch name of each message; of several "main", or else the oldest."""
        ...

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire a branch's lease for `ttl` microseconds; raises ConflictError if it is held."""
        ...

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Extend a lease; raises ConflictError if it was lost."""
        ...

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Release a lease; do nothing if it was lost."""
        ...

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether a branch has a lease that has not expired."""
        ...

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first; none if the branch does not exist.

        This and the methods below raise NotFoundError if the session does not exist.
        """
        ...

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, or None."""
        ...

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch that has one, by branch."""
        ...

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """Return at most `limit` events of a branch after event number `after`, in order."""
        ...

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """Return the number of a branch's last event, or 0."""
        ...

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Return the number of an owner's sessions, and their total bytes with names."""
        ...

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""
        ...

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch, by request message.

        Of these messages, or of all with None; calls that were never started are left out. Raises
        NotFoundError if the session does not exist.
        """
        ...

    def close(self) -> None:
        """Close files and connections; every later call raises StoreError."""
        ...


@contextmanager
def reporting_corruption() -> Generator[None]:
    """Turn a KeyError, from a row that refers to a missing one, into a StoreError."""
    try:
        yield
    except NotFoundError:
        raise
    except KeyError as error:
        raise damaged(f"a row refers to {error.args[0]}, which does not exist") from error


def damaged(problem: str) -> StoreError:
    """Return the error for inconsistent rows."""
    return StoreError(
        f"The store is damaged: {problem}. Run `sennit doctor`, and restore a backup or repair it "
        f"with client.doctor(repair=True)."
    )


def damaged_history(segment: UUID) -> StoreError:
    """Return the error for a segment whose entries do not match their running checksum."""
    return damaged(f"the entries of segment {segment} do not match their checksum")


def damaged_message(message: UUID) -> StoreError:
    """Return the error for a message that does not match its checksum."""
    return StoreError(
        f"Message {message} is damaged in the store: it is not what was written. Run "
        f"`sennit doctor`, and restore a backup."
    )


def segment_cycle(segment: UUID | int) -> StoreError:
    """Return the error for a cycle in the bases of a segment."""
    return damaged(f"segment {segment} builds on itself")


def no_session(session: UUID) -> NotFoundError:
    """Return the error for a session that the owner does not have."""
    return NotFoundError(f"There is no session {session} here; it may have been deleted.")


def other_version(store: str, version: int) -> StoreError:
    """Return the error for a store with another schema version."""
    return StoreError(
        f"The store {store!r} has schema version {version}, this Sennit uses version "
        f"{SCHEMA_VERSION}; nothing was changed. Export it with the version of Sennit that wrote "
        f"it and import the archive, or choose another store."
    )


def session_taken(session: UUID) -> ExistsError:
    """Return the error for a new session whose id is taken."""
    return ExistsError(f"Session {session} already exists; open it.")


def no_branch(branch: UUID) -> NotFoundError:
    """Return the error for a branch that is not in the session."""
    return NotFoundError(f"There is no branch {branch} in this session; it may have been removed.")


def no_segment(segment: UUID) -> NotFoundError:
    """Return the error for a segment that is not in the session."""
    return NotFoundError(
        f"There is no segment {segment} in this session any more; refresh, and try again."
    )


def other_content(message: UUID) -> ExistsError:
    """Return the error for a message id that is stored with another content."""
    return ExistsError(f"Message {message} is already stored with a different content.")


def branch_taken(branch: BranchRecord) -> ExistsError:
    """Return the error for a new branch whose name or id is taken."""
    return ExistsError(f"A branch named {branch.name!r}, or with the same id, already exists.")


def name_taken(name: str) -> ExistsError:
    """Return the error for a name that another branch has."""
    return ExistsError(f"There is already a branch named {short_repr(name)}; choose another name.")


def branch_conflict(branch: BranchRecord) -> ConflictError:
    """Return the error for changing a branch that another writer has changed."""
    return ConflictError(
        f"Branch {branch.name!r} was changed by another writer; refresh it and try again."
    )


def check_append(branch: str, change: Append, segment: UUID, length: int) -> None:
    """Raise ConflictError unless the branch ends where the append expects it to."""
    if change.at not in (None, (segment, length)):
        raise ConflictError(
            f"Another writer has added messages to branch {branch!r}; refresh it and try again."
        )


def check_source(branch: BranchRecord, expected: int, version: int) -> None:
    """Raise ConflictError unless the source of a fork has the version it was last seen with."""
    if version != expected:
        raise ConflictError(
            f"The source of branch {branch.name!r} was changed by another writer; refresh it and "
            f"try again."
        )


def check_fit(branch: BranchRecord, segment: SegmentRecord) -> None:
    """Raise ValidationError unless a new branch ends with its new segment."""
    if branch.segment != segment.id or branch.length != len(segment.entries):
        raise ValidationError(
            f"Branch {branch.name!r} must name its segment {segment.id} and the length "
            f"{len(segment.entries)}, got {branch.segment} and {branch.length}."
        )


def misplaced(segment: SegmentRecord, start: int, end: int) -> ValidationError:
    """Return the error for a segment whose offset lies outside its base."""
    return ValidationError(
        f"Segment {segment.id} begins after {segment.offset} entries; its base holds those from "
        f"{start} to {end}. Use the segment that contains the last entry below it as base."
    )


def no_message(message: UUID) -> NotFoundError:
    """Return the error for a message that is not in the session."""
    return NotFoundError(f"There is no message {message} in this session.")

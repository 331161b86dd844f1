"""The Store protocol and its six promises.

What every store promises:

1. Acknowledged is durable. When `write` returns, its changes survive the process, and on stores
   that have a disk, the machine.
2. All or nothing. The changes of one `write` are seen together or not at all.
3. Appends never conflict. Writers on one branch, in any number of processes, all land; each one's
   own order is kept. Other changes of a branch are refused with ConflictError if someone else
   changed it since it was read. Only its name has nothing to do with the rest: the last one given
   holds, and whoever knows the old one is not refused anything.
4. Twice is once. Ids are the writer's, so repeating a write whose acknowledgement was lost changes
   nothing.
5. Nobody else. The owner is part of every key; what belongs to another owner does not exist.
6. Delete deletes: no row, no index entry, no orphan stays, and after `scrub`, which is for all that
   was erased before, no word of it in files that the store looks after.
7. Removed is not found. A message that stands on no branch, is no branch's system message and is in
   no archive is kept, but no search finds it; one that is attached again is found again.

A store may be used from any thread. It speaks records and knows nothing of sessions.
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
    shown,
)
from sennit.stores.records.files import FileStore
from sennit.stores.records.search import TextSearchStore
from sennit.stores.records.sessions import (
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

AFTER_ALL = (2**63 - 1, UUID(int=2**128 - 1))
"""A time and an id past those of every session: what a list that begins anew is `before`."""


class Store(FileStore, TextSearchStore, VectorStore, Protocol):
    """A store of sessions and memories."""

    @property
    def identity(self) -> Hashable:
        """The key of what is stored, in this process: no store of anything else has it.

        Stores that were opened on one file have the same.
        """
        ...

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        ...

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """The session with that id, if the owner has it."""
        ...

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Sessions, the one changed last first; `before` is the last one of the page before.

        What they are to contain is a part of their key, or of a text "title" in their metadata.
        """
        ...

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        """Erase a session and all that is in it; False if it was not there.

        With `before` only if it was last changed before that time.
        """
        ...

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        ...

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError.

        All branches are listed. The segments given are those a branch needs and `known` lacks, and
        of a known one only its entries past the known length; the messages are those of the entries
        given and of the branches' system messages. Rewrites and erasures cannot be told this way:
        whoever finds a branch gone, or in another version, has to `load`.
        """
        ...

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        """Make changes, all or none; gives the head before each Append and TakeLease, in order.

        The time at which the session was changed grows with each write, whatever the clock says:
        whoever has a session open reads it again only then.
        An Append whose messages all stand on the branch already is taken for one whose
        acknowledgement was lost: nothing is added, and the head says where they begin.
        Raises NotFoundError if the session, a branch or a message is not there, ConflictError if a
        branch was changed by someone else, its lease is another's or a tool call was started by
        someone else, ExistsError if an id or a name is taken by another.
        """
        ...

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        ...

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        """Messages that hold the words of `text`, the best first."""
        ...

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Messages removed from their last branch before a time, the longest removed first.

        Of one owner, or of all; of one session, or of all. One that never stood on a branch was
        not removed, and neither was one in an archive.
        """
        ...

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        """Erase those of a session, with what is noted of them; gives their ids.

        It does not count as a change of the session. One that is gone has none.
        """
        ...

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """The branch on which each message stands; of several "main", or else the oldest."""
        ...

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""
        ...

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""
        ...

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""
        ...

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether someone holds the lease of a branch, which has not expired."""
        ...

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first; raises NotFoundError if the session is not there.

        So do the others here. A branch on which nothing ran has none, also one that is not there.
        """
        ...

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """The newest run of a branch, if there was any."""
        ...

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Find the newest run of each branch of a session on which there was any, by branch."""
        ...

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """The events of a branch past a number, in order, at most `limit` of them."""
        ...

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """The number of a branch's last event; 0 if there is none."""
        ...

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Count an owner's sessions, and the bytes of all they hold, names included."""
        ...

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""
        ...

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch, by request message.

        Of these messages, or of all with None; a call that was never started is left out. Raises
        NotFoundError if the session is not there.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections; a closed store refuses everything else."""
        ...


@contextmanager
def of_one_piece() -> Generator[None]:
    """Say that a store is damaged where its rows name others that are not there."""
    try:
        yield
    except NotFoundError:
        raise
    except KeyError as error:
        raise damaged(f"it names {error.args[0]}, which is not there") from error


def damaged(how: str) -> StoreError:
    """The error for rows that do not fit together."""
    return StoreError(
        f"The store is damaged: {how}. Run `sennit doctor`, and restore a backup or repair it with "
        f"client.doctor(repair=True)."
    )


def damaged_history(segment: UUID) -> StoreError:
    """The error for entries of a segment that do not match their running checksum."""
    return damaged(f"the entries of segment {segment} do not match their checksum")


def damaged_message(message: UUID) -> StoreError:
    """The error for a message that is not what was written."""
    return StoreError(
        f"Message {message} is damaged in the store: it is not what was written. Run "
        f"`sennit doctor`, and restore a backup."
    )


def circular(segment: UUID | int) -> StoreError:
    """The error for a segment that in the end builds on itself."""
    return damaged(f"segment {segment} builds on itself")


def no_session(session: UUID) -> NotFoundError:
    """The error for a session that is not the owner's, or gone."""
    return NotFoundError(f"There is no session {session} here; it may have been deleted.")


def other_version(store: str, version: int) -> StoreError:
    """The error for a store whose tables are of another version."""
    return StoreError(
        f"The store {store!r} has schema version {version}, this Sennit uses version "
        f"{SCHEMA_VERSION}; nothing was changed. Export it with the version of Sennit that wrote "
        f"it and import the archive, or choose another store."
    )


def session_taken(session: UUID) -> ExistsError:
    """The error for a new session whose id is taken."""
    return ExistsError(f"Session {session} already exists; open it.")


def no_branch(branch: UUID) -> NotFoundError:
    """The error for a branch that is not in the session."""
    return NotFoundError(f"There is no branch {branch} in this session; it may have been removed.")


def no_segment(segment: UUID) -> NotFoundError:
    """The error for a segment that is not in the session."""
    return NotFoundError(
        f"There is no segment {segment} in this session any more; refresh, and try again."
    )


def other_content(message: UUID) -> ExistsError:
    """The error for a message whose id is taken by another."""
    return ExistsError(f"Message {message} is already stored with a different content.")


def branch_taken(branch: BranchRecord) -> ExistsError:
    """The error for a new branch whose name or id is taken."""
    return ExistsError(f"A branch named {branch.name!r}, or with the same id, already exists.")


def name_taken(name: str) -> ExistsError:
    """The error for a name that another branch has."""
    return ExistsError(f"There is already a branch named {shown(name)}; choose another name.")


def changed_meanwhile(branch: BranchRecord) -> ConflictError:
    """The error for a change of a branch that was not seen as it is."""
    return ConflictError(
        f"Branch {branch.name!r} was changed by another writer; refresh it and try again."
    )


def check_source(branch: BranchRecord, seen: int, version: int) -> None:
    """Raise ConflictError unless the source of a fork has the version it was last seen with."""
    if version != seen:
        raise ConflictError(
            f"The source of branch {branch.name!r} was changed by another writer; refresh it and "
            f"try again."
        )


def check_fit(branch: BranchRecord, segment: SegmentRecord) -> None:
    """Raise ValidationError unless a new branch ends with the segment that comes with it."""
    if branch.segment != segment.id or branch.length != len(segment.entries):
        raise ValidationError(
            f"Branch {branch.name!r} must name its segment {segment.id} and the length "
            f"{len(segment.entries)}, got {branch.segment} and {branch.length}."
        )


def misplaced(segment: SegmentRecord, start: int, below: int) -> ValidationError:
    """The error for a segment that begins neither in its base nor at its end."""
    return ValidationError(
        f"Segment {segment.id} begins after {segment.offset} entries; its base holds those from "
        f"{start} to {below}. Name the segment in which the last entry below it stands."
    )


def no_message(message: UUID) -> NotFoundError:
    """The error for a message that is not in the session."""
    return NotFoundError(f"There is no message {message} in this session.")

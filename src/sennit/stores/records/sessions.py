"""Records of sessions, branches, messages, runs and leases, and the changes to them.

A store never sees a Session: it takes and returns records. Ids are chosen by the writer, so that
writing the same record again is recognised and changes nothing.

Records that are created for every message are msgspec structs, several times faster to create than
frozen dataclasses; they cannot be part of reference cycles, so the garbage collector skips them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ValidationError, short_repr
from sennit.messages.json_values import validate_text
from sennit.stores.records.commits import AddCommit, AddUses, CommitsRecord, PutCommit

MAX_NAME_BYTES = 2000
"""Maximum bytes of the name of a branch or a judge, or of the key of a session.

PostgreSQL can index about 2,700.
"""
MAX_OWNER_NAME_BYTES = 800
"""Maximum bytes of the names of tenants, users and agents: all three share an index row."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a session; nobody else can reach it."""

    tenant: str
    kind: Literal["user", "agent", "tenant"]
    name: str
    user: str = ""
    """The user whose own agent or resources these are; "" if the whole tenant shares them."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Its identity, in the order of a store's columns."""
        return self.tenant, self.kind, self.name, self.user

    def is_of(self, user: Owner) -> bool:
        """Return whether this is that user, or their own agent or resources."""
        mine = (self.tenant, self.user) == (user.tenant, user.name)
        return self == user or (mine and user.kind == "user")


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session."""

    id: UUID
    key: str | None
    user: str
    """The sender of messages with the role "user"."""
    created: int
    updated: int
    """The time of the last change, in microseconds like all times here; grows with each write."""
    metadata: dict[str, Any]


class MessageRecord(msgspec.Struct, frozen=True, gc=False):
    """A message; `body` is the JSON of all but its id and time."""

    id: UUID
    created: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A sequence of message ids on top of the first `offset` ids of the history below it."""

    id: UUID
    base: UUID | None
    offset: int
    entries: tuple[UUID, ...]
    taken: UUID | None = None
    """In a change: the segment whose entries it takes over, instead of entries of its own."""


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """A branch: its tail segment, system message and grants."""

    id: UUID
    name: str
    created: int
    system: UUID | None
    segment: UUID
    length: int
    """The number of entries of its segment."""
    resources: frozenset[str] | None
    """The services it was granted; None if it was never given grants."""
    capabilities: frozenset[str] | None
    """The output schemas it was granted; None exactly if `resources` is."""
    metadata: dict[str, Any]
    version: int = 0
    """Counts its changes, except appends and renames."""


def branch_name(value: Any) -> str:
    """Return a valid branch name; raises ValidationError."""
    return _check_name(value, "A branch's name", MAX_NAME_BYTES)


def session_key(value: Any) -> str:
    """Return a valid session key; raises ValidationError."""
    return _check_name(value, "A session's key", MAX_NAME_BYTES)


def judge_name(value: Any) -> str:
    """Return a valid name of a judge; raises ValidationError."""
    return _check_name(value, "by", MAX_NAME_BYTES)


def owner_name(value: Any, what: str) -> str:
    """Return a valid name of a tenant, user or agent, called `what` in a ValidationError."""
    return _check_name(value, what, MAX_OWNER_NAME_BYTES)


def _check_name(value: Any, what: str, max_bytes: int) -> str:
    name = validate_text(value, what)
    if not name:
        raise ValidationError(f"{what} must not be empty; name one.")
    size = len(name) if len(name) > max_bytes else len(name.encode())
    if size > max_bytes:
        raise ValidationError(
            f"{what} may have {max_bytes} bytes, got {size}: {short_repr(name)}; shorten it."
        )
    return name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored session, or the changes to it."""

    session: SessionRecord
    messages: list[MessageRecord]
    segments: list[SegmentRecord]
    branches: list[BranchRecord]


class FoundMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that a search found."""

    session: UUID
    message: UUID
    snippet: str
    score: float


class RemovedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that was removed from its last branch, and is in no archive."""

    owner: Owner
    session: UUID
    message: UUID
    since: int
    """When it was removed."""


class DescribeSession(msgspec.Struct, frozen=True, gc=False):
    """Replace the metadata of a session."""

    metadata: dict[str, Any]


class AddMessages(msgspec.Struct, frozen=True, gc=False):
    """Store messages; an identical one that exists is left unchanged."""

    messages: tuple[MessageRecord, ...]


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append messages to a branch."""

    branch: UUID
    entries: tuple[UUID, ...]
    at: tuple[UUID, int] | None = None
    """The expected tail segment of the branch and its length, else the append is refused; None
    appends after concurrent writers.
    """


class AddBranch(msgspec.Struct, frozen=True, gc=False):
    """Add a branch with its segment, if its source branch has the expected version."""

    branch: BranchRecord
    segment: SegmentRecord
    source_version: int | None = None
    """The expected version of the source branch; None skips the check."""

    @property
    def named(self) -> list[UUID]:
        """The entries of its segment, and its system message."""
        system = self.branch.system
        return [*self.segment.entries, *([] if system is None else [system])]


class ChangeBranch(msgspec.Struct, frozen=True, gc=False):
    """Change a branch's system message, history or grants, if its version is as expected."""

    branch: BranchRecord
    """The new state; its `version` and `length` are the expected old ones."""
    segment: SegmentRecord | None = None
    """The new segment, if the history is rewritten."""
    above: tuple[SegmentRecord, ...] = ()
    """More new segments, each on top of the previous; the last becomes the branch's tail."""

    @property
    def segments(self) -> tuple[SegmentRecord, ...]:
        """All new segments, from the bottom up."""
        return () if self.segment is None else (self.segment, *self.above)


class RenameBranch(msgspec.Struct, frozen=True, gc=False):
    """Rename a branch, whatever its version; refused if another branch has the name."""

    branch: UUID
    name: str


class RemoveBranch(msgspec.Struct, frozen=True, gc=False):
    """Remove a branch, and the segments that no other branch uses."""

    branch: UUID


class RemoveMessages(msgspec.Struct, frozen=True, gc=False):
    """Erase messages from all histories; branches that contained one get a new version."""

    messages: tuple[UUID, ...]


RunState: TypeAlias = Literal["running", "suspended", "ended"]


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """A run of turns on a branch; `body` is the JSON of the state to resume it."""

    id: UUID
    branch: UUID
    state: RunState
    created: int
    updated: int
    body: bytes


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """An event of a run; erased with the message it refers to."""

    seq: int
    """Its number on the branch: 1, 2, 3, over all runs, without gaps unless some were erased."""
    run: UUID
    message: UUID | None
    body: bytes


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """The runs and events of a branch."""

    branch: UUID
    runs: list[RunRecord]
    """The oldest first."""
    events: list[EventRecord]


class PutRun(msgspec.Struct, frozen=True, gc=False):
    """Store a run's current state; refused if the token is not that of the last lease."""

    run: RunRecord
    token: int
    release: bool = False
    """Whether to release the lease in the same write; its other changes still apply."""


class CallStart(msgspec.Struct, frozen=True, gc=False):
    """A start of a tool call, identified by its request message."""

    message: UUID
    known: int | None
    """The expected number of earlier starts on any branch; None skips the check."""


class PutStarts(msgspec.Struct, frozen=True, gc=False):
    """Raise the start counts of tool calls, by request message, to at least these."""

    starts: tuple[tuple[UUID, int], ...]


class AddEvents(msgspec.Struct, frozen=True, gc=False):
    """Append events to a branch; refused if the token is not that of its last lease.

    Their runs must be stored, or put earlier in the same write. Identical events that exist are
    left unchanged; a different one with the same number is refused. A missing one before the last
    was erased, and stays so.
    """

    branch: UUID
    events: tuple[EventRecord, ...]
    token: int
    starts: tuple[CallStart, ...] = ()
    """The tool calls that new events among these start; refused if one was started more often than
    expected, on any branch. A call whose message was erased is not counted."""


class TakeLease(msgspec.Struct, frozen=True, gc=False):
    """Acquire the lease of a branch within a write; refused while another holder has it.

    Its BranchHead has the state of the branch.
    """

    branch: UUID
    holder: str
    ttl: int
    """Duration in microseconds."""


class LabelRecord(msgspec.Struct, frozen=True, gc=False):
    """A label of a message; erased with it."""

    message: UUID
    judge: str
    """The judge; each has one label per message."""
    score: float | None
    """None deletes the judge's label."""
    created: int


class PutLabels(msgspec.Struct, frozen=True, gc=False):
    """Store labels, each replacing its judge's last one for the message."""

    labels: tuple[LabelRecord, ...]


class RequireBlobs(msgspec.Struct, frozen=True, gc=False):
    """Refuse the write unless the owner has these blobs, by hash; until it is done they stay."""

    hashes: tuple[bytes, ...]


Change: TypeAlias = (
    AddMessages
    | RequireBlobs
    | DescribeSession
    | Append
    | AddBranch
    | ChangeBranch
    | RenameBranch
    | RemoveBranch
    | RemoveMessages
    | PutRun
    | AddEvents
    | TakeLease
    | PutLabels
    | PutStarts
    | AddCommit
    | PutCommit
    | AddUses
)


class Write(msgspec.Struct, frozen=True, gc=False):
    """Changes to one session, applied atomically."""

    owner: Owner
    session: UUID
    changes: tuple[Change, ...]
    create: SessionRecord | None = None
    """A session to create first; refused if it exists."""


def single_append(changes: Sequence[Change]) -> tuple[MessageRecord, UUID] | None:
    """Return the message and the branch if the changes append one new message, else None.

    Nearly all writes are like this, and stores have a fast path for them.
    """
    if len(changes) != 2:
        return None
    added, appended = changes
    if type(added) is not AddMessages or type(appended) is not Append:
        return None
    if len(added.messages) != 1 or appended != Append(appended.branch, (added.messages[0].id,)):
        return None
    return added.messages[0], appended.branch


class BranchHead(msgspec.Struct, frozen=True, gc=False):
    """The state of a branch just before an append, for the writer to compare."""

    branch: UUID
    segment: UUID
    length: int
    """The position of the append in the segment; negative for a repeated one below it."""
    version: int
    taken: LeaseGrant | None = None
    """The result of a TakeLease."""

    def with_grant(self, taken: LeaseGrant) -> BranchHead:
        """Return a copy with the result of taking the lease."""
        return BranchHead(self.branch, self.segment, self.length, self.version, taken)


@dataclass(frozen=True, slots=True)
class SessionDump:
    """A session with all its stored data, except leases."""

    owner: Owner
    snapshot: Snapshot
    journals: list[JournalRecord]
    commits: CommitsRecord
    labels: list[LabelRecord]
    removed: list[RemovedMessage]
    starts: dict[UUID, int]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a turn on a branch, until it expires."""

    branch: UUID
    holder: str
    token: int
    """A fencing token, which grows with every holder: writes with an older one are refused."""
    expires: int
    """Microseconds of the store's lease clock; 0 once released."""


class LeaseGrant(msgspec.Struct, frozen=True, gc=False):
    """An acquired lease, with the state of the branch's journal."""

    lease: Lease
    seq: int
    """The number of the last event."""
    run: RunRecord | None
    """The newest run, if there was any."""
    commits: int
    """The number of the session's last commit."""

"""Records of sessions, branches, messages, runs and leases, and the changes to them.

A store never sees a Session: it is handed records and gives records back. Ids are made by whoever
writes, so that writing the same record again is recognised and changes nothing.

Those that are made for every message are structs of msgspec, which are made several times faster
than frozen dataclasses; they hold nothing that could lead back to them, so no cycle is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ValidationError, shown
from sennit.messages.json_values import text
from sennit.stores.records.commits import AddCommit, AddUses, CommitsRecord, PutCommit

LONGEST_NAME = 2000
"""How many bytes the name of a branch or a judge, or the key of a session may have.

PostgreSQL can index no more than some 2,700.
"""
LONGEST_OWNER = 800
"""The same for the names of tenants, users and agents: all three share a row of an index."""


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
        """All that tells it from others, in the order of the columns of a store."""
        return self.tenant, self.kind, self.name, self.user

    def is_of(self, user: Owner) -> bool:
        """Return whether this is that user, or their own agent or resources."""
        mine = (self.tenant, self.user) == (user.tenant, user.name)
        return self == user or (mine and user.kind == "user")


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session: its id, and the key people know it by."""

    id: UUID
    key: str | None
    user: str
    """The sender of what is added with the role "user"."""
    created: int
    updated: int
    """When it last changed, in microseconds like all times here; larger with each write."""
    metadata: dict[str, Any]


class MessageRecord(msgspec.Struct, frozen=True, gc=False):
    """A message; `body` is the JSON of all but its id and time."""

    id: UUID
    created: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A run of message ids on top of the first `offset` ids below it."""

    id: UUID
    base: UUID | None
    offset: int
    entries: tuple[UUID, ...]
    taken: UUID | None = None
    """In a change: the segment whose entries it takes over, instead of naming any of its own."""


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """A branch: where its history ends, its system message, and what it may use."""

    id: UUID
    name: str
    created: int
    system: UUID | None
    segment: UUID
    length: int
    """How many entries its segment has."""
    resources: frozenset[str] | None
    """The services it was granted; None if it was never given grants."""
    capabilities: frozenset[str] | None
    """The output schemas it was granted; None exactly if `resources` is."""
    metadata: dict[str, Any]
    version: int = 0
    """Counts every change of it but those that a list of branches shows: appends, another name."""


def branch_name(value: Any) -> str:
    """Return a valid branch name; raises ValidationError."""
    return _check_name(value, "A branch's name", LONGEST_NAME)


def session_key(value: Any) -> str:
    """Return a valid session key; raises ValidationError."""
    return _check_name(value, "A session's key", LONGEST_NAME)


def judge_name(value: Any) -> str:
    """Return a valid name of a judge; raises ValidationError."""
    return _check_name(value, "by", LONGEST_NAME)


def owner_name(value: Any, what: str) -> str:
    """`given` as a name that a tenant, a user or an agent can have in every store, likewise.

    `what` it is to name is told in errors.
    """
    return _check_name(value, what, LONGEST_OWNER)


def _check_name(value: Any, what: str, max_bytes: int) -> str:
    name = text(value, what)
    if not name:
        raise ValidationError(f"{what} must not be empty; name one.")
    size = len(name) if len(name) > max_bytes else len(name.encode())
    if size > max_bytes:
        raise ValidationError(
            f"{what} may have {max_bytes} bytes, got {size}: {shown(name)}; shorten it."
        )
    return name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it is stored, or what has changed in it."""

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
    """Give a session other metadata."""

    metadata: dict[str, Any]


class AddMessages(msgspec.Struct, frozen=True, gc=False):
    """Keep messages; one that is already there with the same body is left alone."""

    messages: tuple[MessageRecord, ...]


class Append(msgspec.Struct, frozen=True, gc=False):
    """Put messages at the end of a branch, after whatever others have put there."""

    branch: UUID
    entries: tuple[UUID, ...]


class AddBranch(msgspec.Struct, frozen=True, gc=False):
    """Create a branch together with its segment, if what it was forked from is as last seen."""

    branch: BranchRecord
    segment: SegmentRecord
    source_version: int | None = None
    """The version that the branch it was forked from was last seen with; None is not checked."""

    @property
    def named(self) -> list[UUID]:
        """The messages that it names itself: entries of its segment, and its system message."""
        system = self.branch.system
        return [*self.segment.entries, *([] if system is None else [system])]


class ChangeBranch(msgspec.Struct, frozen=True, gc=False):
    """Give a branch another system message, history or grants, if nobody else has meanwhile."""

    branch: BranchRecord
    """How it shall be; its `version` and `length` are those it was last seen with."""
    segment: SegmentRecord | None = None
    """The new segment, where the history was rewritten."""
    above: tuple[SegmentRecord, ...] = ()
    """More new segments on top of it, each on the one before; the last is then the branch's."""

    @property
    def segments(self) -> tuple[SegmentRecord, ...]:
        """All new segments, from below."""
        return () if self.segment is None else (self.segment, *self.above)


class RenameBranch(msgspec.Struct, frozen=True, gc=False):
    """Give a branch another name, whatever else has changed; refused if another branch has it."""

    branch: UUID
    name: str


class RemoveBranch(msgspec.Struct, frozen=True, gc=False):
    """Forget a branch, and the segments nobody needs any more."""

    branch: UUID


class RemoveMessages(msgspec.Struct, frozen=True, gc=False):
    """Erase messages wherever they stand; the branches that showed one get a new version."""

    messages: tuple[UUID, ...]


RunState: TypeAlias = Literal["running", "suspended", "ended"]


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """A run of turns on a branch; `body` is the JSON of all that going on with it takes."""

    id: UUID
    branch: UUID
    state: RunState
    created: int
    updated: int
    body: bytes


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """Something that happened in a run; erased with the message it speaks of."""

    seq: int
    """Its number on the branch: 1, 2, 3, over all runs, without gaps unless some were erased."""
    run: UUID
    message: UUID | None
    body: bytes


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """All that is noted of the runs of a branch."""

    branch: UUID
    runs: list[RunRecord]
    """The oldest first."""
    events: list[EventRecord]


class PutRun(msgspec.Struct, frozen=True, gc=False):
    """Keep a run as it is now; refused if the token is not that of the branch's last lease."""

    run: RunRecord
    token: int
    release: bool = False
    """Whether the lease is given back in the same step; what else the write holds still counts."""


class CallStart(msgspec.Struct, frozen=True, gc=False):
    """A start of a tool call, which is known by the message that asks for it."""

    message: UUID
    known: int | None
    """How often the writer knows it was started before, on whichever branch; None starts it anyway.
    """


class PutStarts(msgspec.Struct, frozen=True, gc=False):
    """Keep that tool calls were started at least so often, by the messages that ask for them."""

    starts: tuple[tuple[UUID, int], ...]


class AddEvents(msgspec.Struct, frozen=True, gc=False):
    """Keep what happened on a branch; refused if the token is not that of its last lease.

    Their runs are there, or put earlier in the same write. Events that are there already are left
    alone; another one under the same number is refused. One before the last that is not there was
    erased, and stays so.
    """

    branch: UUID
    events: tuple[EventRecord, ...]
    token: int
    starts: tuple[CallStart, ...] = ()
    """The tool calls that new events among these start; refused if one of them was started more
    often than its writer knows, on this branch or another one. Not counted if erased."""


class TakeLease(msgspec.Struct, frozen=True, gc=False):
    """Take the lease of a branch together with other writes; refused while another holds it.

    Its Head tells how the branch stands.
    """

    branch: UUID
    holder: str
    ttl: int
    """For how many microseconds."""


class LabelRecord(msgspec.Struct, frozen=True, gc=False):
    """A label of a message; erased with it."""

    message: UUID
    judge: str
    """Who judged; each has one label per message."""
    score: float | None
    """None takes the judge's label back."""
    created: int


class PutLabels(msgspec.Struct, frozen=True, gc=False):
    """Keep labels, each in place of its judge's last one about the message."""

    labels: tuple[LabelRecord, ...]


Change: TypeAlias = (
    AddMessages
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
    """Changes to one session that belong together."""

    owner: Owner
    session: UUID
    changes: tuple[Change, ...]
    create: SessionRecord | None = None
    """The session, if it is to be made first; refused if it is there."""


def single_append(changes: Sequence[Change]) -> tuple[MessageRecord, UUID] | None:
    """The message and the branch, if the changes are one new message at the end of one branch.

    Nearly all writes are this one, and stores have a shorter way for it.
    """
    if len(changes) != 2:
        return None
    added, appended = changes
    if type(added) is not AddMessages or type(appended) is not Append:
        return None
    if len(added.messages) != 1 or appended.entries != (added.messages[0].id,):
        return None
    return added.messages[0], appended.branch


class BranchHead(msgspec.Struct, frozen=True, gc=False):
    """The state of a branch just before an append, for the writer to compare."""

    branch: UUID
    segment: UUID
    length: int
    """Where the append begins in the segment; negative if it was made before, below it."""
    version: int
    taken: LeaseGrant | None = None
    """What taking its lease gave, if that was done."""

    def with_taken(self, taken: LeaseGrant) -> BranchHead:
        """Return a copy with the result of taking the lease."""
        return BranchHead(self.branch, self.segment, self.length, self.version, taken)


@dataclass(frozen=True, slots=True)
class SessionDump:
    """A session with all that a store keeps of it, but for its leases."""

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
    """Grows with every new holder: a store refuses what an older one still sends."""
    expires: int
    """In microseconds of the clock that the store judges leases by; 0 once it was released."""


class LeaseGrant(msgspec.Struct, frozen=True, gc=False):
    """A lease that was taken, and what was noted of runs on the branch before."""

    lease: Lease
    seq: int
    """The number of the last event."""
    run: RunRecord | None
    """The newest run, if there was any."""
    commits: int
    """The number of the session's last commit."""

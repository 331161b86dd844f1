"""A session as JSON lines of an archive.

First the session, then its messages, segments and branches, then its commits, what was used, its
labels, and how often its tool calls were started; each line says its kind, and whatever a line
refers to stands before it. So a base cannot build on itself, and one pass writes or reads. Of a
commit's result only the summary is exported, not its changes to memories, which are not part of a
session archive. An unfinished commit is finished after import.

Lines are untrusted: messages are validated like new ones, ids and names must be unique, references
must resolve, and no branch may contain a message twice. A session is read as a whole, or an
ArchiveError names the wrong line.

The grants of a branch are written for people who read the file, and dropped when it is read back:
an archive grants nothing. A branch that was given grants comes back with empty ones, so that it
stays fenced; one that was never given any comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import UUID

import msgspec

from sennit import clock
from sennit.errors import ArchiveError, CodecError, SennitError, ValidationError, short_repr
from sennit.messages.codec import dumps, loads, reader
from sennit.messages.content import SystemContent
from sennit.messages.json_values import plain_dict, validate_text
from sennit.messages.message import Message, party
from sennit.stores.base import damaged_message
from sennit.stores.checksums import DAMAGED
from sennit.stores.records.commits import CommitRecord, CommitsRecord, UseRecord
from sennit.stores.records.sessions import (
    BranchRecord,
    LabelRecord,
    MessageRecord,
    Owner,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    branch_name,
)
from sennit.stores.session_ids import session_id
from sennit.stores.transfer.container import MAX_LINE, Count, Moment

_SUMMARY_FIELDS = ("abstract", "overview")
_MAX_FLOAT = 1.7976931348623157e308  # 1e999 is read as infinity, which is no score


class _SessionLine(msgspec.Struct, tag_field="kind", tag="session", forbid_unknown_fields=True):
    id: UUID
    key: str | None
    user: str
    created: Moment
    metadata: dict[str, Any]


class _MessageLine(msgspec.Struct, tag_field="kind", tag="message", forbid_unknown_fields=True):
    id: UUID
    created: Moment
    body: dict[str, Any]


class _SegmentLine(msgspec.Struct, tag_field="kind", tag="segment", forbid_unknown_fields=True):
    id: UUID
    base: UUID | None
    offset: Count
    entries: list[UUID]


class _BranchLine(msgspec.Struct, tag_field="kind", tag="branch", forbid_unknown_fields=True):
    id: UUID
    name: str
    created: Moment
    system: UUID | None
    segment: UUID
    resources: list[str] | None
    capabilities: list[str] | None
    metadata: dict[str, Any]


class _CommitLine(msgspec.Struct, tag_field="kind", tag="commit", forbid_unknown_fields=True):
    id: UUID
    number: Count
    branch: UUID
    created: Moment
    state: Literal["open", "committed", "partial", "undone"]
    entries: list[UUID]
    abstract: str
    overview: str


class _UseLine(msgspec.Struct, tag_field="kind", tag="use", forbid_unknown_fields=True):
    id: UUID
    branch: UUID
    created: Moment
    head: UUID | None
    commit: Count | None
    used: dict[str, Any]


class _LabelLine(msgspec.Struct, tag_field="kind", tag="label", forbid_unknown_fields=True):
    message: UUID
    judge: Annotated[str, msgspec.Meta(min_length=1)]
    score: Annotated[float, msgspec.Meta(ge=-_MAX_FLOAT, le=_MAX_FLOAT)]
    created: Moment


class _StartsLine(msgspec.Struct, tag_field="kind", tag="starts", forbid_unknown_fields=True):
    message: UUID
    times: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


_Line: TypeAlias = (
    _SessionLine
    | _MessageLine
    | _SegmentLine
    | _BranchLine
    | _CommitLine
    | _UseLine
    | _LabelLine
    | _StartsLine
)
_ORDER = get_args(_Line)


_parse = reader(object, MAX_LINE)


class LoadedSession(NamedTuple):
    """A session with its commits, labels and starts."""

    snapshot: Snapshot
    commits: CommitsRecord
    labels: list[LabelRecord]
    starts: dict[UUID, int]
    """The number of starts of tool calls, by request message."""


def written(loaded: LoadedSession) -> Iterator[bytes]:
    """Yield the lines of a session, whose segments must follow their bases."""
    session = loaded.snapshot.session.key or str(loaded.snapshot.session.id)
    for line in _lines(loaded):
        try:
            yield dumps(line, MAX_LINE - 1) + b"\n"
        except CodecError as error:
            raise ArchiveError(
                f"{_describe(line)} of session {short_repr(session)} does not fit an archive. "
                f"{error}"
            ) from error


def _describe(line: _Line) -> str:
    tag = str(line.__struct_config__.tag)
    return f"{tag.capitalize()} {getattr(line, 'id', '')}".rstrip()


def _lines(loaded: LoadedSession) -> Iterator[_Line]:
    snapshot = loaded.snapshot
    session = snapshot.session
    yield _SessionLine(session.id, session.key, session.user, session.created, session.metadata)
    for message in snapshot.messages:
        if message.body == DAMAGED:
            raise damaged_message(message.id)
        yield _MessageLine(message.id, message.created, loads(message.body))
    for segment in snapshot.segments:
        entries = list(segment.entries)
        yield _SegmentLine(segment.id, segment.base, segment.offset, entries)
    for branch in snapshot.branches:
        yield _branch_line(branch)
    for commit in loaded.commits.commits:
        body: dict[str, Any] = loads(commit.body)
        state = "open" if commit.state == "failed" else commit.state
        columns = (commit.id, commit.number, commit.branch, commit.created, state)
        summary = (str(body.get(name, "")) for name in _SUMMARY_FIELDS)
        yield _CommitLine(*columns, list(commit.entries), *summary)
    for use in loaded.commits.uses:
        columns = (use.id, use.branch, use.created, use.head, use.commit)
        yield _UseLine(*columns, loads(use.body))
    for label in loaded.labels:
        if label.score is not None:
            yield _LabelLine(label.message, label.judge, label.score, label.created)
    for message, times in sorted(loaded.starts.items()):
        yield _StartsLine(message, times)


def _branch_line(branch: BranchRecord) -> _BranchLine:
    return _BranchLine(
        id=branch.id,
        name=branch.name,
        created=branch.created,
        system=branch.system,
        segment=branch.segment,
        resources=None if branch.resources is None else sorted(branch.resources),
        capabilities=None if branch.capabilities is None else sorted(branch.capabilities),
        metadata=branch.metadata,
    )


def read(lines: Iterable[bytes], owner: Owner) -> LoadedSession:
    """Return the session in these lines, as a session of the owner; raises ArchiveError."""
    reader = _Reader(owner)
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.take(msgspec.convert(_parse(line), _Line))
        except (SennitError, msgspec.ValidationError) as error:
            raise ArchiveError(f"Line {number} of a session is invalid: {error}") from error
    try:
        return reader.finished()
    except ValidationError as error:
        raise ArchiveError(f"A session of {number} lines is invalid: {error}") from error


class _Reader:
    """Parses lines in order, and refuses those that contradict earlier ones."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._kind = 0
        self._session: SessionRecord | None = None
        self._messages: dict[UUID, MessageRecord] = {}
        self._systems: set[UUID] = set()
        self._segments: dict[UUID, SegmentRecord] = {}
        self._branches: dict[UUID, BranchRecord] = {}
        self._names: set[str] = set()
        self._tails: set[UUID] = set()
        self._commits: dict[UUID, CommitRecord] = {}
        self._uses: dict[UUID, UseRecord] = {}
        self._covered: set[UUID] = set()
        self._labels: dict[tuple[UUID, str], LabelRecord] = {}
        self._starts: dict[UUID, int] = {}

    def take(self, line: _Line) -> None:
        """Add the record of a line; raises ValidationError."""
        kind = _ORDER.index(type(line))
        if kind < self._kind or (kind > 0) == (self._session is None):
            raise ValidationError(
                "Lines come in the order session, messages, segments, branches, commits, uses, "
                "labels, starts."
            )
        self._kind = kind
        getattr(self, f"_take_{line.__struct_config__.tag}")(line)

    def finished(self) -> LoadedSession:
        """Return the whole session after the last line; raises ValidationError."""
        if self._session is None:
            raise ValidationError("It is empty.")
        segments = list(self._segments.values())
        _refuse_unused(segments, self._tails)
        _refuse_repeats(segments)
        messages, branches = list(self._messages.values()), list(self._branches.values())
        snapshot = Snapshot(self._session, messages, segments, branches)
        labels = list(self._labels.values())
        commits = CommitsRecord(list(self._commits.values()), list(self._uses.values()))
        return LoadedSession(snapshot, commits, labels, self._starts)

    def _take_session(self, line: _SessionLine) -> None:
        uid = line.id if line.key is None else session_id(self._owner, _check_key(line.key))
        party(line.user, "user")
        metadata = plain_dict(line.metadata, "metadata")
        columns = (uid, line.key, line.user, line.created, line.created, metadata)
        self._session = SessionRecord(*columns)

    def _take_message(self, line: _MessageLine) -> None:
        _refuse_duplicate(line.id, self._messages, "message")
        if line.body.keys() & {"id", "created_at"}:
            raise ValidationError("A message's body has neither 'id' nor 'created_at'.")
        # Not from_record, which trusts its input.
        checked = Message.from_dict(
            {**line.body, "id": str(line.id), "created_at": clock.to_iso(line.created)}
        )
        if isinstance(checked.content, SystemContent):
            self._systems.add(line.id)
        self._messages[line.id] = MessageRecord(line.id, line.created, dumps(line.body))

    def _take_segment(self, line: _SegmentLine) -> None:
        _refuse_duplicate(line.id, self._segments, "segment")
        lowest, highest = 0, 0
        if line.base is not None:
            base = self._segments.get(line.base)
            if base is None:
                raise ValidationError(f"No segment {line.base} to build on stands before it.")
            lowest, highest = base.offset, base.offset + len(base.entries)
        if not lowest <= line.offset <= highest:
            raise ValidationError(
                f"Offset {line.offset} is not within its base, {lowest} to {highest}."
            )
        for entry in line.entries:
            if entry not in self._messages:
                raise ValidationError(f"There is no message {entry}.")
        entries = tuple(line.entries)
        self._segments[line.id] = SegmentRecord(line.id, line.base, line.offset, entries)

    def _take_branch(self, line: _BranchLine) -> None:
        _refuse_duplicate(line.id, self._branches, "branch")
        name = branch_name(line.name)
        if name in self._names:
            raise ValidationError(f"Two branches are named {short_repr(name)}.")
        if line.system is not None and line.system not in self._systems:
            raise ValidationError(f"There is no system message {line.system}.")
        if line.segment not in self._segments or line.segment in self._tails:
            raise ValidationError(f"There is no segment {line.segment} of its own.")
        has_no_grants = line.resources is None and line.capabilities is None
        grants: frozenset[str] | None = None if has_no_grants else frozenset()
        self._names.add(name)
        self._tails.add(line.segment)
        self._branches[line.id] = BranchRecord(
            id=line.id,
            name=name,
            created=line.created,
            system=line.system,
            segment=line.segment,
            length=len(self._segments[line.segment].entries),
            resources=grants,
            capabilities=grants,
            metadata=plain_dict(line.metadata, "metadata"),
        )

    def _take_commit(self, line: _CommitLine) -> None:
        if line.id in self._commits or line.number != len(self._commits) + 1:
            raise ValidationError(f"Commit {line.number} is not the next one.")
        for entry in line.entries:
            if entry not in self._messages or entry in self._covered:
                raise ValidationError(f"Message {entry} is not there, or covered twice.")
            self._covered.add(entry)
        summary = {name: validate_text(getattr(line, name), name) for name in _SUMMARY_FIELDS}
        self._commits[line.id] = CommitRecord(
            line.id,
            line.number,
            line.branch,
            line.created,
            line.state,
            tuple(line.entries),
            dumps({} if line.state == "open" else summary),
        )

    def _take_use(self, line: _UseLine) -> None:
        _refuse_duplicate(line.id, self._uses, "use")
        if line.commit is not None and not 0 < line.commit <= len(self._commits):
            raise ValidationError(f"There is no commit {line.commit} to count use {line.id}.")
        used = plain_dict(line.used, "A use")
        validate_text(used.get("uri"), "The URI of a use")
        columns = (line.id, line.branch, line.created, line.head, dumps(used), line.commit)
        self._uses[line.id] = UseRecord(*columns)

    def _take_label(self, line: _LabelLine) -> None:
        key = (line.message, validate_text(line.judge, "A judge's name"))
        if line.message not in self._messages:
            raise ValidationError(f"There is no message {line.message} to label.")
        if key in self._labels:
            raise ValidationError(f"{short_repr(line.judge)} has labelled {line.message} twice.")
        self._labels[key] = LabelRecord(line.message, line.judge, line.score, line.created)

    def _take_starts(self, line: _StartsLine) -> None:
        if line.message not in self._messages:
            raise ValidationError(f"There is no message {line.message} that asks for a tool call.")
        _refuse_duplicate(line.message, self._starts, "the starts of message")
        self._starts[line.message] = line.times


def _check_key(key: str) -> str:
    if not validate_text(key, "The session's key"):
        raise ValidationError("The session's key is empty.")
    try:
        UUID(key)
    except ValueError:
        return key
    raise ValidationError(f"The session's key {short_repr(key)} must not be an id.")


def _refuse_duplicate(uid: UUID, existing: dict[UUID, Any], noun: str) -> None:
    if uid in existing:
        raise ValidationError(f"Duplicate {noun} {uid}.")


def _refuse_unused(segments: list[SegmentRecord], tails: set[UUID]) -> None:
    """Raise ValidationError for a segment that no branch uses: a store would drop it."""
    used = set(tails)
    for segment in reversed(segments):
        if segment.id not in used:
            raise ValidationError(f"No branch needs segment {segment.id}.")
        if segment.base is not None:
            used.add(segment.base)


def _refuse_repeats(segments: list[SegmentRecord]) -> None:
    """Raise ValidationError if a history contains a message twice.

    Walks the tree of segments once, depth first, with the positions of each message on the path
    from the root. Offsets never shrink on the way up, so an entry is visible from above if the next
    segment's offset lies after it.
    """
    children: dict[UUID | None, list[SegmentRecord]] = {}
    for segment in segments:
        children.setdefault(segment.base, []).append(segment)
    offsets: list[int] = []
    positions: dict[UUID, list[tuple[int, int]]] = {}
    pending: list[tuple[SegmentRecord, bool]] = [(root, True) for root in children.get(None, [])]
    while pending:
        segment, is_entering = pending.pop()
        if not is_entering:
            offsets.pop()
            for entry in segment.entries:
                positions[entry].pop()
            continue
        offsets.append(segment.offset)
        depth = len(offsets) - 1
        for position, entry in enumerate(segment.entries, segment.offset):
            stack = positions.setdefault(entry, [])
            if stack and (stack[-1][0] == depth or stack[-1][1] < offsets[stack[-1][0] + 1]):
                raise ValidationError(f"A history contains message {entry} twice.")
            stack.append((depth, position))
        pending.append((segment, False))
        pending.extend((upper, True) for upper in children.get(segment.id, []))

"""Conversion of messages, branches and segments to and from the records of a store."""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.sessions.grants import Grants
from sennit.sessions.segments import Segment
from sennit.stores.base import segment_cycle
from sennit.stores.records.sessions import (
    BranchRecord,
    ChangeBranch,
    MessageRecord,
    SegmentRecord,
)

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch


def message_record(message: Message) -> MessageRecord:
    """Convert a message to its record."""
    return MessageRecord(message.id, message.created_us, dumps(message.to_record()))


def message_from_record(record: MessageRecord) -> Message:
    """Convert a record to its message."""
    return Message.from_stored(record.id, record.created, record.body)


def segment_record(segment: Segment) -> SegmentRecord:
    """Convert a segment to its record; from now on it only grows, as others may read it."""
    segment.stored = True
    base = None if segment.base is None else segment.base.id
    entries = tuple(segment) if segment.copy_of is None else ()
    return SegmentRecord(segment.id, base, segment.offset, entries, segment.copy_of)


def change_of(record: BranchRecord, old: Segment, new: Segment) -> ChangeBranch:
    """Return the change that replaces the tail `old` of a branch by `new`."""
    if new is old:
        return ChangeBranch(record)
    old_ids = {segment.id.int for segment, _ in old.chain()}
    added = [segment_record(segment) for segment, _ in new.chain() if segment.id.int not in old_ids]
    return ChangeBranch(record, added[0], tuple(added[1:]))


def branch_record(
    branch: Branch, tail: Segment, system: UUID | None, grants: Grants
) -> BranchRecord:
    """Return the record of a branch with this state and the version last seen."""
    resources, capabilities = grants.columns
    return BranchRecord(
        id=branch.id,
        name=branch.name,
        created=branch.created_us,
        system=system,
        segment=tail.id,
        length=len(branch._tail),
        resources=resources,
        capabilities=capabilities,
        metadata=dict(branch.metadata),
        version=branch._version,
    )


def merge_segments(records: Iterable[SegmentRecord], segments: dict[UUID, Segment]) -> None:
    """Add the recorded segments to `segments`, extending those that it already has.

    Raises StoreError if a base is missing or circular.
    """
    pending = {record.id: record for record in records}
    while pending:
        chain = [pending.popitem()[1]]
        while (base := chain[-1].base) is not None and base in pending:
            chain.append(pending.pop(base))
        if base is not None and base not in segments:
            raise segment_cycle(base)
        for record in reversed(chain):
            _merge_segment(record, segments)


def _merge_segment(record: SegmentRecord, segments: dict[UUID, Segment]) -> None:
    segment = segments.get(record.id)
    if segment is not None:
        segment.grow(record.entries)
        return
    base = None if record.base is None else segments[record.base]
    if base is not None:
        base.shared = max(base.shared, record.offset - base.offset)
    segments[record.id] = Segment(record.entries, base, record.offset, stored=True, id=record.id)

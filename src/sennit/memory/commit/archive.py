"""Phase 1 of a commit: archive the entries that no commit covers yet, in one write.

Nothing is moved or copied: the entries stay on their branch, and the store records which commit
covers them, in which order. An entry shared by branches is covered once, by the first commit on any
of them. The rest, with the system message, is current (see `sessions.unarchived`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sennit import clock
from sennit.ids import new_id
from sennit.memory.commit.usage import uses_to_count
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.repository import SessionRepository
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.sessions.session import SessionCore
from sennit.sessions.unarchived import add_archive, archives_of
from sennit.stores.records.commits import AddCommit, ArchiveRecord, CommitRecord


def archive(
    session: SessionCore,
    repository: SessionRepository,
    branch: Branch,
    keep_recent: int,
    body: bytes,
) -> CommitRecord | None:
    """Archive the new entries of a branch except the last `keep_recent`; None if there are none.

    `body` is the body of the new commit.
    """

    def write_archive() -> CommitRecord | None:
        session.refresh()
        commit = _new_commit(session, branch, keep_recent, body)
        if commit is None:
            return None
        pending = repository.store.uses_of(repository.owner, session.id, None)
        uses = tuple(use.id for use in uses_to_count(branch, commit.entries, pending))
        repository.record(AddCommit(commit, uses))
        add_archive(session, ArchiveRecord(commit.number, commit.id, commit.entries))
        return commit

    return retry_on_conflict(write_archive, "the commits of this session")


def _new_commit(
    session: SessionCore, branch: Branch, keep_recent: int, body: bytes
) -> CommitRecord | None:
    """Return a commit of the new entries; its number and entries are read under one lock."""
    with session.lock:
        entries = _entries_to_archive(session, branch, keep_recent)
        number = archives_of(session).number + 1
    if not entries:
        return None
    return CommitRecord(
        id=new_id(),
        number=number,
        branch=branch.id,
        created=clock.now_us(),
        state="open",
        entries=tuple(entries),
        body=body,
    )


def current_messages(session: SessionCore, branch: Branch) -> list[Message]:
    """Return the system message and the messages that no commit known to the session covers."""
    with session.lock:
        return session.messages.pick(list(branch.current))


def unarchived_entries(session: SessionCore, branch: Branch) -> list[UUID]:
    """Return the entries of a branch that no commit covers, without its system message."""
    with session.lock:
        return [uid for uid in branch.current if uid != branch.system_id]


def _entries_to_archive(session: SessionCore, branch: Branch, keep_recent: int) -> Sequence[UUID]:
    entries = unarchived_entries(session, branch)
    end = max(0, len(entries) - keep_recent)
    if 0 < end < len(entries):
        end = _align_to_group(session.messages.pick(entries), end)
    return entries[:end]


def _align_to_group(messages: Sequence[Message], end: int) -> int:
    """Return the last index up to `end` that splits no group and no tool call from its result."""
    starts = _group_starts(messages)
    while end < len(messages) and (first := min(starts[end:])) < end:
        end = first
    return end


def group_id(message: Message) -> str | None:
    """Return the id of the group that a message was added in, if any."""
    match message.metadata.get("group"):
        case {"id": str(uid)}:
            return uid
        case _:
            return None


def _group_starts(messages: Sequence[Message]) -> list[int]:
    """Return, for each message, the index where its group or tool call begins."""
    groups: dict[str, int] = {}
    calls: dict[str, int] = {}
    starts: list[int] = []
    for index, message in enumerate(messages):
        content, start = message.content, index
        if (group := group_id(message)) is not None:
            start = groups.setdefault(group, index)
        if isinstance(content, ActionRequestContent):
            calls |= dict.fromkeys((content.call_id or str(message.id), str(message.id)), start)
        elif isinstance(content, ActionResponseContent):
            start = min(start, calls.get(str(content.request_id), index))
        starts.append(start)
    return starts

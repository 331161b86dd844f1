"""Phase 1 of a commit: archive the entries that no commit covers yet, in one write.

Nothing is moved or copied: the entries stay on their branch, and the store notes that they are
covered, in which order and by which commit. A shared entry is covered once, whichever branch is
committed first. What is left, with the system message, is what is current (see `sessions.current`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.ids import new_id
from sennit.memory.commit.usage import due
from sennit.memory.files.messages_jsonl import group_id
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.repository import SessionRepository
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.sessions.session import SessionCore
from sennit.stores.records.commits import AddCommit, ArchiveRecord, CommitRecord


def archive(
    session: SessionCore, keeper: SessionRepository, branch: Branch, keep_recent: int, body: bytes
) -> CommitRecord | None:
    """Archive what is new on a branch, but for the last few messages; None if nothing is.

    `body` is what the new commit says of itself.
    """

    def archived() -> CommitRecord | None:
        session.refresh()
        commit = _next(session, branch, keep_recent, body)
        if commit is None:
            return None
        waiting = keeper.store.uses_of(keeper.owner, session.id, None)
        uses = tuple(use.id for use in due(branch, commit.entries, waiting))
        keeper.write([AddCommit(commit, uses)])
        session.note_archive(ArchiveRecord(commit.number, commit.id, commit.entries))
        return commit

    return retry_on_conflict(archived, "the commits of this session")


def _next(
    session: SessionCore, branch: Branch, keep_recent: int, body: bytes
) -> CommitRecord | None:
    """The commit that archives what is new; its number and its entries belong together."""
    with session.lock:
        entries = _to_archive(session, branch, keep_recent)
        number = session.archives.number + 1
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


def current(session: SessionCore, branch: Branch) -> list[Message]:
    """The system message, and what no commit covers as far as the session knows."""
    with session.lock:
        return session.messages.pick(list(branch.current))


def uncovered(session: SessionCore, branch: Branch) -> list[UUID]:
    """The entries of a branch that no commit covers, in order; not its system message."""
    with session.lock:
        return [uid for uid in branch.current if uid != branch.system_id]


def _to_archive(session: SessionCore, branch: Branch, keep_recent: int) -> Sequence[UUID]:
    entries = uncovered(session, branch)
    end = max(0, len(entries) - keep_recent)
    if 0 < end < len(entries):
        end = _before_what_belongs_together(session.messages.pick(entries), end)
    return entries[:end]


def _before_what_belongs_together(messages: Sequence[Message], end: int) -> int:
    """The last place up to `end` that tears no group, and no call from its result, apart."""
    starts = _starts(messages)
    while end < len(messages) and (first := min(starts[end:])) < end:
        end = first
    return end


def _starts(messages: Sequence[Message]) -> list[int]:
    """For each message, where what it belongs to begins."""
    groups: dict[str, int] = {}
    calls: dict[str, int] = {}
    starts: list[int] = []
    for at, message in enumerate(messages):
        content, start = message.content, at
        if (group := group_id(message)) is not None:
            start = groups.setdefault(group, at)
        if isinstance(content, ActionRequestContent):
            calls |= dict.fromkeys((content.call_id or str(message.id), str(message.id)), start)
        elif isinstance(content, ActionResponseContent):
            start = min(start, calls.get(str(content.request_id), at))
        starts.append(start)
    return starts


def checked_recent(keep_recent: int) -> int:
    """Validate the number of messages to keep unarchived; raises ValidationError."""
    if not isinstance(keep_recent, int) or isinstance(keep_recent, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"keep_recent must be a number, got {shown(keep_recent)}.")
    if keep_recent < 0:
        raise ValidationError(f"keep_recent must be at least 0, got {keep_recent}.")
    return keep_recent

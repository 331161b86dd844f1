"""Phase 1 of a commit: entries that no commit covers yet become an archive, in one step.

Nothing is moved or copied: the entries stay on their branch, and the store notes that they are
covered, in which order and by which commit. A shared entry is covered once, whichever branch is
committed first. What is left, with the system message, is what is current.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError, InvalidTypeError, ValidationError, shown
from sennit.ids import new_id
from sennit.memory.used import due
from sennit.messages.content import ActionResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.keeper import Keeper
from sennit.sessions.session import SessionCore
from sennit.stores.commits import AddCommit, CommitRecord, CommitsRecord

_TRIES = 20


def archive(
    session: SessionCore, keeper: Keeper, branch: Branch, keep_recent: int, body: bytes
) -> CommitRecord | None:
    """Archive what is new on a branch, but for the last few messages; None if nothing is.

    `body` is what the new commit says of itself.
    """
    for _ in range(_TRIES):
        session.refresh()
        found = keeper.store.commits(keeper.owner, session.id)
        entries = _to_archive(session, branch, found, keep_recent)
        if not entries:
            return None
        commit = CommitRecord(
            id=new_id(),
            number=len(found.commits) + 1,
            branch=branch.id,
            created=clock.now_us(),
            state="open",
            entries=tuple(entries),
            body=body,
        )
        uses = tuple(use.id for use in due(branch, entries, found))
        try:
            keeper.write([AddCommit(commit, uses)])
        except ConflictError:  # someone else has just committed: look again what is left
            continue
        return commit
    raise ConflictError("Others commit this session all the time; try again.")


def uncovered(session: SessionCore, branch: Branch, found: CommitsRecord) -> list[UUID]:
    """The entries of a branch that no commit covers, in order; not its system message."""
    covered = {uid.int for commit in found.commits for uid in commit.entries}
    with session.lock:
        system = branch.system
        return [
            uid
            for uid in branch
            if uid.int not in covered and (system is None or uid.int != system.id.int)
        ]


def current(session: SessionCore, branch: Branch, found: CommitsRecord) -> list[Message]:
    """What the next prompt is about: the system message and what is not archived."""
    left = session.messages.pick(uncovered(session, branch, found))
    return left if branch.system is None else [branch.system, *left]


def _to_archive(
    session: SessionCore, branch: Branch, found: CommitsRecord, keep_recent: int
) -> Sequence[UUID]:
    entries = uncovered(session, branch, found)
    end = len(entries) - keep_recent
    messages = session.messages.pick(entries)
    while 0 < end < len(entries) and _belongs_to_the_one_before(messages, end):
        end -= 1
    return entries[: max(0, end)]


def _belongs_to_the_one_before(messages: Sequence[Message], at: int) -> bool:
    """Whether an archive that ended here would tear apart what was said together."""
    before, after = messages[at - 1], messages[at]
    group = _group(after)
    same_group = group is not None and group == _group(before)
    return same_group or isinstance(after.content, ActionResponseContent)


def _group(message: Message) -> str | None:
    match message.metadata.get("group"):
        case {"id": str(uid)}:
            return uid
        case _:
            return None


def checked_recent(keep_recent: int) -> int:
    """How many messages stay current; raises ValidationError."""
    if not isinstance(keep_recent, int) or isinstance(keep_recent, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"keep_recent must be a number, got {shown(keep_recent)}.")
    if keep_recent < 0:
        raise ValidationError(f"keep_recent must be at least 0, got {keep_recent}.")
    return keep_recent

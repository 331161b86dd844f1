"""Unarchived entries of a branch: those that no commit covers, and its system message.

A commit archives entries of a session on all branches. They stay on these branches, so forks, diffs
and searches see them, but prompts contain only the unarchived ones. The index of archived entries
is loaded with every refresh, and costs nothing in a session without commits.

`UnarchivedView` grows with its branch, so building a prompt again costs time only for the new
entries. A commit, or a rewrite of the branch, invalidates it.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from sennit.containers.element import Element
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore
    from sennit.stores.records.commits import ArchiveRecord

_T = TypeVar("_T", bound=Element)


@dataclass(slots=True)
class ArchiveIndex:
    """The entries of a session that commits cover, as of the last refresh."""

    number: int = 0
    """The number of the last commit."""
    last: int = 0
    """The id of the last commit as an int; greater ids are newer."""
    covering: dict[int, int] = field(default_factory=dict[int, int])
    """The number of the commit that covers an entry."""
    commit_ids: dict[int, int] = field(default_factory=dict[int, int])
    """The id of each commit as an int, by number."""

    def add(self, archives: Iterable[ArchiveRecord]) -> None:
        """Add archives in the order of their numbers, skipping those already added."""
        for archive in archives:
            if archive.number <= self.number:
                continue
            self.covering.update((entry.int, archive.number) for entry in archive.entries)
            self.number, self.last = archive.number, max(self.last, archive.commit.int)
            self.commit_ids[archive.number] = archive.commit.int

    def covered(self, entry: UUID, before: UUID) -> bool:
        """Return whether an entry was archived before a message was created."""
        number = self.covering.get(entry.int)
        return number is not None and self.commit_ids[number] < before.int


def archives_of(session: SessionCore) -> ArchiveIndex:
    """Return the entries of a session that commits cover, as of the last refresh."""
    return session._archives


def add_archive(session: SessionCore, archive: ArchiveRecord) -> None:
    """Add the archive of a commit that this process just made."""
    with session.lock:
        session._generation += 1
        session._archives.add([archive])


class UnarchivedView(Progression):
    """The unarchived ids of one branch; read it under the lock of the session."""

    __slots__ = ("_archives", "_branch", "_built_from", "_consumed", "archived_to", "commits")

    archived_to: int
    """The index on the branch after the last archived entry."""
    commits: dict[int, None]
    """The numbers of the commits that cover entries of the branch."""

    def __init__(self, branch: Branch, archives: ArchiveIndex) -> None:
        super().__init__()
        self._branch, self._archives = branch, archives
        self._built_from = (branch.revision, archives, archives.number)
        self._consumed = self.archived_to = 0
        self.commits = {}

    @property
    def since(self) -> int:
        """The id of the last commit as an int."""
        return self._archives.last

    def is_current(self, archives: ArchiveIndex) -> bool:
        """Return whether the branch has only grown and nothing was committed since creation."""
        revision, index, number = self._built_from
        return revision == self._branch.revision and index is archives and number == index.number

    def catch_up(self) -> None:
        """Read the entries appended to the branch since the last call."""
        covering, system = self._archives.covering, self._branch.system_id
        for position, uid in enumerate(self._branch[self._consumed :], self._consumed):
            number = covering.get(uid.int)
            if number is None or uid == system:
                self._store((uid,))
            else:
                self.commits[number] = None
                self.archived_to = position + 1
        self._consumed = len(self._branch)

    def items_of(self, pile: Pile[_T], start: int = 0) -> list[_T]:
        """Return the items of the ids from index `start` on, read under the session's lock."""
        with self._branch.session.lock:
            return super().items_of(pile, start)

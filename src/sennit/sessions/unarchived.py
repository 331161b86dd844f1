"""Unarchived entries of a branch: those that no commit covers, and its system message.

A commit archives entries of a session, whichever branches they stand on. They stay on these
branches, so forks, diffs and searches see them; prompts are made of what is left. Which entries are
archived is read from the store with all else that others may have changed, and costs nothing where
nobody has committed.

`UnarchivedView` grows with its branch, so that a prompt made again costs what was added. A commit,
or a rewrite of the branch, makes a new one.
"""

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
    from sennit.stores.records.commits import ArchiveRecord

_T = TypeVar("_T", bound=Element)


@dataclass(slots=True)
class ArchiveIndex:
    """The entries of a session that commits cover, as far as known here."""

    number: int = 0
    """Of the last commit."""
    last: int = 0
    """Its id, as a number: ids that are greater were made after it."""
    covering: dict[int, int] = field(default_factory=dict[int, int])
    """The number of the commit that covers an entry."""
    made: dict[int, int] = field(default_factory=dict[int, int])
    """The id of each commit, as a number."""

    def take(self, found: Iterable[ArchiveRecord]) -> None:
        """Know of more commits, in their order; those that are known are left out."""
        for one in found:
            if one.number <= self.number:
                continue
            self.covering.update((entry.int, one.number) for entry in one.entries)
            self.number, self.last = one.number, max(self.last, one.commit.int)
            self.made[one.number] = one.commit.int

    def covered(self, entry: UUID, before: UUID) -> bool:
        """Return whether an entry was archived before a message was made."""
        number = self.covering.get(entry.int)
        return number is not None and self.made[number] < before.int


class UnarchivedView(Progression):
    """The unarchived ids of one branch; read it under the lock of the session."""

    __slots__ = ("_archives", "_branch", "_read", "_seen", "archived_to", "commits")

    archived_to: int
    """The index, on the branch, behind the last entry that is archived."""
    commits: dict[int, None]
    """The numbers of the commits that cover entries of the branch."""

    def __init__(self, branch: Branch, archives: ArchiveIndex) -> None:
        super().__init__()
        self._branch, self._archives = branch, archives
        self._seen = (branch.revision, archives, archives.number)
        self._read = self.archived_to = 0
        self.commits = {}

    @property
    def since(self) -> int:
        """The id of the last commit, as a number."""
        return self._archives.last

    def fits(self, archives: ArchiveIndex) -> bool:
        """Return whether the branch was only added to, and nothing committed, since this was
        made.
        """
        revision, known, number = self._seen
        return revision == self._branch.revision and known is archives and number == known.number

    def catch_up(self) -> None:
        """Take in what was added to the branch."""
        covering, system = self._archives.covering, self._branch.system_id
        for at, uid in enumerate(self._branch[self._read :], self._read):
            number = covering.get(uid.int)
            if number is None or uid == system:
                self._store((uid,))
            else:
                self.commits[number] = None
                self.archived_to = at + 1
        self._read = len(self._branch)

    def items_of(self, pile: Pile[_T], start: int = 0) -> list[_T]:
        """Return the messages of the ids from index `start` on, read atomically."""
        with self._branch.session.lock:
            return super().items_of(pile, start)

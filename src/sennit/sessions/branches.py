"""The branches of a session, by id and by name."""

# A session may write its branches and piles directly, bypassing their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

from sennit.containers.element import Ref, key_of
from sennit.containers.pile import Pile
from sennit.errors import (
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.sessions.branch import Branch
from sennit.stores.records.sessions import branch_name

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore

BranchRef: TypeAlias = Branch | UUID | str
Branches: TypeAlias = BranchRef | Iterable[BranchRef]

DEFAULT_BRANCH = "main"
RAISE: Any = object()
"""The sentinel for no default: a missing item raises."""


class BranchPile(Pile[Branch]):
    """The branches of a session; changes go through the session, which validates and stores them.

    `include_draft`, `discard` and `rename` change memory only.
    """

    __slots__ = ("_last_numbers", "_session", "named")

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Branch)
        self._session = session
        self.named: dict[str, Branch] = {}
        """The branches by name."""
        self._last_numbers: dict[str, int] = {}  # in automatic names, by stem

    def add(self, item: Branch) -> None:
        """Raise ValidationError: only the session creates branches."""
        raise ValidationError(
            f"Cannot add {short_repr(item)}: use session.create_branch() or fork()."
        )

    def __contains__(self, ref: object) -> bool:
        """Return whether the branch, its id or its name is here."""
        return (isinstance(ref, str) and ref in self.named) or super().__contains__(ref)

    def get(self, ref: Any, default: Any = RAISE) -> Any:
        """Return the branch with an id or name, or the default; raises NotFoundError."""
        if isinstance(ref, Branch):
            branch = ref if self._items.get(ref._id.int) is ref else None
        else:
            with self._session.lock:
                branch = self.named.get(ref) if isinstance(ref, str) else None
                if branch is None and (key := key_of(ref)) is not None:
                    branch = self._items.get(key)
        if branch is None and default is RAISE:
            raise self._missing(ref)
        return default if branch is None else branch

    def _missing(self, ref: object) -> NotFoundError:
        if isinstance(ref, Branch):
            return NotFoundError(
                f"Branch {ref.name!r} belongs to another session or was removed; "
                f"use a branch of this one."
            )
        return NotFoundError(
            f"No branch {short_repr(ref)} in this session; there are: {listed(self.named)}."
            f"{did_you_mean(ref, self.named)}"
        )

    def resolve(self, refs: Branches | None) -> list[Branch]:
        """Return the distinct branches of one or more references; raises NotFoundError."""
        if refs is None:
            return []
        if isinstance(refs, (Branch, UUID, str)):
            return [self.get(refs)]
        if not isinstance(refs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"branches must be a branch or a list of them, got {short_repr(refs)}."
            )
        branches = [self.get(ref) for ref in refs]
        return list({branch.id.int: branch for branch in branches}.values())

    def by_key(self, key: int) -> Branch | None:
        """Return the branch with an id, given as an int."""
        return self._items.get(key)

    def remove(self, ref: Ref) -> Branch:
        """Remove a branch; its messages stay. Raises NotFoundError."""
        return self._session.remove_branch(cast("BranchRef", ref))

    def clear(self) -> None:
        """Remove all branches; the messages stay."""
        with self._session.lock:
            for branch in self:
                self._session.remove_branch(branch)

    def free_name(self, name: str | None, stem: str) -> str:
        """Return `name`, or without one the next free automatic name; raises ExistsError."""
        if name is not None:
            chosen = branch_name(name)
            self.check_free(chosen)
            return chosen
        number = self._last_numbers.get(stem, 0) + 1
        while f"{stem}_{number}" in self.named:
            number += 1
        self._last_numbers[stem] = number
        return f"{stem}_{number}"

    def check_free(self, name: str) -> None:
        """Raise ExistsError if a branch has this name."""
        if name in self.named:
            from sennit.stores.base import name_taken  # slow to import

            raise name_taken(name)

    def include_draft(self, branch: Branch) -> Branch:
        """Insert a branch and return it, or the one with its id that a refresh has loaded."""
        if not self._insert(branch):
            return self._items[branch.id.int]
        self.named[branch.name] = branch
        return branch

    def discard(self, branch: Branch) -> None:
        """Drop a branch that was removed."""
        if self._discard(branch) is not None:
            del self.named[branch.name]

    def rename(self, names: Mapping[Branch, str]) -> None:
        """Rename branches, all at once, as they may swap names."""
        for branch in names:
            self.named.pop(branch.name, None)
        for branch, name in names.items():
            branch._name = name
            self.named[name] = branch

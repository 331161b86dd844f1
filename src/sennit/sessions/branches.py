"""The branches of a session: create, find, rename, fork, remove.

What a session says is added elsewhere; here is how the lines of the conversation come about. A
change is checked whole before any of it is made.
"""

# A session is the one friend that may change its branches and piles past their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from sennit import clock
from sennit.containers.element import Ref, key_of
from sennit.containers.flow import Flow
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
    ValidationError,
    shown,
)
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch, LeaseTerms
from sennit.sessions.grants import (
    Capabilities,
    Grants,
    Resources,
    capability_names,
    resource_names,
)
from sennit.sessions.segments import Segment
from sennit.sessions.state import SessionData
from sennit.sessions.views import RAISE, BranchPile, MessagePile
from sennit.stores.records.sessions import RemoveBranch, RenameBranch, branch_name

BranchRef: TypeAlias = Branch | UUID | str
Branches: TypeAlias = BranchRef | Iterable[BranchRef]
_Default = TypeVar("_Default")

DEFAULT_BRANCH = "main"
_FORK_NUMBER = re.compile(r"_fork_\d+$")


class BranchRegistry(SessionData):
    """Messages in memory and store, and the branches through them."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The last number given to an automatic name, by its stem."""
        return {}

    @property
    def messages(self) -> MessagePile:
        """All messages, on a branch or not, by id."""
        return self._messages

    @property
    def branches(self) -> BranchPile:
        """All branches, by id."""
        return self._branches

    @property
    def conversations(self) -> Flow[Message, Branch]:
        """Messages and branches as a flow."""
        return self._conversations

    @property
    def default_branch(self) -> Branch:
        """The branch named "main", made when first needed."""
        with self.lock:
            found = self._named.get(DEFAULT_BRANCH)
            if found is not None:  # an empty branch is falsy, like a list
                return found
            try:
                return self.create_branch(DEFAULT_BRANCH)
            except ExistsError:  # another process was faster
                return self.get_branch(DEFAULT_BRANCH)

    def create_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | str | None = None,
        capabilities: Capabilities | None = None,
        resources: Resources | None = None,
    ) -> Branch:
        """Create an empty branch.

        `system` is a system message or its text. `resources` and `capabilities` are sets of names
        that it may use ("*": all); with neither, it may use the objects that the program passes.
        Raises ExistsError if the name is taken.
        """
        grants = Grants.given(resources, capabilities)
        with self.lock:
            kept = self._system_of(system)

            def make(chosen: str) -> Branch:
                tail = Segment(kept=self._keeper is not None)
                return self._new_branch(chosen, tail, kept, grants)

            return self._under_a_name(name, "branch", make)

    async def acreate_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | str | None = None,
        capabilities: Capabilities | None = None,
        resources: Resources | None = None,
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """`create_branch` for async callers: many at once share one wait for the disk.

        With `lease`, the first run there need not take it, and nobody else can before.
        """
        grants = Grants.given(resources, capabilities)
        with self.lock:
            kept = self._system_of(system)

        def make(chosen: str) -> Awaitable[Branch]:
            tail = Segment(kept=self._keeper is not None)
            return self._anew_branch(chosen, tail, kept, grants, lease=lease)

        return await self._aunder_a_name(name, "branch", make)

    @overload
    def get_branch(self, branch: BranchRef) -> Branch: ...
    @overload
    def get_branch(self, branch: BranchRef, default: _Default) -> Branch | _Default: ...
    def get_branch(self, branch: BranchRef, default: Any = RAISE) -> Any:
        """The branch with that id or name; raises NotFoundError unless there is a default."""
        with self.lock:
            if isinstance(branch, Branch):
                found = branch if self._branches.by_key(branch.id.int) is branch else None
            elif isinstance(branch, str) and branch in self._named:
                found = self._named[branch]
            else:
                key = key_of(branch)
                found = None if key is None else self._branches.by_key(key)
        if found is not None:
            return found
        if default is not RAISE:
            return default
        raise self._no_branch(branch)

    def remove_branch(self, branch: BranchRef) -> Branch:
        """Take a branch out of the session; messages and other branches stay. NotFoundError."""
        with self.lock:
            found = self.get_branch(branch)
            if self._keeper is not None:
                self._keeper.write([RemoveBranch(found.id)])
            self._forget_branch(found)
            return found

    async def aremove_branch(self, branch: BranchRef) -> Branch:
        """`remove_branch` for async callers."""
        found = self.get_branch(branch)

        def apply() -> None:
            if found in self._branches:
                self._forget_branch(found)

        await self._achange(RemoveBranch(found.id), apply)
        return found

    def rename_branch(self, branch: BranchRef, name: str) -> None:
        """Give a branch another name; of several who do it at once, the last one's holds.

        Raises ExistsError if another branch has the name, and ValidationError for "main", which
        keeps its name: it is where all goes that names no branch.
        """
        with self.lock:
            self._keep_name(*self._renamed(branch, name))

    async def arename_branch(self, branch: BranchRef, name: str) -> None:
        """`rename_branch` for async callers."""
        with self.lock:
            found, chosen = self._renamed(branch, name)

        def apply() -> None:
            if found in self._branches:
                self._rename({found: chosen})

        try:
            await self._achange(RenameBranch(found.id, chosen), apply)
        except ExistsError:
            await self.arefresh()  # someone else took the name
            raise

    def _renamed(self, branch: BranchRef, name: str) -> tuple[Branch, str]:
        """A branch and the name it gets, also if it is the same: someone may have changed it."""
        found, chosen = self.get_branch(branch), branch_name(name)
        if found.name == DEFAULT_BRANCH != chosen:
            raise ValidationError(
                f"Branch {DEFAULT_BRANCH!r} cannot be renamed, as it is the default wherever no "
                f"branch is named; fork it under the name {chosen!r} instead."
            )
        if found.name != chosen:
            self._refuse_taken(chosen)
        return found, chosen

    def get_branch_system(self, branch: BranchRef) -> Message | None:
        """The branch's system message, if it has one."""
        return self.get_branch(branch).system

    def set_branch_system(self, branch: BranchRef, system: Message | UUID | str | None) -> None:
        """Give the branch this system message, or none; the history is not touched."""
        with self.lock:
            found, message = self.get_branch(branch), self._system_of(system)
            if message is None:
                found._set_system(None)
            else:
                self.place((message,), [found])

    def ensure_branch_system(self, branch: BranchRef, system: Message | str) -> None:
        """Give the branch this system message unless the one it has says the same."""
        with self.lock:
            message, there = self._system_of(system), self.get_branch(branch).system
            assert message is not None
            if there is None or not there.content.says_the_same(message.content):
                self.set_branch_system(branch, message)

    def fork(
        self,
        branch: BranchRef,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | str | Literal[True] | None = None,
    ) -> Branch:
        """Create a branch that shares the history of another: the same cost at any length.

        It goes up to and including `at`, a message or an index (by default the last). True copies
        capabilities, resources or system message; None, the default, gives none. The fork of a
        branch that was never given grants is like it.
        """
        with self.lock:
            source, length = self._forked(branch, at)
            grants = _granted(source, resources, capabilities)
            kept = source._system if system is True else self._system_of(system)
            return self.fork_history(source, length, name=name, grants=grants, system=kept)

    async def afork(
        self,
        branch: BranchRef,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | str | Literal[True] | None = None,
    ) -> Branch:
        """`fork` for async callers: many at once share one wait for the disk."""
        with self.lock:
            source, length = self._forked(branch, at)
            grants = _granted(source, resources, capabilities)
            kept = source._system if system is True else self._system_of(system)
        return await self.afork_history(source, length, name=name, grants=grants, system=kept)

    def _forked(self, branch: BranchRef, at: Ref | int | None) -> tuple[Branch, int]:
        """A branch and how much of its history a fork has that goes up to `at`."""
        source = self.get_branch(branch)
        return source, self._length_through(source, at)

    def fork_history(
        self,
        source: Branch,
        length: int,
        *,
        name: str | None,
        grants: Grants,
        system: Message | UUID | None,
        said: Sequence[Message] = (),
    ) -> Branch:
        """A fork with the first `length` messages of the history, not counting the system message.

        What is `said` on it are new messages, kept together with it or not at all. Raises
        ConflictError if another program has changed that history and it is not known here yet.
        """
        with self.lock:
            origin, seen = self.origin_of(source, length), source.version

            def make(chosen: str) -> Branch:
                tail = source._tail.on_top(length, [message.id for message in said])
                metadata = {"forked_from": origin}
                return self._new_branch(
                    chosen, tail, system, grants, metadata, said=said, source_version=seen
                )

            return self._under_a_name(name, _fork_stem(source), make)

    async def afork_history(
        self,
        source: Branch,
        length: int,
        *,
        name: str | None,
        grants: Grants,
        system: Message | UUID | None,
        said: Sequence[Message] = (),
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """`fork_history` for async callers; `lease` is as in `acreate_branch`."""
        seen = source.version  # what `length` was counted on

        def make(chosen: str) -> Awaitable[Branch]:
            with self.lock:
                metadata = {"forked_from": self.origin_of(source, length)}
                tail = source._tail.on_top(length, [message.id for message in said])
            return self._anew_branch(chosen, tail, system, grants, metadata, said, seen, lease)

        return await self._aunder_a_name(name, _fork_stem(source), make)

    def origin_of(self, source: Branch, length: int) -> dict[str, Any]:
        """Return the `forked_from` metadata of a fork with so many messages."""
        return {
            "branch_id": str(source.id),
            "branch_name": source.name,
            "created_at": clock.to_iso(source.created_us),
            "message_count": length + (source._system is not None),
        }

    def _targets(self, branches: Branches | None) -> list[Branch]:
        if branches is None:
            return []
        if isinstance(branches, (Branch, UUID, str)):
            return [self.get_branch(branches)]
        if not isinstance(branches, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"branches must be a branch or a list of them, got {shown(branches)}."
            )
        found = [self.get_branch(branch) for branch in branches]
        return list({branch.id.int: branch for branch in found}.values())

    def _under_a_name(self, name: str | None, stem: str, make: Callable[[str], Branch]) -> Branch:
        """Make a branch under `name`, or the next free automatic one.

        Another process may take an automatic name first; the store says so, and we take the next.
        """
        while True:
            chosen = self._free_name(name, stem)
            try:
                return make(chosen)
            except ExistsError:
                if name is not None or chosen not in self._named:
                    raise

    async def _aunder_a_name(
        self, name: str | None, stem: str, make: Callable[[str], Awaitable[Branch]]
    ) -> Branch:
        """The same for async callers."""
        while True:
            with self.lock:
                chosen = self._free_name(name, stem)
            try:
                return await make(chosen)
            except ExistsError:
                if name is not None or chosen not in self._named:
                    raise

    def _free_name(self, name: str | None, stem: str) -> str:
        """`name` if it is free, or the next free automatic one."""
        if name is not None:
            chosen = branch_name(name)
            self._refuse_taken(chosen)
            return chosen
        number = self._numbers.get(stem, 0) + 1
        while f"{stem}_{number}" in self._named:
            number += 1
        self._numbers[stem] = number
        return f"{stem}_{number}"

    def _refuse_taken(self, name: str) -> None:
        if name in self._named:
            from sennit.stores.base import name_taken  # with all of a store: late

            raise name_taken(name)

    def _system_of(self, system: Any) -> Message | None:
        """Check what is to become a system message; nothing is stored yet."""
        if system is None:
            return None
        named = not isinstance(system, Message) and key_of(system) is not None
        message = self._messages.get(system) if named else system
        if isinstance(message, str):
            message = Message(SystemContent(system_message=message))
        if not isinstance(message, Message) or not isinstance(message.content, SystemContent):
            raise InvalidTypeError(
                f"A system message is a text or a Message with a SystemContent, got "
                f"{shown(system)}."
            )
        known = self._messages.get(message, message)
        if known is not message and not known.content.says_the_same(message.content):
            raise ExistsError(
                f"The session already has message {message.id} with a different content."
            )
        return message

    def _length_through(self, branch: Branch, at: Ref | int | None) -> int:
        """Return the number of messages up to and including `at`."""
        if at is None:
            return branch._tail.total
        try:
            index = branch._position(at) if type(at) is int else branch.index(cast("Ref", at))
        except OutOfRangeError as error:
            raise OutOfRangeError(f"Cannot fork branch {branch.name!r} there. {error}") from None
        return index + (branch._system is None)

    def _no_branch(self, branch: object) -> NotFoundError:
        if isinstance(branch, Branch):
            return NotFoundError(
                f"Branch {branch.name!r} belongs to another session or was removed; "
                f"use a branch of this one."
            )
        names = ", ".join(map(repr, list(self._named)[:10])) or "none yet"
        return NotFoundError(f"No branch {shown(branch)} in this session; there are: {names}.")

    aset_branch_system = async_method(set_branch_system)


def _granted(
    source: Branch,
    resources: Resources | Literal[True] | None,
    capabilities: Capabilities | Literal[True] | None,
) -> Grants:
    """The grants of a fork: True copies those of its source, None gives none.

    The fork of a branch that was never given any is like it unless sets are given.
    """
    if not source.fenced and resources in (None, True) and capabilities in (None, True):
        return source.grants
    return Grants(
        source.resources if resources is True else resource_names(resources),
        source.capabilities if capabilities is True else capability_names(capabilities),
    )


def _fork_stem(source: Branch) -> str:
    """Return the name prefix of forks; forks of forks count on, so that names do not grow."""
    return f"{_FORK_NUMBER.sub('', source.name)}_fork"

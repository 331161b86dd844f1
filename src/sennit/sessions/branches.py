"""The branches of a session: create, get, rename, fork, remove.

Every change is validated completely before any of it is applied. Messages are added in `session`.
"""

# A session may write its branches and piles directly, bypassing their guards.
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
    short_repr,
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
    """The messages of a session, and the branches over them."""

    @cached_property
    def _last_auto_numbers(self) -> dict[str, int]:
        """The last number used in an automatic name, by its stem."""
        return {}

    @property
    def messages(self) -> MessagePile:
        """All messages by id, whether on a branch or not."""
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
        """The branch named "main", created on first access."""
        with self.lock:
            branch = self._branches_by_name.get(DEFAULT_BRANCH)
            if branch is not None:  # an empty branch is falsy, like a list
                return branch
            try:
                return self.create_branch(DEFAULT_BRANCH)
            except ExistsError:  # another process created it first
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

        `system` is a system message or its text. `resources` and `capabilities` are the names of
        the services and output schemas it may use ("*" for all). With neither, it may use the
        objects that the program passes.
        Raises ExistsError if the name is taken.
        """
        grants = Grants.given(resources, capabilities)
        with self.lock:
            system_message = self._resolve_system(system)

            def make(chosen: str) -> Branch:
                tail = Segment(stored=self._repository is not None)
                return self._create_branch(chosen, tail, system_message, grants)

            return self._with_free_name(name, "branch", make)

    async def acreate_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | str | None = None,
        capabilities: Capabilities | None = None,
        resources: Resources | None = None,
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """`create_branch` for async callers; concurrent calls share one group commit.

        A `lease` for the first run is acquired in the same write.
        """
        grants = Grants.given(resources, capabilities)
        with self.lock:
            system_message = self._resolve_system(system)

        def make(chosen: str) -> Awaitable[Branch]:
            tail = Segment(stored=self._repository is not None)
            return self._acreate_branch(chosen, tail, system_message, grants, lease=lease)

        return await self._awith_free_name(name, "branch", make)

    @overload
    def get_branch(self, branch: BranchRef) -> Branch: ...
    @overload
    def get_branch(self, branch: BranchRef, default: _Default) -> Branch | _Default: ...
    def get_branch(self, branch: BranchRef, default: Any = RAISE) -> Any:
        """Return the branch with that id or name, or the default; raises NotFoundError."""
        with self.lock:
            if isinstance(branch, Branch):
                result = branch if self._branches.by_key(branch.id.int) is branch else None
            elif isinstance(branch, str) and branch in self._branches_by_name:
                result = self._branches_by_name[branch]
            else:
                key = key_of(branch)
                result = None if key is None else self._branches.by_key(key)
        if result is not None:
            return result
        if default is not RAISE:
            return default
        raise self._branch_not_found(branch)

    def remove_branch(self, branch: BranchRef) -> Branch:
        """Remove a branch; messages and other branches stay. Raises NotFoundError."""
        with self.lock:
            target = self.get_branch(branch)
            if self._repository is not None:
                self._repository.write([RemoveBranch(target.id)])
            self._discard_branch(target)
            return target

    async def aremove_branch(self, branch: BranchRef) -> Branch:
        """`remove_branch` for async callers."""
        target = self.get_branch(branch)

        def apply() -> None:
            if target in self._branches:
                self._discard_branch(target)

        await self._achange(RemoveBranch(target.id), apply)
        return target

    def rename_branch(self, branch: BranchRef, name: str) -> None:
        """Rename a branch; of concurrent renames, the last one wins.

        Raises ExistsError if another branch has the name, and ValidationError for "main", the
        default wherever no branch is named.
        """
        with self.lock:
            self._write_name(*self._resolve_rename(branch, name))

    async def arename_branch(self, branch: BranchRef, name: str) -> None:
        """`rename_branch` for async callers."""
        with self.lock:
            target, new_name = self._resolve_rename(branch, name)

        def apply() -> None:
            if target in self._branches:
                self._rename_in_memory({target: new_name})

        try:
            await self._achange(RenameBranch(target.id, new_name), apply)
        except ExistsError:
            await self.arefresh()  # another process took the name
            raise

    def _resolve_rename(self, branch: BranchRef, name: str) -> tuple[Branch, str]:
        """Return a branch and its validated new name, even if unchanged, as memory may be stale."""
        target, new_name = self.get_branch(branch), branch_name(name)
        if target.name == DEFAULT_BRANCH != new_name:
            raise ValidationError(
                f"Branch {DEFAULT_BRANCH!r} cannot be renamed, as it is the default wherever no "
                f"branch is named; fork it under the name {new_name!r} instead."
            )
        if target.name != new_name:
            self._check_name_free(new_name)
        return target, new_name

    def get_branch_system(self, branch: BranchRef) -> Message | None:
        """Return the system message of a branch, if it has one."""
        return self.get_branch(branch).system

    def set_branch_system(self, branch: BranchRef, system: Message | UUID | str | None) -> None:
        """Set or remove the system message of a branch; the history stays as it is."""
        with self.lock:
            target, message = self.get_branch(branch), self._resolve_system(system)
            if message is None:
                target._set_system(None)
            else:
                self.append_messages((message,), [target])

    def ensure_branch_system(self, branch: BranchRef, system: Message | str) -> None:
        """Set the system message of a branch unless it already has the same content."""
        with self.lock:
            message, current = self._resolve_system(system), self.get_branch(branch).system
            assert message is not None
            if current is None or not current.content.says_the_same(message.content):
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
        """Create a branch that shares the history of another, in constant time.

        It shares the messages up to and including `at`, a message or an index (default: the last).
        True copies the capabilities, resources or system message of the source; None, the default,
        sets none. A fork of a branch without grants has no grants either.
        """
        with self.lock:
            source, length = self._fork_range(branch, at)
            grants = _fork_grants(source, resources, capabilities)
            system_message = source._system if system is True else self._resolve_system(system)
            return self.fork_history(
                source, length, name=name, grants=grants, system=system_message
            )

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
        """`fork` for async callers; concurrent calls share one group commit."""
        with self.lock:
            source, length = self._fork_range(branch, at)
            grants = _fork_grants(source, resources, capabilities)
            system_message = source._system if system is True else self._resolve_system(system)
        return await self.afork_history(
            source, length, name=name, grants=grants, system=system_message
        )

    def _fork_range(self, branch: BranchRef, at: Ref | int | None) -> tuple[Branch, int]:
        """Return the branch to fork and the length of the shared history up to `at`."""
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
        messages: Sequence[Message] = (),
    ) -> Branch:
        """Fork after the first `length` messages, not counting the system message.

        New `messages` are appended to the fork in the same write. Raises ConflictError if another
        process has changed the history since the last refresh.
        """
        with self.lock:
            origin, version = self.origin_of(source, length), source.version

            def make(chosen: str) -> Branch:
                tail = source._tail.fork(length, [message.id for message in messages])
                metadata = {"forked_from": origin}
                return self._create_branch(
                    chosen,
                    tail,
                    system,
                    grants,
                    metadata,
                    messages=messages,
                    source_version=version,
                )

            return self._with_free_name(name, _fork_stem(source), make)

    async def afork_history(
        self,
        source: Branch,
        length: int,
        *,
        name: str | None,
        grants: Grants,
        system: Message | UUID | None,
        messages: Sequence[Message] = (),
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """`fork_history` for async callers; `lease` is as in `acreate_branch`."""
        version = source.version  # the one that `length` refers to

        def make(chosen: str) -> Awaitable[Branch]:
            with self.lock:
                metadata = {"forked_from": self.origin_of(source, length)}
                tail = source._tail.fork(length, [message.id for message in messages])
            return self._acreate_branch(
                chosen, tail, system, grants, metadata, messages, version, lease
            )

        return await self._awith_free_name(name, _fork_stem(source), make)

    def origin_of(self, source: Branch, length: int) -> dict[str, Any]:
        """Return the `forked_from` metadata of a fork that shares `length` messages."""
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
                f"branches must be a branch or a list of them, got {short_repr(branches)}."
            )
        resolved = [self.get_branch(branch) for branch in branches]
        return list({branch.id.int: branch for branch in resolved}.values())

    def _with_free_name(self, name: str | None, stem: str, make: Callable[[str], Branch]) -> Branch:
        """Create a branch with `name`, or with the next free automatic name.

        Retries with another automatic name if another process has taken the first.
        """
        while True:
            chosen = self._free_name(name, stem)
            try:
                return make(chosen)
            except ExistsError:
                if name is not None or chosen not in self._branches_by_name:
                    raise

    async def _awith_free_name(
        self, name: str | None, stem: str, make: Callable[[str], Awaitable[Branch]]
    ) -> Branch:
        """`_with_free_name` for async callers."""
        while True:
            with self.lock:
                chosen = self._free_name(name, stem)
            try:
                return await make(chosen)
            except ExistsError:
                if name is not None or chosen not in self._branches_by_name:
                    raise

    def _free_name(self, name: str | None, stem: str) -> str:
        """Return `name`, or without one the next free automatic name; raises ExistsError."""
        if name is not None:
            chosen = branch_name(name)
            self._check_name_free(chosen)
            return chosen
        number = self._last_auto_numbers.get(stem, 0) + 1
        while f"{stem}_{number}" in self._branches_by_name:
            number += 1
        self._last_auto_numbers[stem] = number
        return f"{stem}_{number}"

    def _check_name_free(self, name: str) -> None:
        if name in self._branches_by_name:
            from sennit.stores.base import name_taken  # slow to import

            raise name_taken(name)

    def _resolve_system(self, system: Any) -> Message | None:
        """Return the message for a system message, its id or its text, without storing it."""
        if system is None:
            return None
        by_id = not isinstance(system, Message) and key_of(system) is not None
        message = self._messages.get(system) if by_id else system
        if isinstance(message, str):
            message = Message(SystemContent(system_message=message))
        if not isinstance(message, Message) or not isinstance(message.content, SystemContent):
            raise InvalidTypeError(
                f"A system message is a text or a Message with a SystemContent, got "
                f"{short_repr(system)}."
            )
        existing = self._messages.get(message, message)
        if existing is not message and not existing.content.says_the_same(message.content):
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

    def _branch_not_found(self, branch: object) -> NotFoundError:
        if isinstance(branch, Branch):
            return NotFoundError(
                f"Branch {branch.name!r} belongs to another session or was removed; "
                f"use a branch of this one."
            )
        names = ", ".join(map(repr, list(self._branches_by_name)[:10])) or "none yet"
        return NotFoundError(f"No branch {short_repr(branch)} in this session; there are: {names}.")

    aset_branch_system = async_method(set_branch_system)


def _fork_grants(
    source: Branch,
    resources: Resources | Literal[True] | None,
    capabilities: Capabilities | Literal[True] | None,
) -> Grants:
    """Return the grants of a fork: True copies those of the source, None grants nothing.

    A source that is not fenced makes a fork that is not fenced, unless names are passed.
    """
    if not source.fenced and resources in (None, True) and capabilities in (None, True):
        return source.grants
    return Grants(
        source.resources if resources is True else resource_names(resources),
        source.capabilities if capabilities is True else capability_names(capabilities),
    )


def _fork_stem(source: Branch) -> str:
    """Return the name prefix of a fork; a fork of a fork shares that of its source."""
    return f"{_FORK_NUMBER.sub('', source.name)}_fork"

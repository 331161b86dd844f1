"""The public Session.

SessionCore knows messages, branches and services; this class adds one-line doors to what is built
on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sennit.containers.flow import Flow
from sennit.containers.progression import Progression
from sennit.errors import InvalidTypeError, shown
from sennit.messages.message import Message, SenderRecipient
from sennit.operations.registry import OperationRegistry
from sennit.services.registry import ServiceRegistry
from sennit.sessions.diff import BranchDiff, diff
from sennit.sessions.session import BranchRef, SessionCore
from sennit.sessions.tree import BranchTree, tree

if TYPE_CHECKING:
    from sennit.operations.ipu import IPU
    from sennit.operations.operation import Operation


class Session(SessionCore):
    """A conversation with many branches: typed messages, stored once, shared by all of them.

    session = Session()
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Hello")), branches=main)
    other = session.fork(main, name="other")
    """

    def __init__(
        self,
        user: SenderRecipient = "user",
        conversations: Flow[Message, Progression] | None = None,
        services: ServiceRegistry | None = None,
        operations: OperationRegistry | None = None,
        *,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """`user` sends what is added by role; each of `conversations` becomes a branch.

        `services` and `operations` are what it may call and do, by default registries of its own.
        """
        super().__init__(
            user, conversations, services, id=id, created_at=created_at, metadata=metadata
        )
        if operations is not None and not isinstance(operations, OperationRegistry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"operations must be an OperationRegistry, got {shown(operations)}."
            )
        self._operations = OperationRegistry() if operations is None else operations

    @property
    def operations(self) -> OperationRegistry:
        """What `conduct` may be asked for, by name."""
        return self._operations

    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: str,
        ipu: IPU | None = None,
        params: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Operation:
        """An operation that the branch may run, ready to `invoke`; nothing has run yet.

        Parameters go by name, or together in `params`. Raises NotFoundError if there is no such
        operation, branch or service, and AccessError unless the branch was granted every service
        (`imodel`, `tools`) and `response_model` it names, and all that the operation requires.
        """
        from sennit.operations.conduct import conduct

        return conduct(
            self,
            self._operations,
            branch=branch,
            operation=operation,
            ipu=ipu,
            params=params,
            **more,
        )

    def diff(self, a: BranchRef, b: BranchRef) -> BranchDiff:
        """The common ancestor of two branches and what each has since; raises NotFoundError."""
        return diff(self.get_branch(a), self.get_branch(b))

    def tree(self) -> BranchTree:
        """The branches as a tree of forks; print it to see it."""
        return tree(self.branches)

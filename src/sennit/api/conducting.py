"""`conduct` of a session, typed: the result of a built-in operation follows from its parameters.

The types are those of `sennit.operations.params`; the operation itself checks the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sennit.api.session import Session
    from sennit.messages.content import InstructionContent
    from sennit.messages.message import Message
    from sennit.operations.ipu import IPU
    from sennit.operations.operation import Operation
    from sennit.operations.params import GenerateParams, InstructParams, ParseParams
    from sennit.operations.registry import OperationSpec
    from sennit.services.models.reply import Reply
    from sennit.sessions.branches import BranchRef

_T = TypeVar("_T")
_M = TypeVar("_M", bound="BaseModel")


class Conducting:
    """The methods of a session that start operations."""

    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: Literal["generate"],
        ipu: IPU | None = None,
        **more: Unpack[GenerateParams],
    ) -> Operation[Reply]: ...
    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: Literal["parse"],
        ipu: IPU | None = None,
        response_model: type[_M],
        **more: Unpack[ParseParams],
    ) -> Operation[_M]: ...
    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: Literal["communicate", "operate", "react"],
        ipu: IPU | None = None,
        instruction: str | InstructionContent | Message,
        response_model: type[_M],
        **more: Unpack[InstructParams],
    ) -> Operation[_M]: ...
    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: Literal["communicate", "operate", "react"],
        ipu: IPU | None = None,
        instruction: str,
        **more: Unpack[InstructParams],
    ) -> Operation[str]: ...
    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: OperationSpec[_T],
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation[_T]: ...
    @overload
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: str,
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation: ...
    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: str | OperationSpec,
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation:
        """Return an operation on a branch, ready to `invoke`; nothing has run yet.

        `operation` is the name of a registered operation, or what `register` returned.
        Parameters are passed by name, or together in `params`. Raises NotFoundError for an unknown
        operation, branch or service, and AccessError unless the branch was granted every service
        (`imodel`, `tools`) and `response_model` named, and all that the operation requires.
        """
        return self._conduct(branch, operation, ipu, params, more)

    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: Literal["generate"],
        ipu: IPU | None = None,
        **more: Unpack[GenerateParams],
    ) -> Operation[Reply]: ...
    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: Literal["parse"],
        ipu: IPU | None = None,
        response_model: type[_M],
        **more: Unpack[ParseParams],
    ) -> Operation[_M]: ...
    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: Literal["communicate", "operate", "react"],
        ipu: IPU | None = None,
        instruction: str | InstructionContent | Message,
        response_model: type[_M],
        **more: Unpack[InstructParams],
    ) -> Operation[_M]: ...
    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: Literal["communicate", "operate", "react"],
        ipu: IPU | None = None,
        instruction: str,
        **more: Unpack[InstructParams],
    ) -> Operation[str]: ...
    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: OperationSpec[_T],
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation[_T]: ...
    @overload
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: str,
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation: ...
    def conduct_sync(
        self,
        *,
        branch: BranchRef,
        operation: str | OperationSpec,
        ipu: IPU | None = None,
        params: Mapping[str, object] | None = None,
        **more: object,
    ) -> Operation:
        """`conduct` for programs without an event loop."""
        return self._conduct(branch, operation, ipu, params, more)

    def _conduct(
        self,
        branch: BranchRef,
        operation: str | OperationSpec,
        ipu: IPU | None,
        params: Mapping[str, object] | None,
        more: Mapping[str, Any],
    ) -> Operation:
        from sennit.operations.operation import conduct  # late: slow to import

        session = cast("Session", self)
        return conduct(
            session,
            session.operations,
            branch=branch,
            operation=operation,
            ipu=ipu,
            params=params,
            **more,
        )

"""The ToolBackend protocol, which a function or an MCP server implements.

A target says what it takes, checks arguments and makes the call. Everything else that a call needs
(time limits, results that can be stored, errors a model can read) is the same for all, in `tools`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sennit.ids import new_id
from sennit.messages.typescript import ToolSchema


def _new_call_id() -> str:
    return f"call_{new_id().hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Information about a tool call, passed to a parameter annotated with this type."""

    call_id: str = field(default_factory=_new_call_id)
    """The id of the call, as the model or we chose it."""
    idempotency_key: str = ""
    """The same whenever this call is made again, after a crash say; the call's id unless given."""
    session_id: UUID | None = None
    """The session the call belongs to, if it belongs to one."""
    branch: str | None = None
    """The name of the branch, if there is one."""

    def __post_init__(self) -> None:
        if not self.idempotency_key:
            object.__setattr__(self, "idempotency_key", self.call_id)


class ToolBackend(ABC):
    """Whatever a tool calls."""

    @property
    @abstractmethod
    def schema(self) -> ToolSchema:
        """Its own name, description and parameters."""

    @abstractmethod
    def bind(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments, plain JSON values, as `call` takes them.

        Raises ToolError, saying what is wrong with which argument; nothing has been called then.
        """

    @abstractmethod
    async def call(self, bound: Any, context: ToolContext) -> Any:
        """Make the call; gives or raises whatever comes of it."""

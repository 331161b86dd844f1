"""The ToolBackend protocol, which a function or an MCP server implements.

A backend describes its parameters, validates arguments and makes the call. `Tool` adds what all
calls share: timeouts, results that can be stored, errors that a model can read.
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
    """The id of the call, chosen by the model or generated."""
    idempotency_key: str = ""
    """The same each time this call is repeated, as after a crash; by default the call's id."""
    session_id: UUID | None = None
    """The session of the call, if it has one."""
    branch: str | None = None
    """The name of the branch, if there is one."""

    def __post_init__(self) -> None:
        if not self.idempotency_key:
            object.__setattr__(self, "idempotency_key", self.call_id)


class ToolBackend(ABC):
    """The implementation behind a tool."""

    @property
    @abstractmethod
    def schema(self) -> ToolSchema:
        """Its own name, description and parameters."""

    @property
    def positional_names(self) -> tuple[str, ...]:
        """The parameters that may be passed by position, in order; by default none."""
        return ()

    @abstractmethod
    def bind(self, arguments: Mapping[str, Any]) -> Any:
        """Convert JSON arguments to the form that `call` takes.

        Raises ToolError that names the invalid argument; nothing has been called then.
        """

    @abstractmethod
    async def call(self, bound: Any, context: ToolContext) -> Any:
        """Make the call; returns its result and may raise any exception."""

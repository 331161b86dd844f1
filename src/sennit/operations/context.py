"""The context of an operation: its session, branch and services.

The names of services are turned into services here and nowhere else, and never without checking
what the branch was granted. A string is only ever a registered name. A service that is passed as an
object is its own grant, unless the branch is fenced: then its name must be granted like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sennit.errors import InvalidTypeError, short_repr
from sennit.services.models.protocol import Model, is_model
from sennit.services.tools.tool import Tool
from sennit.sessions.grants import Needs
from sennit.sessions.service_call import as_list

if TYPE_CHECKING:
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The session and the branch an operation runs on; what every operation is called with."""

    session: SessionCore
    branch: Branch

    def model(self, imodel: str | Model) -> Model:
        """The model with that name; raises NotFoundError, or AccessError if it is not granted."""
        names = frozenset({model_grant_name(self.session.services, imodel)})
        if isinstance(imodel, str):
            self.branch.check_access(Needs(resources=names))
            return self.session.services.model(imodel)
        self.branch.check_access(Needs(passed_resources=names))
        return imodel

    def tools(self, tools: Any) -> list[Tool]:
        """The tools with those names; a typed function becomes one. Raises as `model` does."""
        services = self.session.services
        requested = as_list(tools)
        registered = frozenset(
            tool_grant_name(services, tool) for tool in requested if isinstance(tool, str)
        )
        all_names = frozenset(tool_grant_name(services, tool) for tool in requested)
        self.branch.check_access(Needs(resources=registered, passed_resources=all_names))
        return [services.as_tool(tool) for tool in requested]


def model_grant_name(services: ServiceRegistry, imodel: Any) -> str:
    """The name a model needs granted; raises NotFoundError or InvalidTypeError if it is none."""
    if isinstance(imodel, str):
        services.model(imodel)
        return imodel
    if is_model(imodel):
        return services.name_of(imodel) or imodel.name
    raise InvalidTypeError(f"imodel must be a model or the name of one, got {short_repr(imodel)}.")


def tool_grant_name(services: ServiceRegistry, tool: Any) -> str:
    """The name a tool needs granted; raises NotFoundError or InvalidTypeError if it is none."""
    if isinstance(tool, str):
        return services.tool(tool).name
    if (registered := services.name_of(tool)) is not None:
        return registered
    if isinstance(tool, Tool):
        return tool.name
    name = getattr(tool, "__name__", None)
    if callable(tool) and not isinstance(tool, type) and isinstance(name, str):
        return name
    raise InvalidTypeError(
        "A tool is a Tool, a typed function or the name of a registered one, got "
        f"{short_repr(tool)}."
    )

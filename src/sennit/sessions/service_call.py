"""A single service call: `session.request`.

Nothing is stored and no turn is run. With a branch, its grants are checked for the service and for
the tools and output schema passed to it; without one, access is unchecked, as documented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from sennit.errors import InvalidTypeError
from sennit.messages.output_schema import as_model, model_name
from sennit.services.tools.backend import ToolContext
from sennit.services.tools.tool import Tool
from sennit.sessions.blobs import with_blobs
from sennit.sessions.grants import Needs, check_access

if TYPE_CHECKING:
    from sennit.services.models.protocol import Model
    from sennit.services.models.reply import Reply
    from sennit.services.models.request import ToolSchema
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore


async def ask_service(
    session: SessionCore, name: str, branch: Branch | None, arguments: Mapping[str, Any]
) -> Any:
    """Return a tool's result or a model's Reply; raises AccessError before the call."""
    service = session.services.get(name)
    if branch is not None:
        branch.require(resources={name})
    if isinstance(service, Tool):
        context = ToolContext(session_id=session.id, branch=None if branch is None else branch.name)
        return (await service.arun(arguments, context)).unwrap()
    return await _ask_model(service, session, branch, arguments)


async def _ask_model(
    model: Model, session: SessionCore, branch: Branch | None, arguments: Mapping[str, Any]
) -> Reply:
    from sennit.services.models.request import model_request
    from sennit.services.models.traced_call import ask

    if "messages" not in arguments:
        raise InvalidTypeError("A model needs messages=[...]; a branch's own are branch.messages.")
    offered = as_list(arguments.get("tools"))
    tools = [_schema(session.services, tool) for tool in offered]
    options = {key: value for key, value in arguments.items() if key not in ("messages", "tools")}
    request = model_request(arguments["messages"], tools=tools, **options)
    if branch is not None:
        output = arguments.get("output")
        schemas = () if output is None else (model_name(as_model(output, "output")),)
        check_access(
            branch,
            Needs(
                resources=frozenset(tool for tool in offered if isinstance(tool, str)),
                passed_resources=frozenset(tool.name for tool in tools),
                passed_capabilities=frozenset(schemas),
            ),
        )
    return await ask(model, await with_blobs(session, request))


def _schema(services: ServiceRegistry, tool: Any) -> ToolSchema:
    """Return the schema of a tool, under its registered name if it has one."""
    from sennit.services.models.request import offered_schema

    name = tool if isinstance(tool, str) else services.name_of(tool)
    return offered_schema(tool) if name is None else services.tool(name).schema


def as_list(tools: Any) -> list[Any]:
    """Return one tool or several as a list; None means none."""
    if tools is None:
        return []
    if isinstance(tools, list | tuple | set | frozenset):
        return list(cast("Iterable[Any]", tools))
    return [tools]

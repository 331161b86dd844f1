"""Options of `sennit chat` and `sennit resume`: the model, its tools and parameters."""

from __future__ import annotations

from typing import Any

from sennit.api.local_models import check_model
from sennit.cli.chat.conversation import ChatOptions
from sennit.cli.load import load_tools, mcp_servers
from sennit.services.models.imodel import iModel


def chat_options(
    model: str,
    *,
    base_url: str | None = None,
    tool: list[str] | None = None,
    mcp: list[str] | None = None,
    ask: bool | None = None,
    use_memory: bool = True,
    other_sessions: bool = False,
    **params: Any,
) -> ChatOptions:
    """Return the options; load the tools and check that the model can run here."""
    options = ChatOptions(
        model=iModel(model, base_url=base_url),
        base_url=base_url,
        tools=load_tools(tool or (), ask),
        params={name: value for name, value in params.items() if value is not None},
        servers=mcp_servers(mcp or (), ask),
        use_memory=use_memory,
        other_sessions=other_sessions,
    )
    check_model(model)
    return options

"""The HTTP server: REST, server-sent events, OpenAI's API and MCP over the library.

Starlette and uvicorn come with the extra `server`.
"""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.server.app import create_app
    from sennit.server.mcp.scope import McpScope
    from sennit.server.mcp.server import mcp_server
    from sennit.server.run import Server, listen
    from sennit.server.settings import ServerSettings

__all__ = ["McpScope", "Server", "ServerSettings", "create_app", "listen", "mcp_server"]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "app": "create_app",
            "mcp.server": "mcp_server",
            "mcp.scope": "McpScope",
            "run": "Server listen",
            "settings": "ServerSettings",
        },
    )

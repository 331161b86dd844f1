"""An MCP server over stdio whose model asks to pay: `python mcp_stdio_server.py STORE [REPLY]`.

With a REPLY the model says that instead, once it is told to by a file beside the store.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import sennit
from sennit.server.mcp.scope import McpScope
from sennit.server.mcp.server import serve_stdio
from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel, ToolCall

PAID = "paid.txt"


def main() -> None:
    store = Path(sys.argv[1])

    def pay(sum_: int) -> str:
        """Pay a bill."""
        with (store.parent / PAID).open("a") as file:
            file.write(f"{sum_}\n")
        return "paid"

    async def hang(_request: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    replies: list[Any] = [[ToolCall("pay", {"sum_": 5})], "Done."]
    if len(sys.argv) > 2:
        replies = [hang] if sys.argv[2] == "hang" else [sys.argv[2]]
    model = ScriptedModel(replies, name="scripted")
    tools = (Tool(pay, needs_approval=True),)
    with sennit.open(store) as client:
        scope = McpScope(client, frozenset({"read", "run"}), model, tools=tools)
        asyncio.run(serve_stdio(scope))


if __name__ == "__main__":
    main()

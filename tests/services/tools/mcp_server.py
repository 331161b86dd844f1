"""A real MCP server for the tests, made with the SDK: `python mcp_server.py stdio|http`.

Over HTTP it says on stdout which port it listens on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import Counter, defaultdict
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

app = MCPServer("braids")
waiting: Counter[str] = Counter()
events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


class Weather(BaseModel):
    city: str
    degrees: float


@app.tool()
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
def weather(city: str) -> Weather:
    """The weather in a city."""
    return Weather(city=city, degrees=21.5)


@app.tool(structured_output=False)
def say(words: str) -> str:
    return words


@app.tool(structured_output=False)
def picture(size: int) -> list[Any]:
    return ["A dot.", Image(data=b"\x89PNG\r\n\x1a\n" + bytes(size), format="png")]


@app.tool()
def fail(message: str) -> str:
    raise ToolError(message)


@app.tool()
async def hang(mark: str) -> str:
    """Never end; `wait_for` tells when it has begun and when it was cancelled."""
    events[f"{mark} begun"].set()
    try:
        await asyncio.Event().wait()
    finally:
        events[f"{mark} cancelled"].set()
    return "never"


@app.tool()
async def wait_for(event: str) -> bool:
    return await events[event].wait()


@app.tool()
async def meet(place: str, people: int) -> int:
    """Wait until so many calls are here."""
    waiting[place] += 1
    if waiting[place] >= people:
        events[place].set()
    await events[place].wait()
    return waiting[place]


@app.tool()
def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.tool()
def pid() -> int:
    return os.getpid()


@app.tool()
def variable(name: str) -> str | None:
    return os.environ.get(name)


@app.tool()
async def grow(name: str, ctx: Context) -> str:
    """Offer one more tool."""

    def grown(x: int) -> int:
        return x

    app.add_tool(grown, name=name, description="Grown.")
    await ctx.notify_tools_changed()
    return "grown"


@app.tool()
async def shrink(name: str, ctx: Context) -> str:
    """Take a tool away."""
    app.remove_tool(name)
    await ctx.notify_tools_changed()
    return "shrunk"


class Sure(BaseModel):
    sure: bool


def ask_first(ctx: Context) -> Elicit[Sure]:
    return Elicit("Drop it?", Sure)


@app.tool()
async def drop_it(answer: Annotated[ElicitationResult[Sure], Resolve(ask_first)]) -> str:
    """Drop it, if the user is sure: the question is the result of the first call."""
    return "dropped" if isinstance(answer, AcceptedElicitation) and answer.data.sure else "kept"


@app.tool()
def header(name: str, ctx: Context) -> str | None:
    headers = ctx.headers
    return None if headers is None else headers.get(name)


def serve() -> None:
    if sys.argv[1] == "stdio":
        app.run("stdio")
        return
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app.streamable_http_app(), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve()

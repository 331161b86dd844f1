"""An MCP server of before 2026, by hand, that can misbehave: `python odd_mcp_server.py HOW`."""

from __future__ import annotations

import json
import sys
from typing import Any

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **more}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def recursive() -> dict[str, Any]:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    return {
        "type": "object",
        "$defs": {"node": node},
        "properties": {"n": {"$ref": "#/$defs/node"}},
    }


TOOLS: dict[str, list[dict[str, Any]]] = {
    "sound": [tool("one"), tool("change")],
    "hostile": [
        tool("good", description="Good."),
        tool("files.read/all now", description="x" * 1_000_000),
        tool("files_read_all now"),
        tool("huge", inputSchema={"type": "object", "properties": {"x": {"title": "y" * 200_000}}}),
        tool("deep", inputSchema=nested(60)),
        tool("round", inputSchema=recursive()),
        tool("n" * 65),
        tool(""),
    ],
    "endless": [tool("again")],
    "silent": [],
    "unsound": [tool("text", inputSchema={"type": "string"})],
    "error": [tool("one")],
    "garbage": [tool("one")],
    "asking": [tool("one")],
}


QUESTION: dict[str, Any] = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(method: str, how: str) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS[how], **({"nextCursor": "more"} if how == "endless" else {})}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "done"}]}
    return None


def main(how: str) -> None:
    print("odd server: beginning", file=sys.stderr, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        method, id = asked["method"], asked.get("id")
        if id is None or how == "silent":
            continue
        if method == "tools/call" and how == "garbage":
            print("this is not JSON", flush=True)
            send({"id": id, "result": {"content": "neither is this a result"}})
            continue
        if method == "tools/call" and how == "asking":
            send({"id": "q", "method": "elicitation/create", "params": QUESTION})
            answer = json.loads(sys.stdin.readline())["result"]
            send({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(answer)}]}})
            continue
        if method == "tools/call" and how == "error":
            send({"id": id, "error": {"code": -32000, "message": "Out of yarn"}})
            continue
        if method == "tools/call" and asked["params"]["name"] == "change":
            TOOLS[how] = [tool("change"), tool("two")]
            send({"method": "notifications/tools/list_changed"})
        found = result(method, how)
        if found is None:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": id, "result": found})


if __name__ == "__main__":
    if sys.argv[1] == "broken":
        sys.exit("No module named 'braids'")
    main(sys.argv[1])

"""Requests that make no sense, to every route: refused or answered, never an error of the server.

Each route is sent what it takes with something in it exchanged for a hostile value, bodies that are
no JSON or no object, other content types, and hostile paths and queries. The requests of a route
are the same in every run; `make test-full` sends more of them.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from sennit.server.app import endpoints
from sennit.server.http.endpoint import Endpoint
from sennit.services.models.request import ModelRequest
from tests.http_server import Running, Talker, serving
from tests.server.http.test_auth import BODIES, QUERIES, name_of, of_each_kind

DEEP: Any = "x"
for _ in range(400):
    DEEP = [DEEP]
# Beside what is no number, text or list: what no integer, UTF-8 or recursion holds.
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, "", " ", "x", "\0"),
    *("\ud800", "a\udfffb", "\N{RIGHT-TO-LEFT OVERRIDE}", "e\u0301", "x" * 70_000, "../../etc"),
    *("viking://", "viking://user/../x", "NaN", "-0", "1e999", "2026-13-45", "data:image/png,x"),
    *("00000000-0000-0000-0000-000000000000", [], [[]], [None] * 3, ["\ud800"], {}, {"": None}),
    *({"\ud800": 1}, {"type": "text"}, {"type": "\0", "text": 3}, {"a": {"b": [10**400]}}, DEEP),
)
RAW: tuple[bytes, ...] = (
    *(b"", b"{", b"nul", b"[]", b'"text"', b"0", b"\xff\xfe", b'{"a":NaN}', b'{"a":Infinity}'),
    *(b'{"a":1,"a":2}', b"[" * 100_000, b'{"a":' * 20_000, b'"\\ud800"', b'{"\\ud800":1}'),
    *(b"\xef\xbb\xbf{}", b"{}{}", b"\x00", b'{"a":1e99999}', b'{"text":"\xed\xa0\x80"}'),
)
TYPES = (
    "application/json",
    "text/plain",
    "application/json; charset=utf-16",
    "",
    "\xe9",
    "a/b;" * 99,
)
TABLE = [one for one in endpoints() if not one.path.endswith("/events")]
MCP_CALLS: tuple[dict[str, Any], ...] = tuple(
    {"name": name, "arguments": given}
    for name, given in (
        ("search", {"query": "bread"}),
        ("list_sessions", {"limit": 5}),
        ("read_session", {"session": "x", "branch": "main"}),
        ("read_attachment", {"session": "x", "index": 0}),
        ("list_files", {"uri": "viking://user"}),
        ("read_file", {"uri": "viking://user/x.md"}),
        ("write_file", {"uri": "viking://user/x.md", "text": "x"}),
        ("add_message", {"session": "x", "text": "x"}),
        ("fork_session", {"session": "x"}),
    )
)


class Patient(Talker):
    """Answers whatever it is asked."""

    def _answer(self, request: ModelRequest) -> list[str]:
        return ["Fine."]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(":memory:", models=[Patient()]) as running:
        yield running


@pytest.fixture(scope="module")
def things(server: Running) -> dict[str, str]:
    return of_each_kind(server.http)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a JSON value, the value itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else []
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, one in inside:
        yield from places(one, (*path, key))


def exchanged(value: Any, chance: random.Random) -> Any:
    """The same with something in it exchanged for a hostile value."""
    made = copy.deepcopy(value)
    *way, last = chance.choice([one for one in places(made) if one] or [("x",)])
    holder = made
    for key in way:
        holder = holder[key]
    holder[last] = chance.choice(VALUES)
    if chance.random() < 0.2 and isinstance(made, dict):
        made[chance.choice(("unknown", "", "\ud800", "metadata"))] = chance.choice(VALUES)
    return made


def body_for(one: Endpoint, chance: random.Random) -> bytes:
    if chance.random() < 0.15:
        return chance.choice(RAW)
    given = next((it for end, it in BODIES.items() if one.path.endswith(end)), {})
    assert one.body is not None
    names = [field.encode_name for field in msgspec.structs.fields(one.body)]
    full = {**dict.fromkeys(chance.sample(names, min(2, len(names)))), **given}
    return json.dumps(exchanged(full, chance)).encode()


def hostile(one: Endpoint, things: dict[str, str], chance: random.Random) -> dict[str, Any]:
    """A request to an endpoint, as httpx takes it."""

    def piece(name: str) -> str:
        if chance.random() < 0.8:
            return things[name]
        return quote(chance.choice([it for it in VALUES if it and isinstance(it, str)])[:2000],
                     safe="", errors="surrogatepass")  # fmt: skip

    path = re.sub(r"{(\w+)}", lambda found: piece(found[1]), one.path)
    query = dict(next((it for end, it in QUERIES.items() if one.path.endswith(end)), {}))
    for field in msgspec.structs.fields(one.query) if one.query is not None else ():
        if chance.random() < 0.4:
            query[field.encode_name] = str(chance.choice(VALUES))[:2000]
    pairs = "&".join(
        f"{name}={quote(value, safe='', errors='surrogatepass')}" for name, value in query.items()
    )
    sent: dict[str, Any] = {"method": one.method, "url": f"{path}?{pairs}" if pairs else path}
    if one.body is not None:
        kind = TYPES[0] if chance.random() < 0.9 else chance.choice(TYPES)
        sent |= {
            "content": body_for(one, chance),
            "headers": {"content-type": kind.encode("latin-1")},
        }
    return sent


def told(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:300]} for {answer.request.url} "


def send(server: Running, one: Endpoint, things: dict[str, str], count: int) -> None:
    chance = random.Random(name_of(one))
    for _ in range(count):
        request = hostile(one, things, chance)
        if one.method == "DELETE" or one.path in (
            "/api/forget",
            "/v1/conversations/{conversation}",
        ):
            things = {**things, "session": "none", "conversation": "none", "response": "none"}
            things |= {"completion": "none", "chat": "none", "thread": "none"}
        answer = server.http.request(**request)
        assert answer.status_code < 500, told(answer) + str(request)[:2000]
        if answer.status_code >= 400:
            assert answer.json()["error"]["message"], told(answer)


@pytest.mark.parametrize("one", TABLE, ids=name_of)
def test_no_request_is_an_error_of_the_server(
    server: Running, things: dict[str, str], one: Endpoint
) -> None:
    send(server, one, things, 25)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("one", TABLE, ids=name_of)
def test_no_request_of_many_is_an_error_of_the_server(
    server: Running, things: dict[str, str], one: Endpoint
) -> None:
    send(server, one, things, 600)


@pytest.mark.parametrize("call", MCP_CALLS, ids=lambda call: call["name"])
def test_no_tool_call_over_mcp_is_an_error_of_the_server(
    server: Running, call: dict[str, Any]
) -> None:
    chance = random.Random(call["name"])
    headers = {"accept": "application/json, text/event-stream", "content-type": TYPES[0]}
    for _ in range(25):
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        content = json.dumps(exchanged(asked, chance)).encode()
        if chance.random() < 0.15:
            content = chance.choice(RAW)
        answer = server.http.post("/mcp", content=content, headers=headers)
        assert answer.status_code < 500, told(answer) + str(content[:500])
        assert "Traceback" not in answer.text
        assert "unforeseen" not in answer.text

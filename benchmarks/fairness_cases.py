"""The worst allowed request to each route of the table, to /v1 and to /mcp.

The attacker has a conversation as long as one request may be, with branches, files, memories and
commits; every request takes as much of it as the limits allow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from sennit.server.settings import Limits

LIMITS = Limits(rate=None, byte_rate=None, owner_bytes=None)
_MIB = 1024 * 1024
_BRANCHES = 100
_NOTHING = (404, 409, 422)
USER = {"role": "user", "content": "I prefer rye bread."}
ASSISTANT = {"role": "assistant", "content": "Hello."}
TALK = [USER, ASSISTANT] * (LIMITS.items // 2 - 1) + [USER]
TEXT = "word " * (LIMITS.body_bytes // 5 - 100)
FILE = TEXT[:_MIB]
DIFFERENT = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(110_000))
PARTS = [{"type": "text", "text": "word " * 100}] * LIMITS.parts
VALUES: dict[str, Any] = {"x": [{}] * (LIMITS.values // 2 - 1000)}
MCP_VALUES: dict[str, Any] = {"x": [{}] * 4_000}  # of 10,000 that /mcp takes


@dataclass(frozen=True, slots=True)
class Case:
    """The worst request to a route, named as in the table of routes."""

    name: str
    path: str = ""
    body: bytes | None = None
    before: Callable[[], str | tuple[str, bytes]] | None = None
    """Makes something for each request, outside the clock; gives the path and perhaps the body."""
    refused: tuple[int, ...] = ()
    """Statuses that say that there was nothing to do, which is no failure."""

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Place:
    """What the attacker has."""

    client: httpx.Client
    session: str
    message: str
    """The last message of the long branch."""
    conversation: str
    item: str
    response: str
    commit: str
    memory: str

    @classmethod
    def made(cls, client: httpx.Client) -> Place:
        """Fill a store with as much as a few requests can."""

        def post(path: str, body: Any) -> Any:
            answer = client.post(path, json=body)
            answer.raise_for_status()
            return answer.json()

        conversation = post("/v1/conversations", {"items": TALK})["id"]
        session = _uuid(conversation)
        path = f"/api/sessions/{session}"
        for _ in range(_BRANCHES):
            post(f"{path}/branches/main/fork", {"at": LIMITS.items // 2})
        for number in range(20):
            put = client.put(f"/api/files?uri=viking://resources/{number}.md", json={"text": FILE})
            put.raise_for_status()
        listed = client.get(f"{path}/branches/main/messages?limit=1").json()["messages"]
        items = client.get(f"/v1/conversations/{conversation}/items?limit=1").json()["data"]
        response = post("/v1/responses", asks(input=TALK))["id"]
        facts = post("/v1/conversations", {"items": [USER, ASSISTANT]})["id"]
        commit = post(f"/api/sessions/{_uuid(facts)}/commit", {"wait": True})["task_id"]
        memories = client.get("/api/memories").json()["memories"]
        return cls(
            client,
            session,
            listed[-1]["id"],
            conversation,
            items[0]["id"],
            response,
            commit,
            memories[0]["uri"] if memories else "viking://user/memories/none.md",
        )

    def another(self) -> str:
        """The path of another session with a branch as long as can be."""
        made = self.client.post("/v1/conversations", json={"items": TALK}).json()["id"]
        return f"/api/sessions/{_uuid(made)}"

    def other_conversation(self) -> str:
        """The same as a conversation."""
        made = self.client.post("/v1/conversations", json={"items": TALK}).json()["id"]
        return f"/v1/conversations/{made}"


def asks(**more: Any) -> dict[str, Any]:
    """A request to OpenAI's API."""
    return {"model": "instant", "metadata": {"memory": "false"}, **more}


def _uuid(conversation: str) -> str:
    raw = conversation.removeprefix("conv_")
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def worst(place: Place) -> list[Case]:
    """A case for each route."""
    return [*_of_sessions(place), *_of_messages(place), *_of_memory(place), *_of_openai(place)]


def _of_sessions(place: Place) -> list[Case]:
    root, one = "/api/sessions", f"/api/sessions/{place.session}"
    named = root + "/{session}"
    branch = named + "/branches/{branch}"
    run = {"text": TEXT}
    new_branch = f"{one}/branches"
    return [
        Case("GET /api/health", "/api/health"),
        Case("GET /api/ready", "/api/ready"),
        Case("GET /openapi.json", "/openapi.json"),
        Case("GET /api/me", "/api/me"),
        Case("GET /api/models", "/api/models"),
        Case(f"GET {root}", f"{root}?limit=100&contains=x"),
        Case(f"POST {root}", root, _json({"metadata": VALUES})),
        Case(f"GET {named}", one),
        Case(f"PUT {named}", one, _json({"metadata": {**VALUES, "client": {}}})),
        Case(f"DELETE {named}", before=place.another),
        Case("GET /api/interrupted", "/api/interrupted"),
        Case(f"GET {named}/tree", f"{one}/tree"),
        Case(f"POST {named}/branches", new_branch, _json({"system": TEXT})),
        Case(f"GET {branch}", f"{one}/branches/main"),
        Case(f"PUT {branch}", f"{one}/branches/main", _json({"name": TEXT}), refused=_NOTHING),
        Case(f"DELETE {branch}", before=lambda: _branch_of(place.another())),
        Case(f"POST {branch}/fork", f"{one}/branches/main/fork", _json({"at": LIMITS.items // 2})),
        Case(f"GET {named}/diff", f"{one}/diff?a=main&b=main_fork_1"),
        Case(f"POST {branch}/runs", before=lambda: _run_on(place), body=_json(run)),
        Case(f"GET {branch}/runs", f"{one}/branches/main/runs?limit=100"),
        Case(f"GET {branch}/events", f"{one}/branches/main/events"),
        Case(f"POST {branch}/cancel", f"{one}/branches/main/cancel", b"{}", refused=_NOTHING),
        Case(
            f"POST {branch}/steer",
            f"{one}/branches/main/steer",
            _json({"text": TEXT}),
            refused=_NOTHING,
        ),
        Case(
            f"POST {branch}/resume",
            f"{one}/branches/main/resume",
            _json({"params": VALUES}),
            refused=(400, *_NOTHING),
        ),
        Case(f"GET {branch}/waiting", f"{one}/branches/main/waiting"),
        Case(
            f"POST {branch}/approvals/{{call}}",
            f"{one}/branches/main/approvals/c",
            _json({"approve": True, "message": TEXT}),
            refused=_NOTHING,
        ),
    ]


def _branch_of(session: str) -> str:
    return f"{session}/branches/main"


def _run_on(place: Place) -> str:
    made = place.client.post("/api/sessions", json={"system": "Be brief."}).json()["id"]
    return f"/api/sessions/{made}/branches/main/runs"


def _of_messages(place: Place) -> list[Case]:
    one = f"/api/sessions/{place.session}/branches/main"
    named = "/api/sessions/{session}"
    branch = named + "/branches/{branch}"
    message = branch + "/messages/{message}"
    here = f"{one}/messages/{place.message}"
    parts = _json({"role": "user", "parts": PARTS})
    return [
        Case(f"GET {branch}/messages", f"{one}/messages?limit=1000"),
        Case(f"POST {branch}/messages", f"{one}/messages", parts),
        Case(
            f"GET {named}/messages/{{message}}",
            f"/api/sessions/{place.session}/messages/{place.message}",
        ),
        Case(
            f"POST {branch}/edit",
            f"{one}/edit",
            _json({"message": LIMITS.items - 100, "text": TEXT}),
        ),
        Case(
            f"POST {branch}/regenerate",
            f"{one}/regenerate",
            _json({"message": LIMITS.items - 99}),
            refused=_NOTHING,
        ),
        Case(f"GET {branch}/recalled", f"{one}/recalled"),
        Case(f"GET {message}/seen", f"{here}/seen", refused=_NOTHING),
        Case(
            f"POST {message}/label",
            f"{here}/label",
            _json({"thumb": "up", "by": "x" * 1000}),
            refused=_NOTHING,
        ),
        Case(f"DELETE {message}/label", f"{here}/label?by=x"),
        Case(f"GET {named}/labels", f"/api/sessions/{place.session}/labels"),
        Case(f"GET {named}/export", f"/api/sessions/{place.session}/export"),
    ]


def _of_memory(place: Place) -> list[Case]:
    grep = "/api/files?op=grep&pattern=nothing-like-that&uri=viking://resources"
    question = quote("word other bread " * 500)
    commit = {"wait": True}
    return [
        Case(
            "POST /api/sessions/{session}/commit",
            before=lambda: f"{place.another()}/commit",
            body=_json(commit),
        ),
        Case("GET /api/tasks/{task}", f"/api/tasks/{place.commit}"),
        Case("GET /api/commits", "/api/commits"),
        Case(
            "POST /api/commits/{commit}/undo", f"/api/commits/{place.commit}/undo", refused=_NOTHING
        ),
        Case("GET /api/memories", "/api/memories?limit=100"),
        Case(
            "GET /api/memories/item",
            f"/api/memories/item?uri={quote(place.memory)}",
            refused=_NOTHING,
        ),
        Case("POST /api/forget", before=lambda: _forgotten(place)),
        Case("GET /api/files", grep),
        Case("PUT /api/files", before=_new_file, body=_json({"text": FILE})),
        Case("DELETE /api/files", before=lambda: _removed(place)),
        Case("PUT /api/files, different words", before=_new_file, body=_json({"text": DIFFERENT})),
        Case("DELETE /api/files, different words", before=lambda: _removed(place, DIFFERENT)),
        Case("GET /api/find", f"/api/find?limit=100&q={question}"),
        Case("GET /api/find, a new message", before=lambda: _unindexed(place)),
        Case("GET /api/search", f"/api/search?limit=100&q={question}&session={place.session}"),
        Case("GET /api/usage", "/api/usage?days=366"),
    ]


def _forgotten(place: Place) -> tuple[str, bytes]:
    return "/api/forget", _json({"session": place.another().rpartition("/")[2]})


def _new_file() -> str:
    """Name another file each time: to say the same again in one changes nothing."""
    return f"/api/files?uri=viking://resources/{uuid4().hex}.md"


def _removed(place: Place, text: str = FILE) -> str:
    place.client.put("/api/files?uri=viking://user/gone/big.md", json={"text": text})
    return "/api/files?uri=viking://user/gone&recursive=true"


def _unindexed(place: Place) -> str:
    """Find something after a long message was added, which the search has to index first."""
    path = f"/api/sessions/{place.session}/branches/main/messages"
    place.client.post(path, json={"role": "user", "text": DIFFERENT}).raise_for_status()
    return "/api/find?q=bread"


def _of_openai(place: Place) -> list[Case]:
    all_, one = "/v1/conversations", f"/v1/conversations/{place.conversation}"
    named = all_ + "/{conversation}"
    notes = {"metadata": {f"k{number}": "x" * 500 for number in range(16)}}
    response = f"/v1/responses/{place.response}"
    call = {"name": "search", "arguments": {"query": "word other bread " * 500, "limit": 50}}
    return [
        Case("POST /v1/chat/completions", "/v1/chat/completions", _json(asks(messages=TALK))),
        Case("GET /v1/models", "/v1/models"),
        Case("GET /v1/models/{model}", "/v1/models/instant"),
        Case(f"POST {all_}", all_, _json({"items": TALK})),
        Case(f"GET {named}", one),
        Case(f"POST {named}", one, _json(notes), refused=(400,)),
        Case(f"DELETE {named}", before=place.other_conversation),
        Case(f"GET {named}/items", f"{one}/items?limit=100&order=asc"),
        Case(f"POST {named}/items", f"{one}/items", _json({"items": TALK})),
        Case(f"GET {named}/items/{{item}}", f"{one}/items/{place.item}"),
        Case(f"DELETE {named}/items/{{item}}", f"{one}/items/{place.item}", refused=_NOTHING),
        Case("POST /v1/responses", "/v1/responses", _json(asks(input=TALK))),
        Case("GET /v1/responses/{response}", response),
        Case("DELETE /v1/responses/{response}", before=lambda: _responded(place)),
        Case("GET /v1/responses/{response}/input_items", f"{response}/input_items?limit=100"),
        Case("POST /mcp", "/mcp", _rpc("tools/call", call)),
        Case("POST /mcp, a large message", "/mcp", _rpc("tools/call", _adding(place, TEXT))),
        Case("POST /mcp, many values", "/mcp", _rpc("tools/call", {**call, "_meta": MCP_VALUES})),
    ]


def _responded(place: Place) -> str:
    made = place.client.post("/v1/responses", json=asks(input=TALK)).json()["id"]
    return f"/v1/responses/{made}"


def _adding(place: Place, text: str) -> dict[str, Any]:
    given = {"session": place.session, "role": "user", "text": text[:-1000]}
    return {"name": "add_message", "arguments": given}


def _rpc(method: str, params: dict[str, Any]) -> bytes:
    return _json({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

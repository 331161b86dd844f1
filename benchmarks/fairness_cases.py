"""The worst allowed request to each route of the table, to /v1 and to /mcp.

The tenant has a conversation as long as one request may create, with branches, files, memories and
commits; every request uses as much of it as the limits allow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import randbytes
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from sennit.server.settings import Limits

LIMITS = Limits(rate=None, byte_rate=None, owner_bytes=None)
_MIB = 1024 * 1024
_FORKS = 100
_REFUSED = (404, 409, 422)
USER = {"role": "user", "content": "I prefer rye bread."}
ASSISTANT = {"role": "assistant", "content": "Hello."}
ITEMS = [USER, ASSISTANT] * (LIMITS.items // 2 - 1) + [USER]
TEXT = "word " * (LIMITS.body_bytes // 5 - 100)
FILE = TEXT[:_MIB]
VARIED = " ".join(f"{number * 2_654_435_761 % 2**32:x}" for number in range(110_000))
_BLOB_BYTES = 16 * _MIB
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
    """Untimed preparation of each request; returns its path and perhaps its body."""
    refused: tuple[int, ...] = ()
    """Statuses that mean there was nothing to do; they are not failures."""

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Setup:
    """The data of the tenant that sends the large requests."""

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
    def create(cls, client: httpx.Client) -> Setup:
        """Fill a store with as much data as a few requests can create."""

        def post(path: str, body: Any) -> Any:
            answer = client.post(path, json=body)
            answer.raise_for_status()
            return answer.json()

        conversation = post("/v1/conversations", {"items": ITEMS})["id"]
        session = _uuid(conversation)
        path = f"/api/sessions/{session}"
        for _ in range(_FORKS):
            post(f"{path}/branches/main/fork", {"at": LIMITS.items // 2})
        for number in range(20):
            put = client.put(f"/api/files?uri=viking://resources/{number}.md", json={"text": FILE})
            put.raise_for_status()
        listed = client.get(f"{path}/branches/main/messages?limit=1").json()["messages"]
        items = client.get(f"/v1/conversations/{conversation}/items?limit=1").json()["data"]
        response = post("/v1/responses", request(input=ITEMS))["id"]
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

    def new_session(self) -> str:
        """Create another session with a branch of maximum length; return its path."""
        conversation = self.client.post("/v1/conversations", json={"items": ITEMS}).json()["id"]
        return f"/api/sessions/{_uuid(conversation)}"

    def new_conversation(self) -> str:
        """Create another conversation of maximum length; return its path."""
        conversation = self.client.post("/v1/conversations", json={"items": ITEMS}).json()["id"]
        return f"/v1/conversations/{conversation}"


def request(**more: Any) -> dict[str, Any]:
    """Return a request body of the OpenAI API."""
    return {"model": "instant", "metadata": {"memory": "false"}, **more}


TEXTS = ["word " * 100] * LIMITS.items
BLOCKS = request(messages=[{"role": "user", "content": PARTS}], max_tokens=10)


def _uuid(conversation: str) -> str:
    raw = conversation.removeprefix("conv_")
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def worst_cases(setup: Setup) -> list[Case]:
    """Return a case for each route."""
    return [
        *_session_cases(setup),
        *_message_cases(setup),
        *_memory_cases(setup),
        *_openai_cases(setup),
    ]


def _session_cases(setup: Setup) -> list[Case]:
    root, url = "/api/sessions", f"/api/sessions/{setup.session}"
    named = root + "/{session}"
    branch = named + "/branches/{branch}"
    run = {"text": TEXT}
    new_branch = f"{url}/branches"
    return [
        Case("GET /api/health", "/api/health"),
        Case("GET /api/ready", "/api/ready"),
        Case("GET /openapi.json", "/openapi.json"),
        Case("GET /api/me", "/api/me"),
        Case("GET /api/models", "/api/models"),
        Case(f"GET {root}", f"{root}?limit=100&contains=x"),
        Case(f"POST {root}", root, _json({"metadata": VALUES})),
        Case(f"GET {named}", url),
        Case(f"PUT {named}", url, _json({"metadata": {**VALUES, "client": {}}})),
        Case(f"DELETE {named}", before=setup.new_session),
        Case("GET /api/interrupted", "/api/interrupted"),
        Case(f"GET {named}/tree", f"{url}/tree"),
        Case(f"POST {named}/branches", new_branch, _json({"system": TEXT})),
        Case(f"GET {branch}", f"{url}/branches/main"),
        Case(f"PUT {branch}", f"{url}/branches/main", _json({"name": TEXT}), refused=_REFUSED),
        Case(f"DELETE {branch}", before=lambda: _branch_of(setup.new_session())),
        Case(f"POST {branch}/fork", f"{url}/branches/main/fork", _json({"at": LIMITS.items // 2})),
        Case(f"GET {named}/diff", f"{url}/diff?a=main&b=main_fork_1"),
        Case(f"POST {branch}/runs", before=lambda: _run_on(setup), body=_json(run)),
        Case(f"GET {branch}/runs", f"{url}/branches/main/runs?limit=100"),
        Case(f"GET {branch}/events", f"{url}/branches/main/events"),
        Case(f"POST {branch}/cancel", f"{url}/branches/main/cancel", b"{}", refused=_REFUSED),
        Case(
            f"POST {branch}/steer",
            f"{url}/branches/main/steer",
            _json({"text": TEXT}),
            refused=_REFUSED,
        ),
        Case(
            f"POST {branch}/resume",
            f"{url}/branches/main/resume",
            _json({"params": VALUES}),
            refused=(400, *_REFUSED),
        ),
        Case("POST /api/chat", "/api/chat", before=lambda: ("/api/chat", _chat())),
        Case("POST /api/ag-ui", before=lambda: ("/api/ag-ui", _thread())),
        Case("GET /api/ag-ui/{thread}", f"/api/ag-ui/{setup.session}"),
        Case("GET /api/ag-ui/{thread}/stream", f"/api/ag-ui/{setup.session}/stream"),
        Case("POST /api/ag-ui/{thread}/stop", f"/api/ag-ui/{setup.session}/stop", b""),
        Case("GET /api/chat/{chat}", f"/api/chat/{setup.session}"),
        Case("GET /api/chat/{chat}/stream", f"/api/chat/{setup.session}/stream"),
        Case("POST /api/chat/{chat}/stop", f"/api/chat/{setup.session}/stop", b""),
        Case(f"GET {branch}/waiting", f"{url}/branches/main/waiting"),
        Case(
            f"POST {branch}/approvals/{{call}}",
            f"{url}/branches/main/approvals/c",
            _json({"approve": True, "message": TEXT}),
            refused=_REFUSED,
        ),
    ]


def _chat() -> bytes:
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": TEXT[:-1000]}]}
    return _json({"id": uuid4().hex, "messages": [message]})


def _thread() -> bytes:
    message = {"id": "m", "role": "user", "content": TEXT[:-1000]}
    return _json({"threadId": uuid4().hex, "messages": [message]})


def _branch_of(session: str) -> str:
    return f"{session}/branches/main"


def _run_on(setup: Setup) -> str:
    session = setup.client.post("/api/sessions", json={"system": "Be brief."}).json()["id"]
    return f"/api/sessions/{session}/branches/main/runs"


def _message_cases(setup: Setup) -> list[Case]:
    url = f"/api/sessions/{setup.session}/branches/main"
    named = "/api/sessions/{session}"
    branch = named + "/branches/{branch}"
    message = branch + "/messages/{message}"
    message_url = f"{url}/messages/{setup.message}"
    parts = _json({"role": "user", "parts": PARTS})
    return [
        Case(f"GET {branch}/messages", f"{url}/messages?limit=1000"),
        Case(f"POST {branch}/messages", f"{url}/messages", parts),
        Case(
            f"GET {named}/messages/{{message}}",
            f"/api/sessions/{setup.session}/messages/{setup.message}",
        ),
        Case(
            f"POST {branch}/edit",
            f"{url}/edit",
            _json({"message": LIMITS.items - 100, "text": TEXT}),
        ),
        Case(
            f"POST {branch}/regenerate",
            f"{url}/regenerate",
            _json({"message": LIMITS.items - 99}),
            refused=_REFUSED,
        ),
        Case(f"GET {branch}/recalled", f"{url}/recalled"),
        Case(f"GET {message}/seen", f"{message_url}/seen", refused=_REFUSED),
        Case(
            f"POST {message}/label",
            f"{message_url}/label",
            _json({"thumb": "up", "by": "x" * 1000}),
            refused=_REFUSED,
        ),
        Case(f"DELETE {message}/label", f"{message_url}/label?by=x"),
        Case(f"GET {named}/labels", f"/api/sessions/{setup.session}/labels"),
        Case(f"GET {named}/export", f"/api/sessions/{setup.session}/export"),
    ]


def _memory_cases(setup: Setup) -> list[Case]:
    grep = "/api/files?op=grep&pattern=nothing-like-that&uri=viking://resources"
    question = quote("word other bread " * 500)
    commit = {"wait": True}
    return [
        Case(
            "POST /api/sessions/{session}/commit",
            before=lambda: f"{setup.new_session()}/commit",
            body=_json(commit),
        ),
        Case("GET /api/tasks/{task}", f"/api/tasks/{setup.commit}"),
        Case("GET /api/commits", "/api/commits"),
        Case(
            "POST /api/commits/{commit}/undo", f"/api/commits/{setup.commit}/undo", refused=_REFUSED
        ),
        Case("GET /api/memories", "/api/memories?limit=100"),
        Case(
            "GET /api/memories/item",
            f"/api/memories/item?uri={quote(setup.memory)}",
            refused=_REFUSED,
        ),
        Case("POST /api/forget", before=lambda: _forget(setup)),
        Case("POST /api/blobs", before=_new_blob),
        Case("GET /api/blobs/{hash}", before=lambda: _stored_blob(setup)),
        Case("GET /api/files", grep),
        Case("PUT /api/files", before=_new_file, body=_json({"text": FILE})),
        Case("DELETE /api/files", before=lambda: _big_file(setup)),
        Case("PUT /api/files, different words", before=_new_file, body=_json({"text": VARIED})),
        Case("DELETE /api/files, different words", before=lambda: _big_file(setup, VARIED)),
        Case("GET /api/find", f"/api/find?limit=100&q={question}"),
        Case("GET /api/find, a new message", before=lambda: _new_message(setup)),
        Case("GET /api/search", f"/api/search?limit=100&q={question}&session={setup.session}"),
        Case("GET /api/usage", "/api/usage?days=366"),
    ]


def _forget(setup: Setup) -> tuple[str, bytes]:
    return "/api/forget", _json({"session": setup.new_session().rpartition("/")[2]})


def _new_blob() -> tuple[str, bytes]:
    """Return bytes that no blob has yet."""
    return "/api/blobs", randbytes(_BLOB_BYTES)


def _stored_blob(setup: Setup) -> str:
    stored = setup.client.post("/api/blobs", content=randbytes(_BLOB_BYTES)).json()
    return "/api/blobs/" + stored["reference"].partition("sha256:")[2][:64]


def _new_file() -> str:
    """Return a new file path each time: writing the same text again changes nothing."""
    return f"/api/files?uri=viking://resources/{uuid4().hex}.md"


def _big_file(setup: Setup, text: str = FILE) -> str:
    setup.client.put("/api/files?uri=viking://user/gone/big.md", json={"text": text})
    return "/api/files?uri=viking://user/gone&recursive=true"


def _new_message(setup: Setup) -> str:
    """Add a long message that the next search has to index first; return the search path."""
    path = f"/api/sessions/{setup.session}/branches/main/messages"
    setup.client.post(path, json={"role": "user", "text": VARIED}).raise_for_status()
    return "/api/find?q=bread"


def _openai_cases(setup: Setup) -> list[Case]:
    all_, url = "/v1/conversations", f"/v1/conversations/{setup.conversation}"
    named = all_ + "/{conversation}"
    notes = {"metadata": {f"k{number}": "x" * 500 for number in range(16)}}
    response = f"/v1/responses/{setup.response}"
    call = {"name": "search", "arguments": {"query": "word other bread " * 500, "limit": 50}}
    return [
        Case("POST /v1/chat/completions", "/v1/chat/completions", _json(request(messages=ITEMS))),
        Case("GET /v1/chat/completions/{completion}", before=lambda: _completion(setup)),
        Case("DELETE /v1/chat/completions/{completion}", before=lambda: _completion(setup)),
        Case("POST /v1/completions", "/v1/completions", _json(request(prompt=TEXT[:-1000]))),
        Case("POST /v1/embeddings", "/v1/embeddings", _json({"model": "words-64", "input": TEXTS})),
        Case("GET /v1/models", "/v1/models"),
        Case("GET /v1/models/{model}", "/v1/models/instant"),
        Case(f"POST {all_}", all_, _json({"items": ITEMS})),
        Case(f"GET {named}", url),
        Case(f"POST {named}", url, _json(notes), refused=(400,)),
        Case(f"DELETE {named}", before=setup.new_conversation),
        Case(f"GET {named}/items", f"{url}/items?limit=100&order=asc"),
        Case(f"POST {named}/items", f"{url}/items", _json({"items": ITEMS})),
        Case(f"GET {named}/items/{{item}}", f"{url}/items/{setup.item}"),
        Case(f"DELETE {named}/items/{{item}}", f"{url}/items/{setup.item}", refused=_REFUSED),
        Case("POST /v1/responses", "/v1/responses", _json(request(input=ITEMS))),
        Case("GET /v1/responses/{response}", response),
        Case("DELETE /v1/responses/{response}", before=lambda: _response(setup)),
        Case("GET /v1/responses/{response}/input_items", f"{response}/input_items?limit=100"),
        Case("POST /v1/messages", "/v1/messages", _json(request(messages=ITEMS, max_tokens=10))),
        Case("POST /v1/messages, many blocks", "/v1/messages", _json(BLOCKS)),
        Case("POST /v1/messages/count_tokens", "/v1/messages/count_tokens", _json(BLOCKS)),
        Case("POST /v1/responses/{response}/cancel", f"{response}/cancel", b"", refused=(400,)),
        Case("POST /v1/responses/compact", "/v1/responses/compact", _json(request(input=ITEMS))),
        Case(
            "POST /v1/responses/input_tokens",
            "/v1/responses/input_tokens",
            _json(request(input=ITEMS)),
        ),
        Case("POST /mcp", "/mcp", _rpc("tools/call", call)),
        Case("POST /mcp, a large message", "/mcp", _rpc("tools/call", _mcp_call(setup, TEXT))),
        Case("POST /mcp, many values", "/mcp", _rpc("tools/call", {**call, "_meta": MCP_VALUES})),
    ]


def _completion(setup: Setup) -> str:
    body = request(messages=ITEMS)
    completion = setup.client.post("/v1/chat/completions", json=body).json()["id"]
    return f"/v1/chat/completions/{completion}"


def _response(setup: Setup) -> str:
    response = setup.client.post("/v1/responses", json=request(input=ITEMS)).json()["id"]
    return f"/v1/responses/{response}"


def _mcp_call(setup: Setup, text: str) -> dict[str, Any]:
    arguments = {"session": setup.session, "role": "user", "text": text[:-1000]}
    return {"name": "add_message", "arguments": arguments}


def _rpc(method: str, params: dict[str, Any]) -> bytes:
    return _json({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

"""Who may come in: tokens, scopes, owners, hosts, origins, rates."""

from __future__ import annotations

import asyncio
import logging
import re
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from msgspec import structs

import sennit
from sennit import StoreError, ValidationError
from sennit.server.app import create_app, endpoints
from sennit.server.http.endpoint import Endpoint
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Receive, Send
from sennit.server.http.tokens import (
    SCOPES,
    add_token,
    new_token,
    read_tokens,
    revoke_token,
    write_tokens,
)
from sennit.server.run import listen
from sennit.server.settings import Limits, ServerSettings
from sennit.testing import ScriptedModel
from tests.http_server import Gate, Running, Talker, Told, all_events, events_in, serving

GUARDED = [one for one in endpoints() if one.scope is not None]
UNKNOWN = str(uuid4())


def name_of(one: Endpoint) -> str:
    return f"{one.method} {one.path}"


def token(path: Path, user: str, *scopes: str) -> str:
    secret, line = new_token(tenant="acme", user=user, scopes=scopes or SCOPES)
    add_token(path, line)
    return secret


@dataclass
class Tenants:
    """A server with two users of one tenant; one of them has something of each kind."""

    server: Running
    alice: httpx.Client
    bob: httpx.Client
    scoped: dict[str, httpx.Client]
    things: dict[str, str]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    folder = tmp_path_factory.mktemp("tenants")
    tokens = folder / "tokens.json"
    secrets = {user: token(tokens, user) for user in ("alice", "bob")}
    scoped = {scope: token(tokens, "alice", scope) for scope in SCOPES}
    limits = Limits(rate=None)
    with serving(folder / "s.db", models=[Talker()], tokens=tokens, limits=limits) as server:
        alice = server.as_holder(secrets["alice"])
        yield Tenants(
            server,
            alice,
            server.as_holder(secrets["bob"]),
            {scope: server.as_holder(secret) for scope, secret in scoped.items()},
            of_each_kind(alice),
        )


def of_each_kind(alice: httpx.Client) -> dict[str, str]:
    """One of each kind of thing that a path can name."""
    session = alice.post("/api/sessions", json={"system": "Be brief."}).json()["id"]
    branch = alice.get(f"/api/sessions/{session}").json()["branches"][0]["id"]
    path = f"/api/sessions/{session}/branches/{branch}"
    alice.post(f"{path}/messages", json={"role": "user", "text": "I prefer rye bread."})
    started = alice.post(f"{path}/runs", json={"memory": False}).json()
    with alice.stream("GET", started["events"]) as answer:
        answer.read()
    message = alice.get(f"{path}/messages").json()["messages"][-1]["id"]
    commit = alice.post(f"/api/sessions/{session}/commit", json={}).json()["task_id"]
    said = {"items": [{"role": "user", "content": "I prefer rye bread."}]}
    conversation = alice.post("/v1/conversations", json=said).json()["id"]
    items = alice.get(f"/v1/conversations/{conversation}/items").json()["data"]
    answer = alice.post("/v1/responses", json={"model": "talker", "input": "Hello"}).json()
    asked = {"model": "talker", "messages": [{"role": "user", "content": "Hello"}]}
    completion = alice.post("/v1/chat/completions", json=asked).json()["id"]
    return {
        "session": session,
        "hash": alice.post("/api/blobs", content=b"bread").json()["reference"][19:83],
        "completion": completion,
        "chat": session,
        "thread": session,
        "branch": branch,
        "message": message,
        "call": "call_1",
        "task": commit,
        "commit": commit,
        "conversation": conversation,
        "item": items[0]["id"],
        "response": answer["id"],
        "model": "unknown",
    }


BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "talker",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}],
    },
    "/messages": {"role": "user", "text": "Hello"},
    "/edit": {"message": 1, "text": "Other"},
    "/steer": {"text": "Hello"},
    "/approvals/{call}": {"approve": True},
    "/label": {"thumb": "up"},
    "/{session}": {"metadata": {}},
    "/{branch}": {"name": "other"},
    "/{conversation}": {"metadata": {}},
    "/items": {"items": []},
    "/chat/completions": {"model": "talker", "messages": [{"role": "user", "content": "Hello"}]},
    "/api/chat": {"id": "talk", "messages": [{"id": "m1", "role": "user", "parts": []}]},
    "/api/ag-ui": {"threadId": "t", "messages": [{"id": "m1", "role": "user", "content": "Hi"}]},
    "/count_tokens": {"model": "talker", "messages": [{"role": "user", "content": "Hello"}]},
    "/responses": {"model": "talker", "input": "Hello"},
    "/compact": {"model": "talker", "input": "Hello"},
    "/input_tokens": {"model": "talker", "input": "Hello"},
    "/v1/completions": {"model": "talker", "prompt": "Hello"},
    "/embeddings": {"model": "words-64", "input": "Hello"},
    "/api/files": {"text": "x"},
    "/api/forget": {"uri": "viking://user/memories"},
}
QUERIES: dict[str, dict[str, str]] = {
    "/diff": {"a": "main", "b": "main"},
    "/api/files": {"uri": "viking://user/nothing-here"},
    "/api/memories/item": {"uri": "viking://user/memories/nothing.md"},
    "/api/find": {"q": "bread"},
    "/api/search": {"q": "bread"},
}


def ask(client: httpx.Client, one: Endpoint, things: dict[str, str]) -> httpx.Response:
    """Ask an endpoint for something, with a body and a query that it takes."""
    path = re.sub(r"{(\w+)}", lambda found: things[found[1]], one.path)
    body = next((it for end, it in BODIES.items() if one.path.endswith(end)), {})
    query = next((it for end, it in QUERIES.items() if one.path.endswith(end)), {})
    sent = body if one.body is not None else None
    return client.request(one.method, path, params=query, json=sent)


@pytest.mark.parametrize("one", GUARDED, ids=name_of)
def test_nobody_comes_in_without_a_token(tenants: Tenants, one: Endpoint) -> None:
    answer = ask(tenants.server.http, one, tenants.things)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["code"] == "token"


NAMING = [one for one in GUARDED if "{" in one.path]


@pytest.mark.parametrize("one", NAMING, ids=name_of)
def test_what_belongs_to_another_owner_is_not_there(tenants: Tenants, one: Endpoint) -> None:
    foreign = ask(tenants.bob, one, tenants.things)
    unknown = ask(tenants.bob, one, {**dict.fromkeys(tenants.things, UNKNOWN), "call": "call_1"})
    # A page asks whether there is a stream to follow; there is none.
    follows = one.path in ("/api/chat/{chat}/stream", "/api/ag-ui/{thread}/stream")
    expected = 204 if follows else 404
    assert foreign.status_code == unknown.status_code == expected
    told = foreign.text
    for thing in tenants.things.values():
        told = told.replace(thing, UNKNOWN)
    assert told == unknown.text.replace("call_1", UNKNOWN)  # not even that it exists


def test_lists_hold_nothing_of_another_owner(tenants: Tenants) -> None:
    assert tenants.bob.get("/api/sessions").json()["sessions"] == []
    assert tenants.bob.get("/api/memories").json()["memories"] == []
    assert tenants.bob.get("/api/commits").json()["commits"] == []
    assert tenants.bob.get("/api/find", params={"q": "rye bread"}).json()["matches"] == []
    assert tenants.bob.get("/api/usage").json()["days"] == []
    listed = {"uri": "viking://session", "op": "ls"}
    assert tenants.bob.get("/api/files", params=listed).json()["entries"] == []
    session = tenants.things["session"]
    assert tenants.bob.post("/api/forget", json={"session": session}).status_code == 404
    assert tenants.bob.get("/api/commits", params={"session": session}).status_code == 404
    query = {"q": "bread", "session": session}
    assert tenants.bob.get("/api/search", params=query).status_code == 404
    assert tenants.alice.get(f"/api/sessions/{session}").status_code == 200


@pytest.mark.parametrize("one", GUARDED, ids=name_of)
def test_a_scope_lets_do_that_and_nothing_else(tenants: Tenants, one: Endpoint) -> None:
    things = dict.fromkeys(tenants.things, UNKNOWN)  # so that nothing is really done
    for scope, client in tenants.scoped.items():
        if scope == "admin" and "{" not in one.path:
            continue
        answer = ask(client, one, things)
        may = scope in (one.scope, "admin")
        assert (answer.status_code == 403) is not may, f"{scope}: {answer.text}"
        if not may:
            assert answer.json()["error"]["code"] == "scope"


def test_an_edit_that_runs_needs_the_scope_for_runs_too(tenants: Tenants) -> None:
    things = tenants.things
    path = f"/api/sessions/{things['session']}/branches/{things['branch']}/edit"
    before = tenants.alice.get(f"/api/sessions/{things['session']}").json()["branches"]
    body = {"message": 1, "text": "Other", "run": {}}
    assert tenants.scoped["write"].post(path, json=body).status_code == 403
    after = tenants.alice.get(f"/api/sessions/{things['session']}").json()["branches"]
    assert after == before


@pytest.mark.parametrize(
    "header",
    [
        "Bearer snt",
        "Bearer snt_",
        "Bearer snt__",
        "Bearer x",
        "Basic YTpi",
        "Bearer snt_a_b",
    ],
)
def test_a_bad_token_is_refused_politely(tenants: Tenants, header: str) -> None:
    answer = tenants.server.get("/api/me", headers={"authorization": header})
    assert answer.status_code == 401


def test_half_a_token_is_none(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    secret = token(tokens, "alice")
    with serving(tmp_path / "s.db", tokens=tokens) as server:
        assert server.as_holder(secret).get("/api/me").json()["user"] == "alice"
        assert server.as_holder(secret[:-1]).get("/api/me").status_code == 401
        assert server.as_holder(secret + "x").get("/api/me").status_code == 401


def test_a_token_counts_as_soon_as_it_is_made_and_no_longer_than_it_is_valid(
    tmp_path: Path,
) -> None:
    tokens = tmp_path / "tokens.json"
    with serving(tmp_path / "s.db", tokens=tokens) as server:
        assert server.get("/api/me").json()["user"] == "default"
        secret, line = new_token(user="carol")
        add_token(tokens, line)
        assert server.get("/api/me").status_code == 401
        assert server.as_holder(secret).get("/api/me").json()["user"] == "carol"
        revoke_token(tokens, line.id)
        assert server.as_holder(secret).get("/api/me").status_code == 401
        tokens.unlink()
        answer = server.get("/api/me")
        assert answer.status_code == 503
        assert "no request is allowed" in answer.json()["error"]["message"]


def test_a_token_of_an_owner_there_cannot_be_lets_nobody_in(tmp_path: Path) -> None:
    secret, line = new_token()
    write_tokens(tmp_path / "tokens.json", [structs.replace(line, user="")])
    with serving(tmp_path / "s.db", tokens=tmp_path / "tokens.json") as server:
        answer = server.as_holder(secret).get("/api/me")
        assert answer.status_code == 422
        assert "user must not be empty" in answer.json()["error"]["message"]


def test_tokens_count_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret, line = new_token(user="carol")
    add_token(Path("tokens.json"), line)
    with serving(tmp_path / "s.db", tokens=Path("tokens.json")) as server:
        monkeypatch.chdir("/")
        assert server.as_holder(secret).get("/api/me").json()["user"] == "carol"


def test_tokens_made_and_revoked_at_once_are_all_made_and_revoked(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    old = [new_token(note=str(number))[1] for number in range(8)]
    for line in old:
        add_token(path, line)
    new = [new_token()[1] for _ in range(8)]
    with ThreadPoolExecutor(16) as pool:
        made = [pool.submit(add_token, path, line) for line in new]
        gone = [pool.submit(revoke_token, path, line.id) for line in old]
        for one in (*made, *gone):
            one.result()
    assert set(read_tokens(path)) == {line.id for line in new}


def test_the_file_of_tokens_holds_no_secret_and_is_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    secret = token(path, "alice")
    assert secret.split("_", 2)[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        read_tokens(path)
    path.chmod(0o600)
    path.write_text('{"tokens": [{"id": 1}]}')
    with pytest.raises(StoreError, match="cannot be read"):
        read_tokens(path)


def test_what_others_may_reach_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="sennit token create"):
        listen(ServerSettings(host="0.0.0.0", port=0, tokens=tmp_path / "none.json"))
    with pytest.raises(ValidationError, match="sennit token create"):
        listen(ServerSettings(host="example.org", port=0))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "", "[::2]"]
)
def test_a_forged_host_is_refused(tenants: Tenants, host: str) -> None:
    answer = tenants.alice.get("/api/me", headers={"host": host})
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "host"
    assert tenants.server.get("/api/health", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_names_of_this_machine_are_answered_for(tenants: Tenants, host: str) -> None:
    assert tenants.alice.get("/api/me", headers={"host": host}).status_code == 200


def test_another_name_is_answered_for_if_that_was_said(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", allow_hosts=("chat.example",)) as server:
        headers = {"host": "chat.example"}
        assert server.get("/api/me", headers=headers).status_code == 200
        headers = {"host": "chat.example:8000"}
        assert server.get("/api/me", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "file://", "http://[", ""]
)
def test_a_page_from_elsewhere_is_refused(tenants: Tenants, origin: str) -> None:
    answer = tenants.alice.get("/api/me", headers={"origin": origin})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin")


def test_a_page_of_our_own_is_not(tenants: Tenants) -> None:
    headers = {"origin": tenants.server.url}
    assert tenants.alice.get("/api/me", headers=headers).status_code == 200


def test_whoever_asks_too_fast_has_to_wait(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    alice, bob = token(tokens, "alice"), token(tokens, "bob")
    limits = Limits(rate=0.001, burst=3)
    with serving(tmp_path / "s.db", tokens=tokens, limits=limits) as server:
        statuses = [server.as_holder(alice).get("/api/me").status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        answer = server.as_holder(alice).get("/api/me")
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert server.as_holder(bob).get("/api/me").status_code == 200


def test_no_token_is_ever_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = tmp_path / "tokens.json"
    secret = token(tokens, "alice")
    with (
        caplog.at_level(logging.DEBUG),
        serving(tmp_path / "s.db", models=[Talker()], tokens=tokens) as server,
    ):
        alice = server.as_holder(secret)
        alice.get("/api/me")
        server.as_holder(secret[:-2]).get("/api/me")
        session = alice.post("/api/sessions", json={}).json()["id"]
        path = f"/api/sessions/{session}/branches/main/runs"
        server.http.headers["authorization"] = f"Bearer {secret}"
        all_events(server, alice.post(path, json={"text": "Hi"}).json()["events"])
    ours = [one.getMessage() for one in caplog.records if not one.name.startswith("httpc")]
    assert secret not in "\n".join(ours)
    assert secret[-24:] not in "\n".join(ours)


def test_two_owners_of_one_archive_do_not_hear_or_stop_each_others_runs(tmp_path: Path) -> None:
    """Whoever imports an archive has branches with the ids of whoever wrote it."""
    store, tokens, gate = tmp_path / "s.db", tmp_path / "tokens.json", Gate()
    with sennit.open(tmp_path / "first.db") as first:
        first.session("demo").add_message("user", "Hello")
        first.export(tmp_path / "demo.zip")
    for user in ("alice", "bob"):
        with sennit.open(store, tenant="acme", user=user) as client:
            client.import_sessions(tmp_path / "demo.zip")
    secrets = {user: token(tokens, user) for user in ("alice", "bob")}
    branch = "/api/sessions/demo/branches/main"
    with serving(store, models=[Talker(gate=gate)], tokens=tokens) as server:
        alice, bob = (server.as_holder(secrets[user]) for user in ("alice", "bob"))
        with bob.stream("GET", f"{branch}/events?follow=true") as answer:
            heard = events_in(answer.iter_lines())
            hers = alice.post(f"{branch}/runs", json={"text": "A secret"}).json()
            gate.reached()
            assert alice.get(branch).json()["id"] == bob.get(branch).json()["id"]
            assert not bob.get(branch).json()["running"]
            assert bob.post(f"{branch}/cancel", json={}).json() == {"cancelled": False}
            assert not bob.post(f"{branch}/steer", json={"text": "No!"}).json()["running"]
            gate.open()
            assert list(events_of(alice, hers["events"]))[-1].data["result"]["success"]
            his = bob.post(f"{branch}/runs", json={"text": "Hi"}).json()["run"]["id"]
            assert next(heard).data["run_id"] == his


def events_of(client: httpx.Client, path: str) -> Iterator[Told]:
    with client.stream("GET", path) as answer:
        yield from events_in(answer.iter_lines())


def test_two_authorization_headers_are_refused(tenants: Tenants) -> None:
    token = tenants.alice.headers["authorization"]
    twice = [("authorization", token), ("authorization", "Bearer snt_other")]
    for headers in (twice, twice[::-1]):
        answer = tenants.server.http.get("/api/me", headers=headers)
        assert answer.status_code == 400
        assert "one Authorization header" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site"])
def test_two_headers_that_say_where_a_request_comes_from_are_refused(
    tenants: Tenants, name: str
) -> None:
    http = tenants.server.http
    ours = str(http.base_url).rstrip("/") if name == "Origin" else "same-origin"
    theirs = "https://evil.example" if name == "Origin" else "cross-site"
    twice = [(name, theirs), (name, ours)]
    for headers in (twice, twice[::-1]):
        answer = http.get("/api/me", headers=[*tenants.alice.headers.items(), *headers])
        assert answer.status_code == 400
        assert f"one {name} header" in answer.json()["error"]["message"]


def test_middleware_that_a_program_adds_to_the_app_sees_every_request() -> None:
    paths: list[str] = []

    class Counting:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
            paths.append(scope.get("path", scope["type"]))
            await self._app(scope, receive, send)

    async def ask() -> list[int]:
        app = create_app(ServerSettings(url=":memory:", models=(ScriptedModel([]),)))
        app.add_middleware(Counting)
        transport = httpx.ASGITransport(app)
        async with (
            app.state.server.running(),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            answers = [await client.get(path) for path in ("/api/health", "/nothing")]
        return [one.status_code for one in answers]

    assert asyncio.run(ask()) == [200, 404]
    assert paths == ["/api/health", "/nothing"]


def test_tokens_added_at_once_are_all_kept_even_the_first(tmp_path: Path) -> None:
    path, tokens = tmp_path / "new" / "tokens.json", [new_token()[1] for _ in range(16)]
    with ThreadPoolExecutor(len(tokens)) as threads:
        list(threads.map(lambda token: add_token(path, token), tokens))
    assert read_tokens(path).keys() == {token.id for token in tokens}

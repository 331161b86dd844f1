"""Limits per request, per token and per owner, over real connections."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.fairness_cases import Setup, worst_cases
from sennit import ValidationError, clock
from sennit.server.app import endpoints
from sennit.server.http.tokens import SCOPES, add_token, new_token, revoke_token
from sennit.server.settings import Limits, parse_limits
from tests.http_server import Gate, Running, Talker, new_branch, serving

USER = {"role": "user", "content": "Hi"}


class Guests:
    """Holders of tokens on one server, made when they are first named."""

    def __init__(self, server: Running, tokens: Path) -> None:
        self.server, self._tokens = server, tokens
        self.ids: dict[str, str] = {}

    def enter(self, name: str, user: str | None = None) -> httpx.Client:
        secret, line = new_token(tenant=user or name, user=user or name, scopes=SCOPES)
        add_token(self._tokens, line)
        self.ids[name] = line.id
        return self.server.as_holder(secret)

    def revoke(self, name: str) -> None:
        revoke_token(self._tokens, self.ids[name])


@contextmanager
def guests(folder: Path, *models: Any, **limits: Any) -> Iterator[Guests]:
    tokens = folder / "tokens.json"
    add_token(tokens, new_token(user="nobody")[1])
    with serving(
        folder / "s.db", models=models or [Talker()], tokens=tokens, limits=Limits(**limits)
    ) as server:
        yield Guests(server, tokens)


def branch_of(client: httpx.Client) -> str:
    session = client.post("/api/sessions", json={"system": "Be brief."}).json()["id"]
    return f"/api/sessions/{session}/branches/main"


def in_time(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold while it is asked for again and again."""
    end = clock.monotonic() + 20
    while not (found := holds()) and clock.monotonic() < end:
        pass
    return found


def error_of(answer: httpx.Response) -> dict[str, Any]:
    told = answer.json()["error"]
    assert set(told) == {"message", "type", "code", "param"}
    return told


# Per request.


def test_what_is_too_much_for_one_request_is_refused_and_the_limit_named() -> None:
    limits = Limits(parts=3, items=4, values=40_000)
    with serving(models=[Talker()], limits=limits) as server:
        branch = new_branch(server)
        conversation = server.post("/v1/conversations").json()["id"]
        parts = [{"type": "text", "text": "x"}] * 4
        nested = {"metadata": {"x": [[]] * 50_000}}
        refused = {
            "parts": server.post(f"{branch}/messages", {"role": "user", "parts": parts}),
            "messages": server.post(
                "/v1/chat/completions", {"model": "talker", "messages": [USER] * 5}
            ),
            "input": server.post("/v1/responses", {"model": "talker", "input": [USER] * 5}),
            "items": server.post(f"/v1/conversations/{conversation}/items", {"items": [USER] * 5}),
            "values": server.post("/api/sessions", nested),
        }
        for what, answer in refused.items():
            told = error_of(answer)
            assert (answer.status_code, told["code"], told["param"]) == (413, "too_many", what)
            assert "send fewer at a time" in told["message"]
        assert server.post("/v1/conversations", {"items": [USER] * 5}).status_code == 413
        assert server.get(f"{branch}/messages").json()["total"] == 1
        assert len(server.get("/api/sessions").json()["sessions"]) == 2
        allowed = {"role": "user", "parts": parts[:3]}
        assert server.post(f"{branch}/messages", allowed).status_code == 201


def test_the_local_user_may_send_larger_requests_unless_a_limit_was_set(tmp_path: Path) -> None:
    long = {"items": [USER] * 1_001}
    large = {"role": "user", "text": "knots " * 200_000}
    nested = {"metadata": {"x": [[]] * 30_000}}

    def statuses(client: httpx.Client) -> list[int]:
        message = f"{branch_of(client)}/messages"
        asked = [("/v1/conversations", long), (message, large), ("/api/sessions", nested)]
        return [client.post(path, json=body).status_code for path, body in asked]

    with serving() as server:
        assert statuses(server.http) == [200, 201, 201]
    with serving(limits=Limits(items=1_002, body_bytes=1_000_000, values=4_000)) as server:
        assert statuses(server.http) == [200, 413, 413]
    with guests(tmp_path) as here:
        assert statuses(here.enter("ann")) == [413, 413, 413]


def test_commas_and_braces_in_a_text_are_not_counted_as_values() -> None:
    with serving(limits=Limits(values=100)) as server:
        branch = new_branch(server)
        said = {"role": "user", "text": '{"a": [1, 2]}, \\' * 20_000}
        assert server.post(f"{branch}/messages", said).status_code == 201


def test_a_body_that_ends_within_a_string_is_read_in_linear_time() -> None:
    """In quadratic time the answer would take minutes, and all others would wait for it."""
    body = b'"' + b'\\"' * 40_000 + b"," * 100_001
    headers = {"content-type": "application/json", "accept": "application/json"}
    with serving() as server:
        for path in ("/api/sessions", "/mcp"):
            answer = server.http.post(path, content=body, headers=headers)
            assert answer.status_code == 400, answer.text


def test_a_pattern_of_many_stars_is_compared_in_a_few_steps() -> None:
    """In every combination it would take longer than the age of the universe."""
    uri = f"viking://resources/{'/'.join('abcdefghij' * 3)}/knots.md"
    with serving() as server:
        server.put("/api/files", {"text": "A bowline."}, params={"uri": uri})
        stars = "viking://" + "**/*/" * 16
        for pattern, found in ((f"{stars}*.md", [uri]), (f"{stars}*.txt", [])):
            answer = server.get("/api/files", params={"op": "glob", "pattern": pattern})
            assert answer.json() == {"uris": found}


def test_a_request_with_as_much_as_is_allowed_is_answered() -> None:
    with serving(models=[Talker()], limits=Limits(items=300)) as server:
        said = [USER, {"role": "assistant", "content": "Hello"}] * 149 + [USER]
        answer = server.post("/v1/chat/completions", {"model": "talker", "messages": said})
        assert answer.json()["choices"][0]["message"]["content"] == "You said: Hi"
        answer = server.post("/v1/responses", {"model": "talker", "input": said})
        assert answer.json()["status"] == "completed"


def test_grep_cuts_lines_and_answers_and_goes_on_where_it_stopped() -> None:
    with serving(limits=Limits(lines=3, line_chars=40)) as server:
        for name in ("a", "b"):
            lines = "\n".join(f"{'x' * 100} knot {number} {'y' * 100}" for number in range(4))
            uri = f"viking://resources/{name}.md"
            answer = server.put("/api/files", {"text": f"{lines}\nother"}, params={"uri": uri})
            assert answer.status_code == 200, answer.text
        found: list[tuple[str, int]] = []
        query = {"op": "grep", "pattern": "KNOT", "uri": "viking://resources"}
        pages = 0
        while True:
            page = server.get("/api/files", params=query).json()
            pages += 1
            assert all(len(one["line"]) == 40 and "knot" in one["line"] for one in page["lines"])
            found += [(one["uri"], one["number"]) for one in page["lines"]]
            if (after := page.get("next")) is None:
                break
            query["after"] = after
        wanted = [(f"viking://resources/{name}.md", at) for name in "ab" for at in (1, 2, 3, 4)]
        assert (found, pages) == (wanted, 3)
        for after in ("x", "1", "-1@viking://resources/a.md", "0@viking://resources/gone.md"):
            answer = server.get("/api/files", params={**query, "after": after})
            assert answer.status_code == (200 if after == "1" else 422), answer.text


def test_a_page_ends_before_it_is_too_large_and_the_next_one_goes_on() -> None:
    with serving(limits=Limits(answer_bytes=5_000)) as server:
        branch = new_branch(server)
        for number in range(7):
            said = {"role": "user", "text": f"{number}" * 2_000}
            assert server.post(f"{branch}/messages", said).status_code == 201
        last = server.get(f"{branch}/messages").json()
        assert [one["index"] for one in last["messages"]] == [6, 7]
        assert (last["start"], last["total"]) == (6, 8)
        seen, after = list[int](), -1
        while page := server.get(f"{branch}/messages?after={after}").json()["messages"]:
            seen += [one["index"] for one in page]
            after = seen[-1]
        assert seen == list(range(8))
        texts = [{"role": "user", "content": f"{number}" * 2_000} for number in range(7)]
        conversation = server.post("/v1/conversations", {"items": texts}).json()["id"]
        items, query = list[str](), dict[str, Any](order="asc")
        while True:
            page = server.get(f"/v1/conversations/{conversation}/items", params=query).json()
            items += [one["content"][0]["text"][0] for one in page["data"]]
            query["after"] = page["last_id"]
            if not page["has_more"]:
                break
        assert items == list("0123456")


# Per token and per owner.


def test_one_token_can_neither_open_all_streams_nor_keep_others_out(tmp_path: Path) -> None:
    with guests(tmp_path, rate=None, token_streams=2, owner_factor=2, requests=6) as inn:
        first, second, third = (inn.enter(f"ada{n}", "ada") for n in range(3))
        bob = inn.enter("bob")
        branch = branch_of(first)
        path = f"{branch}/events?follow=true"
        with ExitStack() as stack:
            for client in (first, first, second, second):
                answer = stack.enter_context(client.stream("GET", path))
                assert answer.status_code == 200
            refused = first.get(path)  # as many as a token may have
            assert (refused.status_code, error_of(refused)["code"]) == (429, "streams_open")
            assert "token has 2" in refused.text
            assert int(refused.headers["retry-after"]) > 0
            assert "user has 4" in third.get(path).text  # as many as an owner may have
            body = {"model": "talker", "messages": [USER], "stream": True}
            assert first.post("/v1/chat/completions", json=body).status_code == 429
            body = {"model": "talker", "input": "Hi", "stream": True}
            assert first.post("/v1/responses", json=body).status_code == 429
            assert first.get("/api/me").status_code == 200
            assert bob.get("/api/me").status_code == 200
            with bob.stream("GET", f"{branch_of(bob)}/events?follow=true") as answer:
                assert answer.status_code == 200
        # A place is free again as soon as the server sees that a client is gone.
        assert in_time(lambda: first.get(f"{branch}/events").status_code == 200)


def test_health_is_told_when_the_server_is_full(tmp_path: Path) -> None:
    with guests(tmp_path, rate=None, requests=1) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        with ada.stream("GET", f"{branch_of(ada)}/events?follow=true") as answer:
            assert answer.status_code == 200
            full = bob.get("/api/me")
            assert (full.status_code, error_of(full)["code"]) == (503, "full")
            assert inn.server.get("/api/health").status_code == 200
            assert inn.server.get("/").status_code == 200
        assert in_time(lambda: bob.get("/api/me").status_code == 200)


def test_a_token_has_so_many_requests_under_way(tmp_path: Path) -> None:
    gate = Gate()
    body = {"model": "talker", "messages": [USER], "stream": True}
    with guests(tmp_path, Talker(gate=gate), token_requests=1, owner_factor=1) as inn:
        ada, other, bob = inn.enter("ada", "ada"), inn.enter("other", "ada"), inn.enter("bob")
        with ada.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            gate.reached()
            assert error_of(ada.get("/api/me"))["code"] == "requests_under_way"
            refused = other.get("/v1/models")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert error_of(refused)["type"] == "rate_limit_error"
            assert bob.get("/api/me").status_code == 200
            gate.open()
            answer.read()
        assert in_time(lambda: ada.get("/api/me").status_code == 200)


@pytest.mark.parametrize("path", ["{branch}/messages", "{session}/export"])
def test_an_answer_that_nobody_reads_is_dropped(tmp_path: Path, path: str) -> None:
    limits = {"token_requests": 1, "send_seconds": 0.5, "rate": None}
    with guests(tmp_path, **limits) as inn:
        ada = inn.enter("ada")
        branch = branch_of(ada)
        for _ in range(9):  # more than the system takes in for a connection
            said = {"role": "user", "text": "x" * 1_000_000}
            assert ada.post(f"{branch}/messages", json=said).status_code == 201
        place = path.format(branch=branch, session=branch.removesuffix("/branches/main"))
        asked = f"GET {place} HTTP/1.1\r\nHost: localhost\r\n"
        head = f"{asked}Authorization: {ada.headers['authorization']}\r\n\r\n".encode()
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", inn.server.port))
            silent.sendall(head * 9)
            assert in_time(lambda: ada.get("/api/me").status_code == 429)
            assert in_time(lambda: all(ada.get("/api/me").status_code == 200 for _ in range(50)))


@pytest.mark.parametrize("way", ["in", "out"])
def test_bytes_are_counted_both_ways(tmp_path: Path, way: str) -> None:
    with guests(tmp_path, byte_rate=0.001, byte_burst=30_000, owner_factor=1) as inn:
        ada, other, bob = inn.enter("ada", "ada"), inn.enter("other", "ada"), inn.enter("bob")
        if way == "in":
            assert ada.post("/api/sessions", json={"nothing": "x" * 40_000}).status_code == 422
        else:
            branch = branch_of(ada)
            ada.post(f"{branch}/messages", json={"role": "user", "text": "x" * 10_000})
            assert ada.get(f"{branch}/messages").status_code == 200
        for client in (ada, other):
            refused = client.get("/api/me")
            assert (refused.status_code, error_of(refused)["code"]) == (429, "byte_limit")
            assert int(refused.headers["retry-after"]) > 0
        assert bob.get("/api/me").status_code == 200


def test_a_limit_is_more_than_nothing() -> None:
    for name in ("parts", "token_streams", "owner_factor", "byte_rate"):
        with pytest.raises(ValidationError, match=name):
            Limits(**{name: 0})


def test_limits_are_named_on_the_command_line() -> None:
    limits = parse_limits(["parts=7", "byte_rate=1.5", "owner_sessions=none"], rate=None)
    assert (limits.parts, limits.byte_rate, limits.owner_sessions) == (7, 1.5, None)
    assert (limits.rate, limits.items) == (None, Limits().items)
    for wrong in ("nothing=1", "parts", "parts=x", "parts=none", "parts=0", "byte_rate=nan"):
        with pytest.raises(ValidationError):
            parse_limits([wrong])


# Streams and their tokens.


@pytest.mark.parametrize("change", ["revoked", "file gone"])
def test_a_stream_ends_with_its_token(tmp_path: Path, change: str) -> None:
    with guests(tmp_path, rate=None, heartbeat=0.1) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        hers, his = branch_of(ada), branch_of(bob)
        with (
            ada.stream("GET", f"{hers}/events?follow=true") as gone,
            bob.stream("GET", f"{his}/events?follow=true") as kept,
        ):
            heard = kept.iter_lines()
            next(heard)
            if change == "revoked":
                inn.revoke("ada")
            else:
                (tmp_path / "tokens.json").unlink()
            gone.read()  # to its end, which is a proper one
            if change == "revoked":
                started = bob.post(f"{his}/runs", json={"text": "Hi", "memory": False})
                assert started.status_code == 202
                assert any(line == "event: run.started" for line in heard)


def test_a_streamed_answer_ends_with_its_token(tmp_path: Path) -> None:
    gate = Gate()
    body = {"model": "talker", "messages": [USER], "stream": True}
    with guests(tmp_path, Talker(gate=gate), heartbeat=0.1) as inn:
        ada = inn.enter("ada")
        with ada.stream("POST", "/v1/chat/completions", json=body) as answer:
            gate.reached()
            inn.revoke("ada")
            assert "[DONE]" not in answer.read().decode()
            gate.open()


# MCP.


def test_mcp_has_the_same_limits_for_its_body(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(body_seconds=0.2, body_bytes=1_000)
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n"
    )
    with caplog.at_level(logging.WARNING), serving(limits=limits) as server:
        assert b" 413 " in exchanged(server, head.format(2_000).encode() + b"x")
        slow = exchanged(server, head.format(100).encode() + b"{")
        assert b" 408 " in slow
        assert b"slow_body" in slow
        for sent in (head.format(100).encode() + b"{", head.format(100).encode()):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(sent)  # and goes away
        ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        assert server.post("/mcp", ping, headers=accept).status_code == 200
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []
    assert "Traceback" not in caplog.text


def exchanged(server: Running, sent: bytes) -> bytes:
    """What a server answers to some bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(sent)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
    return found


# HTTP that a proxy may read in another way.

POST = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"2\r\n{}\r\n0\r\n\r\n"
SMUGGLED = b"GET /api/me HTTP/1.1\r\nHost: localhost\r\n\r\n"
STRANGE = {
    "both lengths": POST + CHUNKED + b"Content-Length: 4\r\n\r\n" + BODY,
    "both lengths, the other way round": POST + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n" + BODY,
    "no length and chunks": POST + CHUNKED + b"Content-Length: 0\r\n\r\n" + BODY,
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length with a sign": POST + b"Content-Length: +2\r\n\r\n{}",
    "a length below zero": POST + b"Content-Length: -2\r\n\r\n{}",
    "a space before the colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "a header before the first": b"GET /api/me HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + BODY,
    "no coding": POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "a coding twice": POST + CHUNKED + CHUNKED + b"\r\n" + BODY,
    "a strange blank": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + BODY,
    "chunks in HTTP/1.0": POST.replace(b"/1.1", b"/1.0") + CHUNKED + b"\r\n" + BODY,
    "no size": POST + CHUNKED + b"\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a size below zero": POST + CHUNKED + b"\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a size with a prefix": POST + CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a huge size": POST + CHUNKED + b"\r\nfffffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "more than the size": POST + CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n",
    "two hosts": b"GET /api/me HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "no host": b"GET /api/me HTTP/1.1\r\n\r\n",
    "another host in the target": b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a host in the target": b"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no path": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another version": b"GET /api/me HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "NUL in a header": b"GET /api/me HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
}


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with serving() as server:
        yield server


@pytest.mark.parametrize("sent", STRANGE.values(), ids=STRANGE)
def test_strange_http_is_refused_and_the_connection_closed(plain: Running, sent: bytes) -> None:
    answer = exchanged(plain, sent + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") == 1
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "malformed"
    assert plain.get("/api/sessions").json()["sessions"] == []


def test_a_body_in_many_tiny_chunks_is_refused(plain: Running) -> None:
    head = POST + CHUNKED + b"Connection: close\r\n\r\n"
    answer = exchanged(plain, head + b"1\r\n \r\n" * 2_100 + BODY)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "malformed"
    answer = exchanged(plain, head + (b"40\r\n" + b" " * 64 + b"\r\n") * 5_000 + BODY)
    assert answer.startswith(b"HTTP/1.1 201 ")
    plain.delete(f"/api/sessions/{plain.get('/api/sessions').json()['sessions'][0]['id']}")


# Pages on other sites.


@pytest.mark.parametrize("path", ["/api/health", "/api/me", "/v1/models", "/openapi.json", "/mcp"])
def test_the_page_of_another_site_may_not_use_the_api(plain: Running, path: str) -> None:
    for site, refused in (("cross-site", True), ("same-site", True), ("same-origin", False)):
        answer = plain.get(path, headers={"sec-fetch-site": site})
        assert (answer.status_code == 403) is refused, site
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert plain.get(path, headers={"sec-fetch-site": "none"}).status_code != 403


def test_a_link_on_another_site_may_lead_to_the_studio(plain: Running) -> None:
    assert plain.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_no_answer_may_be_embedded_elsewhere(plain: Running) -> None:
    branch = new_branch(plain)
    session = branch.rpartition("/branches")[0]
    paths = ("/", "/nothing", f"{branch}/events", f"{session}/export", f"{branch}/messages", "/mcp")
    for path in paths:
        found = plain.get(path).headers.get_list("cross-origin-resource-policy")
        assert found == ["same-origin"], path
    assert plain.delete(session).status_code == 204


def test_the_benchmark_of_fairness_has_a_case_for_every_route() -> None:
    nobody: Any = None
    place = Setup(nobody, "s", "m", "conv_", "i", "r", "c", "viking://user/x.md")
    cases = {one.name.partition(",")[0] for one in worst_cases(place)}
    assert cases == {f"{one.method} {one.path}" for one in endpoints()} | {"POST /mcp"}

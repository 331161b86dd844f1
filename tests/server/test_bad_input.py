"""Bad input: the right status, an error that helps, and nothing stored."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from sennit.server.settings import Limits
from tests.http_server import Running, Talker, new_branch, serving, texts

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("server") / "s.db"
    with serving(store, models=[Talker()], limits=Limits(body_bytes=10_000)) as running:
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    """A server apart, as what is merely slow may be too late for it."""
    with serving(limits=Limits(body_seconds=0.2, head_seconds=0.2)) as running:
        yield running


@pytest.fixture(scope="module")
def branch(server: Running) -> str:
    return new_branch(server)


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Check that an answer is an error of ours, and give its sentence."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["code"] == code
    assert "Traceback" not in answer.text
    return error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nul",
        b'{"role": }',
        b"\xff\xfe",
        b'{"role": "\xed\xa0\x80"}',
        b"NaN",
    ],
)
def test_what_is_no_json_is_refused(server: Running, branch: str, body: bytes) -> None:
    answer = server.http.post(f"{branch}/messages", content=body, headers=JSON)
    refused(answer, 400, "malformed")
    assert texts(server, branch) == ["Be brief."]


def test_what_is_nested_too_deeply_is_refused(server: Running, branch: str) -> None:
    deep = b'{"metadata":' + b'{"a":' * 1500 + b"1" + b"}" * 1501
    answer = server.http.post("/api/sessions", content=deep, headers=JSON)
    assert answer.status_code in (400, 422)
    assert "deep" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("messages", {}, None),
        ("messages", {"role": "robot", "text": "x"}, "role"),
        ("messages", {"role": "user", "text": 1}, "text"),
        ("messages", {"role": "user"}, None),
        ("messages", {"role": "user", "text": "x", "parts": []}, None),
        ("messages", {"role": "user", "text": "x", "colour": "red"}, None),
        ("messages", {"role": "user", "parts": [{"type": "film"}]}, None),
        ("messages", {"role": "user", "parts": [{"type": "image", "url": "file:///x"}]}, None),
        ("messages", {"role": "user", "text": "a\u0000b\ud800"}, None),
        ("runs", {"text": "x", "model": "nobody"}, "model"),
        ("runs", {"text": "x", "tools": ["hammer"]}, "tools"),
        ("runs", {"text": "x", "options": {"max_turns": "many"}}, "options"),
        ("runs", {"text": "x", "options": {"speed": 1}}, "options"),
        ("runs", {"text": "x", "streaming": {"coalesce_delay_ms": -1}}, "streaming"),
        ("runs", {"text": "x", "streaming": {"coalesce_delay_ms": 10**400}}, "streaming"),
        ("runs", {"text": "x", "params": {"heat": 3}}, None),
        ("runs", {"text": "x", "id": "not-an-id"}, "id"),
        ("fork", {"at": True}, "at"),
        ("steer", {"text": ""}, "text"),
        ("cancel", {"mode": "gently"}, "mode"),
        ("approvals/x", {"approve": "yes"}, "approve"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_stored(
    server: Running, branch: str, path: str, body: dict, param: str | None
) -> None:
    answer = server.http.post(f"{branch}/{path}", content=json.dumps(body).encode(), headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    if param is not None:
        assert answer.json()["error"]["param"] == param
    assert texts(server, branch) == ["Be brief."]
    assert len(server.get(branch.partition("/branches")[0]).json()["branches"]) == 1


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/sessions", {"limit": "0"}),
        ("/api/sessions", {"limit": "many"}),
        ("/api/sessions", {"limit": "1000000"}),
        ("/api/sessions", {"before": "yesterday"}),
        ("/api/sessions", {"colour": "red"}),
        ("/api/find", {}),
        ("/api/find", {"q": ""}),
        ("/api/usage", {"days": "-1"}),
        ("/api/files", {"uri": "viking://user/../../etc"}),
        ("/api/files", {"uri": "file:///etc/passwd"}),
        ("/api/files", {"uri": "viking://user/%2e%2e/x"}),
        ("/api/files", {"op": "grep"}),
        ("/api/files", {"op": "grep", "pattern": "x" * 501}),
        ("/api/files", {"op": "burn"}),
    ],
)
def test_a_query_that_does_not_fit_is_refused(
    server: Running, path: str, query: dict[str, str]
) -> None:
    refused(server.get(path, params=query), 422, "invalid")


def test_a_name_twice_in_a_query_is_refused(server: Running) -> None:
    refused(server.get("/api/sessions?limit=1&limit=2"), 422, "invalid")


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "٣", "9" * 30])
def test_an_odd_last_event_id_is_refused(server: Running, branch: str, last: str) -> None:
    headers = {"last-event-id": last.encode()}
    answer = server.get(f"{branch}/events", headers=headers)
    refused(answer, 422, "invalid")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "x"])
def test_another_content_type_is_refused(server: Running, kind: str) -> None:
    answer = server.http.post("/api/sessions", content=b"{}", headers={"content-type": kind})
    assert "application/json" in refused(answer, 415, "content_type")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: Running) -> None:
    answer = server.http.post("/api/sessions", content=b" " * 10_001, headers=JSON)
    refused(answer, 413, "too_large")


def test_a_body_that_does_not_say_how_large_it_is_is_refused_all_the_same(
    server: Running,
) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    answer = server.http.post("/api/sessions", content=endless(), headers=JSON)
    refused(answer, 413, "too_large")


def talk(server: Running, data: bytes) -> bytes:
    """Send bytes, and read until the server has had enough."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


HEAD = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"


def test_a_body_that_does_not_come_is_not_waited_for(impatient: Running) -> None:
    answer = talk(impatient, HEAD + b"content-length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"slow_body"' in answer


@pytest.mark.parametrize("begun", [b"", b"GET /api/health HTT", HEAD])
def test_a_head_that_does_not_come_is_not_waited_for(impatient: Running, begun: bytes) -> None:
    assert talk(impatient, begun) == b""


@pytest.mark.parametrize("line", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"\x00" * 9])
def test_what_is_no_http_is_told_so(server: Running, line: bytes) -> None:
    answer = talk(server, line + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"malformed"' in answer


def test_a_body_that_is_cut_off_stores_nothing(server: Running) -> None:
    before = len(server.get("/api/sessions").json()["sessions"])
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + b'content-length: 100\r\n\r\n{"key": "half"')
    assert server.get("/api/sessions/half").status_code == 404
    assert len(server.get("/api/sessions").json()["sessions"]) == before


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/api", 404),
        ("/api/", 404),
        ("//api/health", 404),
        ("/api//health", 404),
        ("/api/health/", 404),
        ("/api/../api/health", 404),
        ("/api/%2e%2e/health", 404),
        ("/api%2Fhealth", 404),
        ("/api/sessions/..%2f..%2fetc%2fpasswd", 404),
        ("/api/sessions/a%00b", 400),
        ("/api/sessions/%ff", 400),
        ("/api/sessions/" + "x" * 5000, 404),
        ("/api/sessions/%F0%9F%92%A9", 404),
    ],
)
def test_a_tricky_path_leads_nowhere(server: Running, path: str, status: int) -> None:
    line = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = talk(server, line.encode())
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer[:200]
    assert b'{"error":{"message":' in answer


@pytest.mark.parametrize("method", ["PATCH", "PUT", "TRACE", "OPTIONS", "BREW"])
def test_another_method_is_told_which_ones_there_are(server: Running, method: str) -> None:
    answer = server.http.request(method, "/api/sessions")
    refused(answer, 405, "method")
    assert answer.headers["allow"] == "GET, POST"


def test_a_head_request_gets_the_head_alone(server: Running) -> None:
    answer = server.http.head("/api/health")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("kind", ["session", "branch", "message"])
@pytest.mark.parametrize("uid", ["none", "019a0000-0000-7000-8000-00000000ffff", "*", "'; --"])
def test_an_unknown_id_is_not_found(server: Running, branch: str, kind: str, uid: str) -> None:
    session = branch.split("/")[3]
    path = {
        "session": f"/api/sessions/{uid}/branches/main/messages",
        "branch": f"/api/sessions/{session}/branches/{uid}/messages",
        "message": f"{branch}/messages/{uid}/seen",
    }[kind]
    refused(server.get(path), 404, "not_found")


def test_an_error_nobody_foresaw_is_told_without_a_traceback(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = " ".join(["secret", "words"])  # not as one in the source, whose lines the log may show

    def broken(**_: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(server.state.callers.local().client, "sessions", broken)
    answer = server.get("/api/sessions")
    assert "secret words" not in refused(answer, 500, "internal")
    assert "RuntimeError" in caplog.text
    assert "in broken" in caplog.text
    assert "secret words" not in caplog.text


def test_a_client_that_is_gone_stops_nothing(server: Running) -> None:
    branch = new_branch(server)
    started = server.post(f"{branch}/runs", {"text": "Hello"}).json()
    path = started["events"].encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with server.http.stream("GET", started["events"]) as answer:
        assert b"event: run.ended" in answer.read()

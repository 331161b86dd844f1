"""Clients that go away: what they asked for is stopped."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from pathlib import Path

import pytest

from sennit import cancellation
from sennit.api.client import Client
from sennit.memory.files.filesystem import FileSystem
from sennit.sessions.client import SessionInfo
from tests.http_server import Running, serving

READ = "viking://resources"


def ask_and_leave(server: Running, path: str, working: Future[None]) -> None:
    """Ask for something, and go away once it is worked on."""
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        working.result(timeout=60)


@pytest.mark.parametrize("op", ["grep", "glob", "tree"])
def test_a_search_through_files_ends_when_the_client_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    working, seen = Future[None](), list[str]()
    ended = Future[list[str]]()
    walk = FileSystem.ls

    def slow(self: FileSystem, uri: str) -> list[object]:
        found = walk(self, uri)
        requested = cancellation.cancellation_event()
        if uri == READ and requested is not None:
            working.set_result(None)
            assert requested.wait(60), "the client has gone, and nobody was told"
            ended.set_result(seen)
        elif ended.done():
            seen.append(uri)
        return list(found)

    with serving(tmp_path / "s.db") as server:
        for name in ("a", "b"):
            uri = f"{READ}/{name}/note.md"
            assert server.put(f"/api/files?uri={uri}", {"text": "knot"}).status_code == 200
        monkeypatch.setattr(FileSystem, "ls", slow)
        pattern = "**" if op == "glob" else "knot"
        ask_and_leave(server, f"/api/files?uri={READ}&op={op}&pattern={pattern}", working)
        assert ended.result(timeout=60) == []
    assert seen == []


def test_counting_what_was_used_ends_when_the_client_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, pages = Future[None](), Client.sessions
    opened: list[object] = []

    def slow(self: Client, **asked: object) -> list[SessionInfo]:
        requested = cancellation.cancellation_event()
        assert requested is not None
        found = pages(self, **asked)  # pyright: ignore[reportArgumentType]
        working.set_result(None)
        assert requested.wait(60), "the client has gone, and nobody was told"
        return found

    with serving(tmp_path / "s.db") as server:
        assert server.post("/api/sessions", {"key": "chat"}).status_code == 201
        monkeypatch.setattr(Client, "sessions", slow)
        monkeypatch.setattr(Client, "session", lambda *_, **__: opened.append(1))
        ask_and_leave(server, "/api/usage", working)
    assert opened == []

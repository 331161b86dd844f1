"""The real server on a loopback port, in a thread of the test's own process.

with serving(tmp_path / "s.db", models=[ScriptedModel(["Hello!"])]) as server:
    assert server.get("/api/health").status_code == 200
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from sennit.server.app import create_app
from sennit.server.serving import Server, listen
from sennit.server.settings import Limits, ServerSettings
from sennit.server.state import ServerState
from sennit.services.tools import Tool
from sennit.testing import ScriptedModel


class Running:
    """A server that runs, and how to ask it."""

    def __init__(self, url: str, state: ServerState) -> None:
        self.url, self.state = url, state
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def as_holder(self, token: str) -> httpx.Client:
        """Ask as whoever holds a token."""
        headers = {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False, headers=headers)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.http.post(path, json={} if json is None else json, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.http.delete(path, **more)

    def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.http.put(path, json={} if json is None else json, **more)


@contextmanager
def serving(
    store: str | PathLike[str] = ":memory:",
    *,
    models: Iterable[Any] = (),
    tools: Iterable[Any] = (),
    tokens: Path | None = None,
    limits: Limits | None = None,
    **more: Any,
) -> Generator[Running]:
    """A server, stopped as a signal would stop it at the end of the block."""
    settings = ServerSettings(
        url=store,
        port=0,
        models=tuple(models) or (ScriptedModel([], name="scripted"),),
        tools=tuple(one if isinstance(one, Tool) else Tool(one) for one in tools),
        tokens=tokens,
        limits=limits or Limits(),
        **more,
    )
    listener = listen(settings)
    app = create_app(settings)
    server = Server(app, settings)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    running = Running(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.server)
    try:
        running.get("/api/health").raise_for_status()
        yield running
    finally:
        running.http.close()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not end"

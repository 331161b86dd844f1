"""Fairness: how long another tenant waits while one sends the worst that the limits allow.

Each case sends one request of the largest allowed kind, several times, each once the one before is
answered. Meanwhile another tenant adds one-line messages, one after the other, from another
process. What counts is the slowest of those writes during one large request, for the large request
in the middle, as a ratio to the median write on the quiet server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter
from typing import Any

import httpx

from benchmarks.harness import Result
from benchmarks.server import Instant, running
from sennit.server.app import create_app
from sennit.server.serving import tune
from sennit.server.settings import Limits, ServerSettings
from sennit.server.tokens import add_token, new_token

ROUNDS = 5
BAR = 5.0
_MIB = 1024 * 1024
_LIMITS = Limits(rate=None, byte_rate=None)


@dataclass(frozen=True, slots=True)
class Case:
    """The worst request to a route."""

    name: str
    method: str
    path: str
    body: Any = None


def cases(branch: str, conversation: str) -> list[Case]:
    """The largest allowed request to each kind of route."""
    user = {"role": "user", "content": "Hi"}
    talk = [user, {"role": "assistant", "content": "Hello"}] * (_LIMITS.items // 2)
    talk = [*talk[: _LIMITS.items - 1], user]
    text = "word " * (_LIMITS.body_bytes // 5 - 100)
    values = {"metadata": {"x": [{}] * (_LIMITS.values // 2 - 100)}}
    parts = [{"type": "text", "text": "word " * 100}] * _LIMITS.parts
    grep = "/api/files?op=grep&pattern=word&uri=viking://resources"
    return [
        Case("parts of a message", "POST", f"{branch}/messages", {"role": "user", "parts": parts}),
        Case("one text of 8 MiB", "POST", f"{branch}/messages", {"role": "user", "text": text}),
        Case("metadata of a session", "POST", "/api/sessions", values),
        Case("messages of a chat", "POST", "/v1/chat/completions", _asks(messages=talk)),
        Case("items of a response", "POST", "/v1/responses", _asks(input=talk)),
        Case("items of a conversation", "POST", conversation, {"items": talk}),
        Case("a file of 8 MiB", "PUT", "/api/files?uri=viking://resources/big.md", {"text": text}),
        Case("grep", "GET", grep),
        Case("a page of messages", "GET", f"{branch}/messages?limit=1000"),
        Case("export", "GET", f"{branch.partition('/branches')[0]}/export"),
        Case("find", "GET", f"/api/find?limit=100&q={'word+other+' * 800}"),
    ]


def _asks(**more: Any) -> dict[str, Any]:
    return {"model": "instant", "metadata": {"memory": "false"}, **more}


def run() -> Iterator[Result]:
    """Each kind of large request, and the write of another tenant beside it."""
    tune()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.json"
        clients = [_token(tokens, name) for name in ("large", "small")]
        settings = ServerSettings(
            url=Path(folder) / "s.db", port=0, models=(Instant(),), tokens=tokens, limits=_LIMITS
        )
        with running(create_app(settings), settings) as port:
            yield from _measured(port, *clients)


def _token(tokens: Path, tenant: str) -> dict[str, str]:
    secret, line = new_token(tenant=tenant, user=tenant)
    add_token(tokens, line)
    return {"authorization": f"Bearer {secret}"}


def _measured(port: int, large: dict[str, str], small: dict[str, str]) -> Iterator[Result]:
    url = f"http://127.0.0.1:{port}"
    with (
        httpx.Client(base_url=url, headers=large, trust_env=False, timeout=120) as asker,
        httpx.Client(base_url=url, headers=small, trust_env=False) as other,
    ):
        writes = Writes(port, f"{_branch(other)}/messages", small["authorization"])
        quiet = median(seconds for _, seconds in writes.during(2.0))
        branch = _branch(asker)
        conversation = asker.post("/v1/conversations", json={}).json()["id"]
        for case in cases(branch, f"/v1/conversations/{conversation}/items"):
            slowest, took = writes.beside(asker, case)
            name = f"a write beside {case.name} ({took * 1e3:,.0f} ms)"
            yield Result(name, slowest * 1e3, quiet * 1e3, "quiet median", "ms", bar=BAR)


def _branch(client: httpx.Client) -> str:
    session = client.post("/api/sessions", json={"system": "Be brief."}).json()["id"]
    return f"/api/sessions/{session}/branches/main"


class Writes:
    """One-line writes of a tenant, one after the other, from another process."""

    def __init__(self, port: int, path: str, token: str) -> None:
        self._work = {"port": port, "path": path, "token": token}

    def during(self, seconds: float) -> list[tuple[float, float]]:
        """When each began and how long it took, on the clock of perf_counter."""
        return self._told(self._start(), seconds)

    def beside(self, client: httpx.Client, case: Case) -> tuple[float, float]:
        """The slowest write during the large request in the middle, and how long that took."""
        body = None if case.body is None else json.dumps(case.body).encode()
        spans: list[tuple[float, float]] = []
        client.get("/api/me")

        def ask() -> None:
            headers = {"content-type": "application/json"}
            for _ in range(ROUNDS):
                began = perf_counter()
                answer = client.request(case.method, case.path, content=body, headers=headers)
                if answer.status_code >= 400:
                    raise AssertionError(f"{case.name}: {answer.text[:300]}")
                spans.append((began, perf_counter()))

        process = self._start()
        asking = Thread(target=ask)
        asking.start()
        asking.join()
        writes = self._told(process, 0.0)
        if len(spans) < ROUNDS:
            raise AssertionError(f"{case.name} was refused.")
        slowest = [
            max((took for at, took in writes if at < end and at + took > began), default=0.0)
            for began, end in spans
        ]
        return median(slowest), median(end - began for began, end in spans)

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fairness"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._work) + "\n")
        process.stdin.flush()
        process.stdout.readline()  # it has begun to write
        return process

    def _told(self, process: subprocess.Popen[str], seconds: float) -> list[tuple[float, float]]:
        told, _ = process.communicate(f"{seconds}\n")
        return [(at, took) for at, took in json.loads(told)]


def _write() -> None:
    """Write until the parent says for how much longer; the clock is the same in all processes."""
    work = json.loads(sys.stdin.readline())
    until: list[float] = []
    Thread(target=lambda: until.append(perf_counter() + float(sys.stdin.readline()))).start()
    found: list[tuple[float, float]] = []
    with httpx.Client(
        base_url=f"http://127.0.0.1:{work['port']}",
        headers={"authorization": work["token"]},
        trust_env=False,
        timeout=120,
    ) as client:
        while not until or perf_counter() < until[0]:
            began = perf_counter()
            answer = client.post(work["path"], json={"role": "user", "text": "Hello"})
            found.append((began, perf_counter() - began))
            answer.raise_for_status()
            if len(found) == 10:
                print("begun", flush=True)
    print(json.dumps(found[10:]))


if __name__ == "__main__":
    if sys.stdin.isatty() or "run" in sys.argv:
        from benchmarks.harness import show

        results: list[Result] = []
        for result in run():
            results.append(result)
            print(f"  {result.name}: {result.ours:.1f} ms, {result.ratio:.1f} ×", file=sys.stderr)
        print(show(results))
    else:
        _write()

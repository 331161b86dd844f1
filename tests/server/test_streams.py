"""Many streams at once, and slow ones: every event arrives once and in order."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sennit.server.run import listen
from sennit.server.settings import Limits, ServerSettings
from tests.http_server import Gate, Running, Talker, new_branch, run, serving

FEW = 40
MANY = 300
EACH = 60


async def numbers_on(
    server: Running, path: str, began: Callable[[], object] = lambda: None
) -> list[int]:
    """The numbers of the events of a stream, read until it ends, past any library.

    `began` is called when the first words have come.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    found: list[int] = []
    silent = True
    async for line in reader:
        if line.startswith(b"id: "):
            found.append(int(line[4:]))
        elif silent and line == b"event: text.delta\n":
            silent = False
            began()
    writer.close()
    return found


async def all_at_once(server: Running, paths: list[str], gate: Gate) -> list[list[int]]:
    """Read all streams at once; the gate is opened when each has begun."""
    waiting = len(paths)

    def began() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            gate.open()

    return await asyncio.gather(*(numbers_on(server, path, began) for path in paths))


@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_many_streams_of_one_run_lose_and_reorder_nothing(tmp_path: Path, count: int) -> None:
    gate = Gate()
    model = Talker(gate=gate, words=EACH)
    with serving(tmp_path / "s.db", models=[model]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        heard = asyncio.run(all_at_once(server, [started["events"]] * count, gate))
        assert len(heard) == count
        assert all(one == list(range(1, len(one) + 1)) for one in heard)
        assert {len(one) for one in heard} == {len(heard[0])}
        assert len(heard[0]) >= EACH


@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_many_runs_at_once_are_each_told_whole(tmp_path: Path, count: int) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate, words=EACH)]) as server:
        branches = [new_branch(server) for _ in range(count)]
        paths = [run(server, branch)["events"] for branch in branches]
        heard = asyncio.run(all_at_once(server, paths, gate))
        assert all(one == list(range(1, len(one) + 1)) for one in heard)
        assert all(len(one) >= EACH for one in heard)


def test_whoever_does_not_read_holds_nobody_up_and_misses_nothing(tmp_path: Path) -> None:
    words = 3000
    gate = Gate()
    model = Talker(gate=gate, words=words)
    with serving(tmp_path / "s.db", models=[model]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        gate.reached()
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        line = f"GET {started['events']} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        slow.sendall(line.encode())
        gate.open()
        quick = asyncio.run(numbers_on(server, started["events"]))
        assert quick == list(range(1, len(quick) + 1))
        slow.settimeout(30)
        heard = b""
        with slow:
            while b"event: run.ended\n" not in heard:
                piece = slow.recv(65536)
                assert piece, "the stream broke off"
                heard += piece
        data = [line[6:] for line in heard.split(b"\n") if line.startswith(b"data: ")]
        seen = [json.loads(one)["seq"] for one in data if one.endswith(b"}")]
        assert seen == quick[: len(seen)]
        assert len(seen) >= len(quick) - 1


def test_a_head_request_does_not_wait_for_the_stream(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        path = f"{new_branch(server)}/events?follow=true"
        assert server.http.head(path).status_code == 200


def test_answers_are_sent_at_once(tmp_path: Path) -> None:
    with listen(ServerSettings(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # which has asyncio turn Nagle's delay off


def test_a_quiet_stream_shows_that_it_is_alive(tmp_path: Path) -> None:
    limits = Limits(heartbeat=0.01)
    with serving(tmp_path / "s.db", limits=limits) as server:
        path = f"{new_branch(server)}/events?follow=true"
        with server.http.stream("GET", path) as answer:
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith(":")) == ": alive"

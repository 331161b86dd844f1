"""Bare sqlite3, one table of rows: about the least that a durable append takes; not a peer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any
from uuid import uuid4

from benchmarks.peers.worker import Clock, Worker, gather, role, serve, text
from benchmarks.stores import AsyncFloor, bare, inserts


class Bare(Worker):
    def about(self) -> dict[str, Any]:
        return {"versions": {"sqlite": sqlite3.sqlite_version}, "pragmas": "wal, synchronous=2"}

    def append(self, count: int) -> dict[str, Any]:
        connection = bare(self.new())
        inserts(connection, [_row(0)], 1)
        with Clock() as clock:
            for number in range(1, count + 1):
                inserts(connection, [_row(number)], 1)
        return clock.answer(_rows(connection) - 1)

    def concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        return self.runner.run(self._concurrent(sessions, tasks, count))

    async def _concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        connection = bare(self.new())
        floor = AsyncFloor(connection)
        working = asyncio.create_task(floor.work())

        async def say(_: int, words: str) -> None:
            await floor.write(_body("user", words))

        clock = await gather(say, sessions, tasks, count)
        working.cancel()
        return clock.answer(_rows(connection))

    def load(self) -> dict[str, Any]:
        raise NotImplementedError

    def fork(self, count: int) -> dict[str, Any]:
        raise NotImplementedError


def _row(number: int) -> bytes:
    return _body(role(number), text(number))


def _body(role: str, words: str) -> bytes:
    return json.dumps({"id": str(uuid4()), "role": role, "content": words}).encode()


def _rows(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM rows").fetchone()[0]
    connection.close()
    return found


if __name__ == "__main__":
    serve(Bare)

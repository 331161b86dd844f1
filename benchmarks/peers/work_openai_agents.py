"""The OpenAI Agents SDK's SQLite sessions, `plain` (SQLiteSession) or `async` (aiosqlite)."""
# pyright: reportMissingImports=false

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession
from agents.extensions.memory.async_sqlite_session import AsyncSQLiteSession

from benchmarks.peers.worker import MIDDLE, SIZE, WARM, Clock, Worker, gather, role, serve, text


class Agents(Worker):
    _long: Path | None = None
    _branching: Any = None

    def about(self) -> dict[str, Any]:
        return self.runner.run(self._about())

    async def _about(self) -> dict[str, Any]:
        session = self._session("about", self.new())
        await session.add_items([_item(0)])
        if isinstance(session, AsyncSQLiteSession):
            found = await session._get_connection()
            rows = [
                await (await found.execute(f"PRAGMA {name}")).fetchone()
                for name in ("journal_mode", "synchronous")
            ]
        else:
            connection: sqlite3.Connection = session._get_connection()
            rows = [
                connection.execute(f"PRAGMA {name}").fetchone()
                for name in ("journal_mode", "synchronous")
            ]
        await _close(session)
        journal, synchronous = (row[0] for row in rows if row is not None)
        pragmas = f"{journal}, synchronous={synchronous}"
        return {"versions": {"openai-agents": version("openai-agents")}, "pragmas": pragmas}

    def append(self, count: int) -> dict[str, Any]:
        return self.runner.run(self._append(count))

    async def _append(self, count: int) -> dict[str, Any]:
        session = self._session("chat", self.new())
        for _ in range(WARM):
            await session.add_items([_item(0)])
        with Clock() as clock:
            for number in range(1, count + 1):
                await session.add_items([_item(number)])
        landed = len(await session.get_items()) - WARM
        await _close(session)
        return clock.answer(landed)

    def concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        return self.runner.run(self._concurrent(sessions, tasks, count))

    async def _concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        path = self.new()
        opened = [self._session(f"chat{number}", path) for number in range(sessions)]

        async def say(number: int, words: str) -> None:
            await opened[number].add_items([{"role": "user", "content": words}])

        clock = await gather(say, sessions, tasks, count)
        landed = 0
        for session in opened:
            landed += len(await session.get_items())
            await _close(session)
        return clock.answer(landed)

    def load(self) -> dict[str, Any]:
        return self.runner.run(self._load())

    async def _load(self) -> dict[str, Any]:
        if self._long is None:
            self._long = self.new()
            filling = self._session("long", self._long)
            await filling.add_items([_item(number) for number in range(SIZE)])
            await _close(filling)
        with Clock() as clock:
            session = self._session("long", self._long)
            read = [item["content"] for item in await session.get_items()]
        await _close(session)
        return clock.answer(len(read))

    def fork(self, count: int) -> dict[str, Any]:
        return self.runner.run(self._fork(count))

    async def _fork(self, count: int) -> dict[str, Any]:
        if self._branching is None:
            self._branching = AdvancedSQLiteSession(
                session_id="long", db_path=self.new(), create_tables=True
            )
            await self._branching.add_items([_item(number) for number in range(SIZE)])
        session, clocks = self._branching, [Clock() for _ in range(count)]
        for clock in clocks:
            # It moves to the branch it makes; going back is not part of the fork.
            await session.switch_to_branch("main")
            with clock:
                await session.create_branch_from_turn(MIDDLE // 2 + 1)
        seconds = sum(clock.seconds for clock in clocks)
        return {"seconds": seconds, "landed": len(await session.get_items())}

    def _session(self, key: str, path: Path) -> Any:
        kind = AsyncSQLiteSession if self.variant == "async" else SQLiteSession
        return kind(key, path)


def _item(number: int) -> dict[str, str]:
    return {"role": role(number), "content": text(number)}


async def _close(session: Any) -> None:
    closing = session.close()
    if closing is not None:
        await closing


if __name__ == "__main__":
    serve(Agents)

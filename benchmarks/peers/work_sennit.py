"""Sennit's SQLite store with its defaults."""

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import sennit
from benchmarks.peers.worker import MIDDLE, SIZE, Clock, Worker, gather, role, serve, text
from sennit import AssistantResponseContent, InstructionContent, Message, Session


class Sennit(Worker):
    _long: Path | None = None

    def about(self) -> dict[str, Any]:
        with sennit.open(self.new()) as client:
            writer: sqlite3.Connection = cast("Any", client)._store._writer
            rows = [
                writer.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous")
            ]
        pragmas = f"{rows[0]}, synchronous={rows[1]}"
        return {"versions": {"sennit": version("sennit")}, "pragmas": pragmas}

    def append(self, count: int) -> dict[str, Any]:
        path = self.new()
        with sennit.open(path) as client:
            session = client.session("chat")
            session.add_message("user", text(0))
            with Clock() as clock:
                for number in range(1, count + 1):
                    session.add_message(_role(number), text(number))
        return clock.answer(_length(path, "chat") - 1)

    def concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        return self.runner.run(self._concurrent(sessions, tasks, count))

    async def _concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        path = self.new()
        client = sennit.open(path)
        opened = [await client.asession(f"chat{number}") for number in range(sessions)]

        async def say(number: int, words: str) -> None:
            await opened[number].aadd_message("user", words)

        clock = await gather(say, sessions, tasks, count)
        await client.aclose()
        landed = sum(_length(path, f"chat{number}") for number in range(sessions))
        return clock.answer(landed)

    def load(self) -> dict[str, Any]:
        path = self._filled()
        with Clock() as clock:
            client = sennit.open(path)
            messages = client.session("long").default_branch.messages
            read = [message.content.words for message in messages]
        client.close()
        return clock.answer(len(read))

    def fork(self, count: int) -> dict[str, Any]:
        with sennit.open(self._filled()) as client:
            session = client.session("long")
            branch = session.default_branch
            with Clock() as clock:
                forks = [session.fork(branch, at=MIDDLE - 1) for _ in range(count)]
            return clock.answer(len(forks[-1]))

    def _filled(self) -> Path:
        if self._long is None:
            self._long = self.new()
            with sennit.open(self._long) as client:
                _fill(client.session("long"))
        return self._long


def _role(number: int) -> Any:
    return role(number)


def _fill(session: Session) -> None:
    kinds = (InstructionContent, AssistantResponseContent)
    messages = [Message(kinds[number % 2](text(number))) for number in range(SIZE)]
    session.add_messages(messages, branches=session.default_branch)


def _length(path: Path, key: str) -> int:
    with sennit.open(path) as client:
        return len(client.session(key).default_branch)


if __name__ == "__main__":
    serve(Sennit)

"""Nobody waits for the disk of others: event loops go on, and what they see stays whole."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Branch, ConflictError, Session
from sennit.stores.sqlite.store import SQLiteStore
from tests.sessions.test_session import said

LONG = 20.0  # only a failure waits so long


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sennit.db"


WRITES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "describe": lambda session: session.adescribe({"title": "Knots"}),
    "rename": lambda session: session.arename_branch("other", "another"),
    "create": lambda session: session.acreate_branch("new"),
    "remove": lambda session: session.aremove_branch("other"),
    "fork": lambda session: session.afork("main", at=0),
    "say": lambda session: session.aadd_message("user", "more"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_file_that_another_program_has_locked_keeps_no_reader_waiting(
    path: Path, write: Callable[[Session], Awaitable[Any]]
) -> None:
    async def work() -> None:
        async with sennit.open(path) as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "hello")
            await session.acreate_branch("other")
            locking = sqlite3.connect(path, isolation_level=None)
            locking.execute("BEGIN IMMEDIATE")
            writing = asyncio.ensure_future(write(session))
            await asyncio.sleep(0)  # it has begun
            read = asyncio.to_thread(lambda: said(session.get_branch("main")))
            assert await asyncio.wait_for(read, LONG) == ["hello"]
            assert not writing.done()
            locking.execute("ROLLBACK")
            locking.close()
            await writing

    asyncio.run(work())


def test_whoever_reads_a_session_anew_keeps_no_one_else_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    real = SQLiteStore.changes

    def slow(self: SQLiteStore, *args: Any) -> Any:
        reading.set()
        assert go_on.wait(LONG), "Nobody came past."
        return real(self, *args)

    with sennit.open(path) as client:
        session = client.session("chat")
        session.add_message("user", "hello")
        monkeypatch.setattr(SQLiteStore, "changes", slow)
        refreshing = threading.Thread(target=session.refresh)
        refreshing.start()
        assert reading.wait(LONG)
        assert said(session.default_branch) == ["hello"]
        go_on.set()
        refreshing.join(LONG)


def _say(session: Session) -> None:
    session.add_message("user", "mine")


def _fork(session: Session) -> None:
    session.fork("main", name="fork")


def _remove(session: Session) -> None:
    session.remove_message(session.default_branch[0])


def _rename(session: Session) -> None:
    session.rename_branch("other", "another")


def _rewrite(session: Session) -> None:
    session.default_branch.reverse()


def _grant(session: Session) -> None:
    session.default_branch.grant(resources={"gpt"})


@pytest.mark.parametrize("change", [_say, _fork, _remove, _rename, _rewrite, _grant])
@pytest.mark.parametrize("theirs", [True, False], ids=["others write too", "alone"])
def test_what_changes_while_a_session_is_read_anew_is_neither_lost_nor_doubled(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Session], None],
    theirs: bool,
) -> None:
    real = SQLiteStore.changes
    with sennit.open(path) as client, sennit.open(path) as other:
        session = client.session("chat")
        for text in ("one", "two"):
            session.add_message("user", text)
        session.create_branch("other")
        stranger = other.session("chat")

        def change_meanwhile(self: SQLiteStore, *args: Any) -> Any:
            found = real(self, *args)
            if self is client._store:
                monkeypatch.undo()
                if theirs:
                    stranger.add_message("user", "theirs")
                with suppress(ConflictError):  # a rewrite is refused when others were faster
                    change(session)
            return found

        monkeypatch.setattr(SQLiteStore, "changes", change_meanwhile)
        session.refresh()
        again = sennit.Client(client._store).session("chat")
        assert shown(session) == shown(again)


def shown(session: Session) -> Any:
    def one(branch: Branch) -> Any:
        return branch.name, branch._version, branch.resources, said(branch)

    return sorted(map(one, session.branches)), len(session.messages)

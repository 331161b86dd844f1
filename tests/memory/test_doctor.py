"""The doctor knows files and commits: what is wrong with them is found, and mended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sennit import Client
from sennit.stores.base import Store
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.sqlite.store import SQLiteStore
from tests.memory.remembering import TALK, memories, talk

if TYPE_CHECKING:
    from tests.postgres_server import Server

pytest_plugins = ("tests.postgres",)

Harm = Callable[[str], None]
PROFILE = "viking://user/memories/profile.md"


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[tuple[Store, Harm]]:
    """A store with a disk, and a way to do what nobody should do to it."""
    if request.param == "sqlite":
        store: Store = SQLiteStore(tmp_path / "a.db")

        def harm(statement: str) -> None:
            connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
            connection.execute(statement.replace("sennit.", ""))
            connection.close()

    else:
        server: Server = request.getfixturevalue("server")
        store = PostgresStore(request.getfixturevalue("emptied"))
        database: str = request.getfixturevalue("shared_database")

        def harm(statement: str) -> None:
            server.execute(statement, database)

    yield store, harm
    store.close()


@pytest.fixture
def client(stored: tuple[Store, Harm]) -> Client:
    client = Client(stored[0])
    talk(client.session("chat"), *TALK)
    client.session("chat").used(contexts=[PROFILE])
    client.session("chat").commit()
    talk(client.session("chat"), "My name is Ada Lovelace.")
    client.session("chat").commit()
    client.fs.write("viking://resources/guide.md", "x")
    return client


def mended(client: Client, *kinds: str) -> None:
    assert {one.kind for one in client.doctor()} >= set(kinds)
    client.doctor(repair=True)
    assert client.doctor() == []


def test_what_is_remembered_daily_has_nothing_wrong(client: Client) -> None:
    client.fs.mv("viking://resources/guide.md", "viking://user/guide.md")
    client.forget(uri=PROFILE)
    assert client.doctor() == []


def test_versions_without_a_file_get_one(client: Client, stored: tuple[Store, Harm]) -> None:
    before = client.fs.read(PROFILE)
    stored[1]("DELETE FROM sennit.files WHERE path = 'memories/profile.md'")
    mended(client, "versions")
    (found,) = client.fs.glob("viking://user/recovered/*.md")
    assert client.fs.read(found) == before


def test_a_file_that_says_nothing_is_dropped(client: Client, stored: tuple[Store, Harm]) -> None:
    stored[1]("DELETE FROM sennit.versions WHERE file = (SELECT min(no) FROM sennit.files)")
    mended(client, "files", "evidence")


def test_a_file_falls_back_to_the_version_there_is(
    client: Client, stored: tuple[Store, Harm]
) -> None:
    stored[1]("UPDATE sennit.files SET latest = 77 WHERE path = 'memories/profile.md'")
    mended(client, "latest")
    assert "Ada" in client.fs.read(PROFILE)


def test_commits_of_no_session_are_dropped(client: Client, stored: tuple[Store, Harm]) -> None:
    stored[1]("UPDATE sennit.commits SET session = 4711")
    stored[1]("UPDATE sennit.uses SET session = 4711")
    mended(client, "commits", "archived")
    again = Client(stored[0])  # a session that is open knows what it has read
    assert again.session("chat").commit()["archive"] == "archive_001"


def test_commits_move_with_a_session_that_was_lost(
    client: Client, stored: tuple[Store, Harm]
) -> None:
    before = memories(client)
    stored[1]("DELETE FROM sennit.sessions")
    mended(client, "session")
    (info,) = client.sessions()
    history = client.fs.ls(f"viking://session/{info.id}/history")
    assert [one.name for one in history] == ["archive_001", "archive_002"]
    assert client.session(info.id).current() == []
    assert memories(client) == before


def test_what_cannot_be_read_is_told_of(client: Client, stored: tuple[Store, Harm]) -> None:
    stored[1]("UPDATE sennit.versions SET info = '[' WHERE number = 2")
    found = {(one.kind, one.repairable, one.count) for one in client.doctor(repair=True)}
    assert found - {("rows", True, 1)} == {("columns", False, 1)}  # SQLite has checksums of rows

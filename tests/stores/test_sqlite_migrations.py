"""Files that older versions wrote are taken over whole, in one step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

import sennit
from sennit import Client, StoreError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.files import RemoveFile
from sennit.stores.hits import AskedFiles, FileHit
from sennit.stores.keys import session_id
from sennit.stores.records import Owner
from sennit.stores.sql import sqlite as sql
from sennit.stores.sqlite import SQLiteStore
from tests.noting import note_something
from tests.sessions.test_session import said

OWNERS = {1: "ada", 2: "bob"}


class VersionOne:
    """Writes rows as version 1 wrote them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(files("sennit.stores.sql").joinpath("sqlite_001.sql").read_text())
        connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        for name in OWNERS.values():
            self.add("owners (tenant, kind, name)", "default", "user", name)

    def add(self, columns: str, *values: Any) -> int:
        """Add a row; gives its number."""
        marks = ", ".join("?" for _ in values)
        added = self._connection.execute(f"INSERT INTO {columns} VALUES ({marks})", values)
        return added.lastrowid or 0

    def session(self, owner: int, key: str, texts: list[str]) -> None:
        """A session with a branch "main" of these, and a fork "fork" of its first two."""
        uid = session_id(Owner("default", "user", OWNERS[owner]), key).bytes
        columns = "sessions (owner, id, key, sender, created, updated, metadata)"
        session = self.add(columns, owner, uid, key, "user", 1, 2, '{"n":1}')
        system = self._message(
            owner, session, {"type": "system", "content": {"system_message": "s"}}
        )
        segments = "segments (owner, session, id, base, start)"
        main = self.add(segments, owner, session, new_id().bytes, None, 0)
        for place, text in enumerate(texts):
            body = {"type": "instruction", "content": {"instruction": text}}
            message = self._message(owner, session, body)
            self.add("entries (owner, segment, pos, message)", owner, main, place, message)
        fork = self.add(segments, owner, session, new_id().bytes, main, 2)
        self._branch(owner, session, "main", system, main, len(texts))
        self._branch(owner, session, "fork", None, fork, 0)

    def _message(self, owner: int, session: int, body: dict[str, Any]) -> int:
        columns = "messages (owner, session, id, created, body)"
        return self.add(columns, owner, session, new_id().bytes, 1, dumps(body))

    def _branch(
        self, owner: int, session: int, name: str, system: int | None, segment: int, length: int
    ) -> None:
        uid = new_id().bytes
        columns = (
            "branches (owner, session, id, name, created, system, segment, length, resources,"
            " capabilities, metadata, version)"
        )
        values = (system, segment, length, '["gpt4"]', "[]", "{}", 3)
        self.add(columns, owner, session, uid, name, 1, *values)
        columns = "leases (owner, session, branch, holder, token, expires)"
        self.add(columns, owner, session, uid, "worker", 7, 0)

    def index(self, upto: int) -> None:
        """Put the words of the messages up to a number into the index."""
        rows = self._connection.execute(
            "SELECT no, owner, json_extract(body, '$.content.instruction') FROM messages"
            " WHERE no <= ?",
            (upto,),
        ).fetchall()
        for number, owner, text in rows:
            self.add("words (rowid, owner, said)", number, f"o{owner}", text or "s")
        self._connection.execute("UPDATE indexed SET mark = ?", (upto,))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file of version 1 with sessions of two owners and a partly filled index."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    first = VersionOne(connection)
    first.session(1, "chat", ["tie a bowline", "a long rope", "third"])
    first.session(1, "other", ["belay", "rope"])
    first.session(2, "chat", ["a rope of bob", "second"])
    first.index(3)
    connection.close()
    return path


@pytest.fixture(params=range(1, sql.SCHEMA_VERSION))
def older(written: Path, request: pytest.FixtureRequest) -> Path:
    """The same as each older version has left it."""
    connection = sqlite3.connect(written, isolation_level=None)
    for number in range(2, request.param + 1):
        script = files("sennit.stores.sql").joinpath(f"sqlite_{number:03}.sql")
        connection.executescript(script.read_text())
    connection.execute(f"PRAGMA user_version = {request.param}")
    connection.close()
    return written


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA user_version").fetchone()[0]
    finally:
        connection.close()


def test_sessions_of_every_older_version_are_there_searchable_and_writable(older: Path) -> None:
    store = SQLiteStore(older)
    ada, bob = Client(store, user="ada"), Client(store, user="bob")
    session = ada.session("chat")
    main = session.default_branch
    assert main.system is not None
    spoken = [one.content.instruction for one in main.messages[1:]]  # pyright: ignore
    assert spoken == ["tie a bowline", "a long rope", "third"]
    assert said(session.get_branch("fork")) == spoken[:2]
    assert (main.resources, session.metadata) == ({"gpt4"}, {"n": 1})
    assert store.acquire(ada._owner, session.id, main.id, "next", 1).token == 8
    assert len(ada.search_messages("ropes")) == 2
    assert [hit.snippet for hit in bob.search_messages("rope")] == ["a rope of bob"]
    session.add_message("user", "a new rope")
    session.remove_message(main[2])
    assert len(ada.search_messages("rope")) == 2
    assert ada.doctor() == []
    store.close()
    assert version(older) == sql.SCHEMA_VERSION


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    """A file of version 5, whose index has texts without spaces as one word."""
    path, text = tmp_path / "chinese.db", "我喜欢打结"
    connection = sqlite3.connect(path, isolation_level=None)
    first = VersionOne(connection)
    first.session(1, "chat", [text, "second"])
    for number in range(2, 6):
        script = files("sennit.stores.sql").joinpath(f"sqlite_{number:03}.sql")
        connection.executescript(script.read_text())
    connection.execute("PRAGMA user_version = 5")
    columns = "files (owner, id, path, category, created, active, latest)"
    first.add(columns, 1, new_id().bytes, "knots.md", None, 1, 0, 1)
    columns = "versions (owner, file, number, written, valid_from, info, body)"
    first.add(columns, 1, 1, 1, 1, 1, "{}", text.encode())
    for number in (2, -1):
        first.add("words (rowid, said)", number, text)
    connection.execute("UPDATE indexed SET mark = 2")
    connection.close()
    return path


def knots(client: Client) -> list[FileHit]:
    return client._store.file_hits(AskedFiles(("打结",), (client._owner,)))


def test_texts_without_spaces_are_found_by_any_part_in_an_older_file(chinese: Path) -> None:
    with sennit.open(chinese, user="ada") as client:
        assert client.doctor() == []
        assert [hit.file.path for hit in knots(client)] == ["knots.md"]
        assert len(client.search_messages("打结")) == 1
        assert client.doctor() == []


def test_a_file_that_is_erased_before_any_search_leaves_the_index_whole(chinese: Path) -> None:
    with sennit.open(chinese, user="ada") as client:
        (file,) = client._store.list_files(client._owner, "")
        client._store.change_files([RemoveFile(client._owner, file.id)])
        assert knots(client) == []
        client.delete_session("chat")
        assert client.search_messages("打结") == []
        assert client.doctor() == []
    with closing(sqlite3.connect(chinese)) as connection:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        assert connection.execute("SELECT count(*) FROM words_docsize").fetchone() == (0,)


def test_runs_are_noted_in_a_file_of_version_1(written: Path) -> None:
    with sennit.open(written, user="ada") as client:
        note_something(client.session("chat"))
    with sennit.open(written, user="ada") as client:
        session = client.session("chat")
        key = client._owner, session.id, session.default_branch.id
        assert client._store.last_event(*key) == 4
        assert len(client._store.runs(*key)) == 2
        client.delete_session("chat")
        assert client.doctor() == []


def together(work: Callable[[], None], threads: int = 6) -> None:
    barrier, errors = Barrier(threads), list[BaseException]()

    def begin() -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    running = [Thread(target=begin) for _ in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert errors == []


def add_one(path: Path) -> None:
    with sennit.open(path, user="ada") as client:
        client.session("chat").add_message("user", "a rope more")


def test_many_threads_may_open_an_older_file_at_once(written: Path) -> None:
    together(lambda: add_one(written))
    with sennit.open(written, user="ada") as client:
        assert len(client.session("chat").default_branch) == 10
        assert len(client.search_messages("rope", limit=50)) == 8
        assert client.doctor() == []


def test_two_processes_may_open_an_older_file_at_once(written: Path) -> None:
    processes = [get_context("spawn").Process(target=add_one, args=(written,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    with sennit.open(written, user="ada") as client:
        assert len(client.session("chat").default_branch) == 6


def test_a_migration_that_fails_changes_nothing(written: Path) -> None:
    connection = sqlite3.connect(written, isolation_level=None)
    connection.execute("CREATE TABLE events (in_the_way)")
    with pytest.raises(StoreError, match="events"):
        SQLiteStore(written)
    assert version(written) == 1
    tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('journals', 'runs')"
    assert connection.execute(tables).fetchone() == (0,)
    connection.execute("DROP TABLE events")
    connection.close()
    with sennit.open(written, user="ada") as client:
        assert len(client.search_messages("rope")) == 2


def test_what_matters_in_a_file_of_version_1_can_be_remembered(written: Path) -> None:
    with sennit.open(written, user="ada") as client:
        session = client.session("chat")
        session.add_message("user", "My name is Ada.")
        assert session.commit()["archived"] is True
        assert "Ada" in client.fs.read("viking://user/memories/profile.md")
        assert client.doctor() == []

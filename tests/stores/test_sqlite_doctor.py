"""What the doctor finds in SQLite files alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit import Client
from sennit.stores.doctor.checks import examine, repair
from sennit.stores.sqlite.store import SQLiteStore
from tests.conversation_fixtures import Talk
from tests.stores.corrupted_stores import FileHarm, Harm, admitted, counted, mended


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sennit.db"


@pytest.fixture
def client(path: Path) -> Iterator[Client]:
    with sennit.open(path, durability="normal") as client:
        yield admitted(client)


@pytest.fixture
def harm(path: Path, client: Client) -> Harm:
    return FileHarm(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM words_docsize WHERE id = 4",
        "INSERT INTO words_docsize VALUES (9999, x'0001')",
        "UPDATE indexed SET mark = 2",
        "INSERT INTO words (words) VALUES ('delete-all')",
        "DELETE FROM indexed",
        "INSERT INTO indexed (mark) VALUES (1)",
        "UPDATE indexed SET mark = 999999",
    ],
)
def test_an_index_that_is_not_complete_is_made_anew(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    mended(client, "index")
    assert len(client.search_messages("rope", limit=99)) == 12
    assert len(client.search_messages("life")) == 1


def test_events_about_messages_that_are_gone_are_neither_read_nor_kept(
    client: Client, harm: Harm
) -> None:
    talk = Talk("A bowline.", session=client.session("talk"))
    talk.run()
    assert client.doctor() == []
    before = [one.kind for one in talk.conversation().history()]
    harm("UPDATE events SET message = message + 1000 WHERE typeof(message) = 'integer'")
    assert [one.kind for one in talk.conversation().history()] == [
        kind for kind in before if kind != "message.completed"
    ]
    mended(client, "events")
    assert counted(harm, "events") == [len(before) - 1]


def test_messages_not_yet_indexed_are_nothing_wrong(client: Client) -> None:
    client.session("chat").add_message("user", "new")
    assert client.doctor() == []


def test_the_index_is_made_anew_around_messages_that_cannot_be_read(
    client: Client, harm: Harm
) -> None:
    harm(
        "UPDATE messages SET body = x'00' WHERE no = 2",
        "INSERT INTO words (words) VALUES ('delete-all')",
    )
    client.doctor(repair=True)
    assert [finding.kind for finding in client.doctor()] == ["messages"]
    assert len(client.search_messages("rope", limit=99)) == 11


def test_only_the_first_few_rows_are_named(client: Client, harm: Harm) -> None:
    harm("UPDATE messages SET body = x'00'")
    found = {finding.kind: finding for finding in client.doctor()}
    assert found["messages"].count == 18
    assert len(found["messages"].rows) == 5


def test_a_repair_that_fails_changes_nothing(
    client: Client, harm: Harm, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm("UPDATE branches SET system = 77", "UPDATE indexed SET mark = 2")

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sennit.stores.doctor.sqlite.index_words", crash)
    before = sqlite3.connect(path)
    dump = list(before.iterdump())
    with pytest.raises(KeyboardInterrupt):
        client.doctor(repair=True)
    assert list(before.iterdump()) == dump
    before.close()
    monkeypatch.undo()
    assert {finding.kind for finding in repair(client._store)} == {"system", "detached", "index"}


def test_a_file_that_sqlite_finds_damaged_is_told_of_and_not_touched(
    client: Client, path: Path
) -> None:
    client._store.write(client._owner, client.session("chat").id, [])
    store = client._store
    assert isinstance(store, SQLiteStore)
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    root = store._writer.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'branches'"
    ).fetchone()[0]
    client.close()
    size = 4096
    with path.open("r+b") as stream:
        stream.seek((root - 1) * size)
        stream.write(b"\xff" * 200)
    store = SQLiteStore(path)
    for found in (examine(store), repair(store)):
        assert [(one.kind, one.repairable) for one in found] == [("file", False)]
    store.close()


def test_keys_that_disagree_with_their_rows_are_made_anew(client: Client, harm: Harm) -> None:
    aside = "PRAGMA writable_schema = ON"
    harm(
        aside,
        "CREATE TABLE aside AS SELECT * FROM sqlite_schema WHERE name = 'sessions_by_time'",
        "DELETE FROM sqlite_schema WHERE name = 'sessions_by_time'",
    )
    harm("UPDATE sessions SET updated = updated + 1")  # which the key does not see
    harm(aside, "INSERT INTO sqlite_schema SELECT * FROM aside", "DROP TABLE aside")
    mended(client, "keys")
    assert len(client.sessions()) == 2

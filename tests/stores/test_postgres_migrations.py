"""Databases that older versions wrote are taken over whole, in one step."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from sennit import StoreError
from sennit.api.client import Client
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.keys import session_id
from sennit.stores.postgres import PostgresStore
from sennit.stores.postgres_database import migrate
from sennit.stores.records import Owner
from sennit.stores.sql import postgres as sql
from tests.noting import note_something
from tests.sessions.test_session import said
from tests.stores.test_postgres import run_all

if TYPE_CHECKING:
    from tests.postgres_server import Server

pytest_plugins = ("tests.postgres",)

OWNERS = {1: "ada", 2: "bob"}


class VersionOne:
    """Writes rows as version 1 wrote them."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        script = files("sennit.stores.sql").joinpath("postgres_001.sql").read_bytes()
        connection.execute(script)
        connection.execute("UPDATE sennit.schema SET version = 1")
        for name in OWNERS.values():
            self._add("owners (tenant, kind, name)", "default", "user", name)

    def _add(self, columns: str, *values: Any) -> Any:
        marks = ", ".join(
            "to_tsvector('sennit.words', %s)" if name.strip(" )") == "words" else "%s"
            for name in columns.partition("(")[2].split(",")
        )
        statement = f"INSERT INTO sennit.{columns} VALUES ({marks})"
        self._connection.execute(statement, values)  # pyright: ignore

    def _last(self, table: str) -> int:
        row = self._connection.execute(f"SELECT max(no) FROM sennit.{table}").fetchone()  # pyright: ignore
        assert row is not None
        return row[0]

    def session(self, owner: int, key: str, texts: list[str]) -> None:
        """A session with a branch "main" of these, and a fork "fork" of its first two."""
        uid = session_id(Owner("default", "user", OWNERS[owner]), key)
        columns = "sessions (owner, id, key, sender, created, updated, metadata)"
        self._add(columns, owner, uid, key, "user", 1, 2, '{"n":1}')
        session = self._last("sessions")
        main = self._segment(owner, session, None, 0)
        for place, text in enumerate(texts):
            message = self._message(owner, session, text)
            self._add("entries (owner, segment, pos, message)", owner, main[0], place, message)
        fork = self._segment(owner, session, main[0], 2)
        self._branch(owner, session, "main", main, len(texts))
        self._branch(owner, session, "fork", fork, 0)

    def _segment(self, owner: int, session: int, base: int | None, start: int) -> tuple[int, Any]:
        uid = new_id()
        columns = "segments (owner, session, id, base, start)"
        self._add(columns, owner, session, uid, base, start)
        return self._last("segments"), uid

    def _branch(
        self, owner: int, session: int, name: str, tail: tuple[int, Any], length: int
    ) -> None:
        columns = (
            "branches (owner, session, id, name, created, segment, tail, length, version,"
            " resources, capabilities, metadata)"
        )
        values = (1, *tail, length, 0, '["gpt4"]', "[]", "{}")
        self._add(columns, owner, session, new_id(), name, *values)

    def _message(self, owner: int, session: int, text: str) -> int:
        body = dumps({"type": "instruction", "content": {"instruction": text}})
        first, _, rest = text.partition(" … ")
        mark = f"o{owner}.sennit"
        columns = "messages (owner, session, id, created, body, words)"
        self._add(columns, owner, session, new_id(), 1, body, f"{mark} {first.lower()}")
        message = self._last("messages")
        if rest:  # as if it had not fitted one tsvector
            columns = "more_words (owner, session, message, words)"
            self._add(columns, owner, session, message, f"{mark} {rest.lower()}")
        return message


@pytest.fixture
def written(url: str) -> str:
    """The address of a database of version 1 with sessions of two owners."""
    with psycopg.connect(url) as connection:
        first = VersionOne(connection)
        first.session(1, "chat", ["tie a bowline", "a long rope … and its bitter end", "third"])
        first.session(1, "other", ["belay", "rope"])
        first.session(2, "chat", ["a rope of bob", "second"])
    return url


@pytest.fixture(params=range(1, sql.SCHEMA_VERSION))
def older(written: str, request: pytest.FixtureRequest) -> str:
    """The same as each older version has left it."""
    with psycopg.connect(written) as connection:
        migrate(connection, 1, request.param)
    return written


def test_sessions_of_every_older_version_are_there_searchable_and_writable(older: str) -> None:
    store = PostgresStore(older)
    ada, bob = Client(store, user="ada"), Client(store, user="bob")
    session = ada.session("chat")
    assert said(session.default_branch) == [
        "tie a bowline",
        "a long rope … and its bitter end",
        "third",
    ]
    assert said(session.get_branch("fork")) == said(session.default_branch)[:2]
    assert session.default_branch.resources == {"gpt4"}
    assert session.metadata == {"n": 1}
    assert {one.key for one in ada.sessions()} == {"chat", "other"}
    assert len(ada.search_messages("ropes")) == 2
    assert [hit.session for hit in ada.search_messages("bitter")] == [session.id]
    assert [hit.snippet for hit in bob.search_messages("rope")] == ["a rope of bob"]
    session.add_message("user", "a new rope")
    assert len(ada.search_messages("rope")) == 3
    session.remove_message(session.default_branch[1])
    assert ada.search_messages("bitter") == []
    assert len(ada.search_messages("rope")) == 2
    note_something(session)
    key = ada._owner, session.id, next(iter(session.branches)).id
    assert (store.last_event(*key), len(store.runs(*key))) == (4, 2)
    assert ada.doctor() == []
    store.close()


def test_texts_without_spaces_are_found_by_any_part_in_an_older_database(
    url: str, server: Server, database: str
) -> None:
    with Client(PostgresStore(url)) as client:
        client.session("chat").add_message("user", "我喜欢打结")
        assert client.search_messages("结")
    server.execute(
        "UPDATE sennit.words SET words = to_tsvector('sennit.words', '我喜欢打结')", database
    )
    server.execute("UPDATE sennit.schema SET version = 9", database)
    with Client(PostgresStore(url)) as client:
        assert len(client.search_messages("打结")) == 1
        assert client.doctor() == []


def test_many_servers_may_start_at_once_on_an_older_database(
    written: str, server: Server, database: str
) -> None:
    stores: list[PostgresStore] = []
    run_all([lambda: stores.append(PostgresStore(written)) for _ in range(6)])
    for number, store in enumerate(stores):
        client = Client(store, user="ada")
        assert len(client.session("chat").default_branch) == 3 + number
        client.session("chat").add_message("user", f"rope {number}")
    assert len(Client(stores[0], user="ada").search_messages("rope", limit=50)) == 8
    assert server.execute(sql.VERSION, database) == [(sql.SCHEMA_VERSION,)]
    for store in stores:
        store.close()


def test_a_migration_that_fails_changes_nothing(
    written: str, server: Server, database: str
) -> None:
    server.execute("CREATE INDEX words_words ON sennit.messages (created)", database)  # in the way
    with pytest.raises(StoreError, match="words_words"):
        PostgresStore(written)
    assert server.execute(sql.VERSION, database) == [(1,)]
    assert server.execute("SELECT count(*) FROM sennit.more_words", database) == [(1,)]
    server.execute("DROP INDEX sennit.words_words", database)
    store = PostgresStore(written)
    assert len(Client(store, user="ada").search_messages("rope")) == 2
    store.close()

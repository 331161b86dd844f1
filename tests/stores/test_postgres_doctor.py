"""What the doctor finds in PostgreSQL databases alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sennit import Client
from sennit.stores.postgres.store import PostgresStore
from tests.stores.corrupted_stores import (
    ADA,
    CHAT,
    LOW,
    DatabaseHarm,
    Harm,
    admitted,
    fresh,
    mended,
    nth,
    texts,
)

pytest_plugins = ("tests.postgres",)


@pytest.fixture
def client(emptied: str) -> Iterator[Client]:
    with Client(PostgresStore(emptied)) as client:
        yield admitted(client)


@pytest.fixture
def harm(emptied: str, client: Client) -> Harm:
    return DatabaseHarm(emptied)


def test_a_branch_that_names_another_segment_is_told_its_own(client: Client, harm: Harm) -> None:
    before = texts(client.session("chat"), "low")
    harm(f"UPDATE branches SET tail = gen_random_uuid() WHERE segment = {LOW}")
    mended(client, "heads")
    assert texts(fresh(client).session("chat"), "low") == before


def test_a_wrong_length_is_counted_again(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET length = 77 WHERE name = 'main'")
    mended(client, "lengths")
    assert len(texts(fresh(client).session("chat"), "main")) == 8


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM words WHERE message = {nth(4)}",
        f"INSERT INTO words VALUES ({ADA}, {CHAT}, 999999, 'rope')",
        f"UPDATE sessions SET indexed = {nth(2)}",
        "UPDATE sessions SET indexed = 0",
        "DELETE FROM words",
        "UPDATE sessions SET indexed = 0, unindexed = true",
        "UPDATE sessions SET indexed = 999999999",
    ],
)
def test_an_index_that_is_not_complete_is_made_anew(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    mended(client, "index")
    assert len(client.search_messages("rope", limit=99)) == 12
    assert len(client.search_messages("life")) == 1
    assert harm("SELECT count(*) FROM words") == harm("SELECT count(*) FROM messages")


def test_messages_that_nobody_would_index_are_found_again(client: Client, harm: Harm) -> None:
    client.session("chat").add_message("user", "a late rope")
    assert client.doctor() == []  # only not indexed yet
    harm("UPDATE sessions SET unindexed = false")
    mended(client, "index")
    assert len(client.search_messages("rope", limit=99)) == 13


def test_a_repair_that_fails_changes_nothing(
    client: Client, harm: Harm, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm("UPDATE branches SET length = 77", "DELETE FROM words")

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sennit.stores.doctor.postgres.PostgresInspector.mend_index", crash)
    with pytest.raises(KeyboardInterrupt):
        client.doctor(repair=True)
    monkeypatch.undo()
    assert harm("SELECT DISTINCT length FROM branches") == [(77,)]
    assert {finding.kind for finding in client.doctor(repair=True)} == {"lengths", "index"}
    assert client.doctor() == []


def test_others_may_write_while_it_looks_and_mends(client: Client, emptied: str) -> None:
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with Client(PostgresStore(emptied)) as other:
                session = other.session("chat")
                for number in range(60):
                    session.add_message("user", f"rope {number}")
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert client.doctor() == []
        assert client.doctor(repair=True) == []
    thread.join()
    assert failed == []
    assert len(texts(fresh(client).session("chat"), "main")) == 7 + 60

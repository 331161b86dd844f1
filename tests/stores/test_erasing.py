"""Deletions in SQLite: hidden at once, erased in short transactions, continued after a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import sennit
from sennit import Client, InstructionContent, Message, Session, StoreError
from sennit.stores.sqlite.erase import ROWS
from sennit.testing import faults

MANY = 3 * ROWS
TABLES = ("sessions", "messages", "segments", "entries", "branches", "detached", "words_docsize")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with faults.record("none"), sennit.open(tmp_path / "s.db") as client:
        yield client


def filled(client: Client, key: str, count: int = MANY) -> Session:
    session = client.session(key)
    said = [Message(InstructionContent(instruction=f"rye bread {n}")) for n in range(count)]
    session.add_messages(said, branches=session.default_branch)
    return session


@contextmanager
def after_each_commit(look: Callable[[], object]) -> Iterator[None]:
    """Look after each COMMIT of anybody but who looks."""
    looking = False

    def act(_: str) -> None:
        nonlocal looking
        if not looking:
            looking = True
            look()
            looking = False

    with faults.arm("sqlite.after: COMMIT", act, at=None):
        yield


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_erasing_many_messages_renumbers_the_entries_behind_them_once(client: Client) -> None:
    session = filled(client, "chat", 1000)
    writer: sqlite3.Connection = client._store._writer  # pyright: ignore
    before = writer.total_changes
    session.remove_messages(list(session.messages)[100:200])
    assert writer.total_changes - before < 10_000  # once per message would be some 90,000


@pytest.mark.parametrize("table", ["messages", "entries", "words_docsize"])
def test_no_transaction_of_a_deletion_erases_more_than_a_few_rows(
    client: Client, tmp_path: Path, table: str
) -> None:
    filled(client, "chat")
    client.search_messages("rye")
    counts = [rows(tmp_path / "s.db", table)]
    with after_each_commit(lambda: counts.append(rows(tmp_path / "s.db", table))):
        client.delete_session("chat")
    assert (counts[0], counts[-1]) == (MANY, 0)
    assert max(before - after for before, after in pairwise(counts)) <= ROWS


def test_a_deleted_session_is_found_by_nobody_while_it_is_erased(
    client: Client, tmp_path: Path
) -> None:
    filled(client, "chat")
    filled(client, "kept", 1)
    client.search_messages("rye")
    seen: list[tuple[int, int, bool]] = []
    with sennit.open(tmp_path / "s.db") as other:

        def look() -> None:
            hits = other.search_messages("rye", limit=10)
            seen.append((len(other.sessions()), len(hits), other.doctor() == []))

        with after_each_commit(look):
            client.delete_session("chat")
    assert (1, 1, True) in seen
    assert {one for one in seen if one[0] == 1} == {(1, 1, True)}


def test_a_session_deleted_again_under_its_key_while_the_first_is_erased_goes_too(
    client: Client, tmp_path: Path
) -> None:
    filled(client, "chat")
    with sennit.open(tmp_path / "s.db") as other:
        again: list[bool] = []

        def look() -> None:
            if not other.sessions() and len(again) < 2:
                filled(other, "chat", 2)
                again.append(other.delete_session("chat"))

        with after_each_commit(look):
            client.delete_session("chat")
    assert again == [True, True]
    assert [rows(tmp_path / "s.db", table) for table in TABLES] == [0] * len(TABLES)


@pytest.mark.parametrize("at", [1, 3, 5, 8])
def test_who_opens_the_file_goes_on_with_a_deletion_that_was_cut_off(
    client: Client, tmp_path: Path, at: int
) -> None:
    filled(client, "chat")
    client.search_messages("rye")
    failed = faults.raising(sqlite3.OperationalError("the disk is gone"))
    with (
        faults.arm("sqlite.before: DELETE*", failed, at=at),
        pytest.raises(StoreError, match="the disk is gone"),
    ):
        client.delete_session("chat")
    assert rows(tmp_path / "s.db", "sessions") == 1
    assert client.sessions() == []
    assert client.search_messages("rye") == []
    with sennit.open(tmp_path / "s.db") as other:
        assert [rows(tmp_path / "s.db", table) for table in TABLES] == [0] * len(TABLES)
        assert other.doctor() == []


def test_a_removed_branch_drops_no_words_until_somebody_searches(
    client: Client, tmp_path: Path
) -> None:
    session = filled(client, "chat")
    client.search_messages("rye")
    with faults.record("sqlite.before: INSERT INTO words") as dropped:
        session.remove_branch("main")
    assert dropped == []
    assert client.doctor() == []
    counts = [rows(tmp_path / "s.db", "words_docsize")]
    with after_each_commit(lambda: counts.append(rows(tmp_path / "s.db", "words_docsize"))):
        assert client.search_messages("rye") == []
    assert (counts[0], counts[-1]) == (MANY, 0)
    assert max(before - after for before, after in pairwise(counts)) <= ROWS
    assert client.doctor() == []


def test_what_was_taken_off_a_branch_and_put_back_is_found_whether_or_not_one_searched_between(
    client: Client,
) -> None:
    session = filled(client, "chat", 2)
    client.search_messages("rye")
    branch = session.default_branch
    for searched in (False, True):
        taken = branch.pop()
        if searched:
            assert len(client.search_messages("rye")) == 1
        branch.append(taken)
        assert len(client.search_messages("rye")) == 2
        assert client.doctor() == []


def test_messages_erased_before_their_words_were_dropped_leave_none(
    client: Client, tmp_path: Path
) -> None:
    session = filled(client, "chat")
    client.search_messages("rye")
    session.remove_branch("main")
    assert client._store.erase_removed(client._owner, session.id, 2**62)
    assert rows(tmp_path / "s.db", "words_docsize") == 0
    assert client.doctor() == []


def test_no_transaction_indexes_more_than_a_few_large_messages(
    client: Client, tmp_path: Path
) -> None:
    session = client.session("chat")
    for _ in range(6):
        session.add_message("user", "rye " * 50_000)
    counts = [0]
    with after_each_commit(lambda: counts.append(rows(tmp_path / "s.db", "words_docsize"))):
        assert len(client.search_messages("rye")) == 6
    assert max(after - before for before, after in pairwise(counts)) <= 2

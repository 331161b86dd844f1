"""Retention: what is old goes for good, what is not stays."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

import sennit
from sennit import Client, ValidationError, clock
from sennit.cli.app import app
from sennit.stores import retention
from sennit.stores.records.sessions import Owner
from sennit.stores.sqlite import store as sqlite
from sennit.testing import faults

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(moment: datetime, client: Client, key: str, text: str = "said in {key}") -> None:
    with clock.wall_clock_from(lambda: clock.from_datetime(moment) * 1000):
        client.session(key).add_message("user", text.format(key=key))


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path):
    with sennit.open(":memory:" if request.param == "memory" else tmp_path / "s.db") as client:
        yield client


def test_sessions_last_changed_before_the_date_are_deleted(client: Client) -> None:
    at(NOON - timedelta(days=40), client, "old")
    at(NOON - timedelta(days=40), client, "revived")
    at(NOON, client, "new")
    at(NOON, client, "revived")
    assert client.expire(NOON) == 1
    assert {one.key for one in client.sessions()} == {"new", "revived"}
    assert not client.search_messages("old")
    assert client.expire(NOON) == 0
    assert client.expire(NOON + timedelta(milliseconds=1)) == 2


def test_an_expired_session_can_be_opened_anew(client: Client) -> None:
    at(NOON, client, "chat")
    session = client.session("chat")
    client.expire(NOON + timedelta(days=1))
    again = client.session("chat")
    assert again is not session
    assert len(again.messages) == 0


def test_other_users_sessions_are_left(client: Client) -> None:
    other = Client(client._store, user="other")
    at(NOON, client, "mine")
    at(NOON, other, "theirs")
    assert client.expire(NOON + timedelta(days=1)) == 1
    assert [one.key for one in other.sessions()] == ["theirs"]


def test_all_pages_are_looked_at(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAGE", 2)
    for n in range(7):
        at(NOON, client, f"s{n}")
    assert client.expire(NOON + timedelta(days=1)) == 7
    assert client.sessions() == []


def test_a_session_used_meanwhile_stays(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a", "b"):
        at(NOON, client, key)
    store = client._store
    delete = store.delete_session

    def used_just_before(owner: Owner, session: UUID, before: int | None = None) -> bool:
        at(NOON + timedelta(days=2), client, "a")
        return delete(owner, session, before)

    monkeypatch.setattr(store, "delete_session", used_just_before)
    assert client.expire(NOON + timedelta(days=1)) == 1
    assert [one.key for one in client.sessions()] == ["a"]


def expire(client: Client) -> None:
    client.expire(NOON + timedelta(days=1))


def delete(client: Client) -> None:
    client.delete_session("zanzibar")


def remove(client: Client) -> None:
    session = client.session("zanzibar")
    session.remove_message(next(iter(session.default_branch.messages)))


def remove_committed(client: Client) -> None:
    client.session("zanzibar").commit()
    remove(client)


def forget(client: Client) -> None:
    client.forget(session="zanzibar")


ERASURES = (expire, delete, remove, remove_committed, forget)


def traces(folder: Path, word: bytes) -> list[str]:
    return [one.name for one in folder.iterdir() if word in one.read_bytes().lower()]


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize("erase", ERASURES)
def test_no_row_and_no_word_of_it_stays_in_any_file(
    erase: Callable[[Client], None], is_indexed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    with sennit.open(path) as client, sennit.open(path) as other:
        at(NOON, client, "elsewhere")
        at(NOON, client, "zanzibar", "We spoke of Hippopotamuses.")
        if is_indexed:
            assert other.search_messages("hippopotamuses")
        erase(client)
        assert traces(tmp_path, b"hippopotamus") == []
        other.backup(tmp_path / "copy.db")
        assert client.doctor() == []
    assert traces(tmp_path, b"hippopotamus") == []


@pytest.mark.parametrize("erase", [remove, remove_committed])
def test_a_session_can_be_used_while_traces_of_its_messages_go(
    erase: Callable[[Client], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        at(NOON, client, "zanzibar")
        session, scrub, was_free = client.session("zanzibar"), client._store.scrub, list[bool]()

        def is_free() -> bool:
            if is_ours := session.lock.acquire(blocking=False):
                session.lock.release()
            return is_ours

        def watched() -> None:
            with ThreadPoolExecutor(1) as pool:
                was_free.append(pool.submit(is_free).result())
            scrub()

        monkeypatch.setattr(client._store, "scrub", watched)
        erase(client)
    assert was_free
    assert all(was_free)


def test_expiry_leaves_no_row(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        at(NOON, client, "zanzibar")
        expire(client)
        assert client.doctor() == []
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        for table in ("sessions", "messages", "segments", "entries", "branches"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_expiry_merges_the_index_once_and_only_if_it_held_what_goes(tmp_path: Path) -> None:
    merge = "sqlite.before: INSERT INTO words"
    with faults.record(merge) as merges, sennit.open(tmp_path / "s.db") as client:
        for n in range(3):
            at(NOON, client, f"s{n}")
        expire(client)
        merges.clear()
        for n in range(3):
            at(NOON, client, f"t{n}")
        expire(client)
        assert merges == []
        for n in range(3):
            at(NOON, client, f"u{n}")
        client.search_messages("said")
        merges.clear()
        expire(client)
    assert len(merges) == 5  # three sessions of one message each, the merge and the look for more


def test_who_reads_meanwhile_delays_no_writer_and_the_next_erasure_empties_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_CHECKPOINT_TIMEOUT_S", 0.05)
    with sennit.open(tmp_path / "s.db") as client:
        at(NOON, client, "zanzibar")
        with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM messages").fetchone() == (1,)
            delete(client)
            assert traces(tmp_path, b"said in zanzibar") == ["s.db-wal"]
            at(NOON, client, "another")
            reader.execute("COMMIT")
        client.delete_session("another")
        assert traces(tmp_path, b"said in zanzibar") == []


def test_a_date_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(ValidationError, match="time zone"):
        client.expire(datetime(2026, 1, 1))


def test_purged_messages_are_gone_from_a_session_that_is_open(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        session = client.session("chat")
        said = session.add_message("user", "the secret").messages[0]
        session.default_branch.pop()
        assert said.id in session.messages
        assert client.purge(datetime.now(UTC) + timedelta(seconds=1)) == 1
        assert said.id not in session.messages


def test_the_program_erases_what_was_removed(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    with sennit.open(store) as client:
        client.session("chat").add_message("user", "the secret")
        client.session("chat").default_branch.pop()
    for words, told in ((["--days", "1"], "0 messages"), (["--days", "0"], "1 message")):
        done = CliRunner().invoke(app, ["purge", "--store", store, *words])
        assert done.output == f"Erased {told}.\n"

"""Retention: what is old goes for good, what is not stays."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

import sennit
from sennit import Client, ValidationError, clock
from sennit.stores import retention
from sennit.stores.records import Owner

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(moment: datetime, client: Client, key: str) -> None:
    with clock.using(lambda: clock.from_datetime(moment) * 1000):
        client.session(key).add_message("user", f"said in {key}")


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
    assert client.expire(NOON + timedelta(microseconds=1)) == 2


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


def test_no_row_and_no_word_of_it_stays_in_the_file(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        at(NOON, client, "zanzibar")
        client.search_messages("zanzibar")
        client.expire(NOON + timedelta(days=1))
        assert client.doctor() == []
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for table in ("sessions", "messages", "segments", "entries", "branches"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()
    assert b"said in zanzibar" not in (tmp_path / "s.db").read_bytes()


def test_a_date_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(ValidationError, match="time zone"):
        client.expire(datetime(2026, 1, 1))

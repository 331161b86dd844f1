"""The doctor on a real PostgreSQL: every kind of damage is found, and what can be mended is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from sennit import Client, Session
from sennit.stores.postgres import PostgresStore
from tests.noting import note_something
from tests.stores.test_doctor import ask, filled, fresh, mended, texts

pytest_plugins = ("tests.postgres",)

Harm = Callable[..., list[tuple[Any, ...]]]

MAIN = "(SELECT segment FROM branches WHERE name = 'main' ORDER BY session LIMIT 1)"
LOW = "(SELECT segment FROM branches WHERE name = 'low' ORDER BY session LIMIT 1)"
TOP = "(SELECT segment FROM branches WHERE name = 'top' ORDER BY session LIMIT 1)"
CHAT = "(SELECT no FROM sessions WHERE key = 'chat')"
ADA = "(SELECT no FROM owners)"


def nth(place: int) -> str:
    """The number of a message of the first session, counted from 0, the system message."""
    return f"(SELECT no FROM messages WHERE session = {CHAT} ORDER BY no LIMIT 1 OFFSET {place})"


@pytest.fixture
def client(emptied: str) -> Iterator[Client]:
    with Client(PostgresStore(emptied)) as client:
        filled(client)
        filled(client, "other")
        client.search_messages("rope")
        yield client


@pytest.fixture
def harm(emptied: str, client: Client) -> Harm:
    """Does what nobody should do to the tables."""

    def run(*statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(emptied, autocommit=True) as connection:
            connection.execute("SET search_path = sennit")
            cursors = [connection.execute(statement.encode()) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    return run


def messages(session: Session) -> list[str]:
    return sorted(one.to_json() for one in session.messages)


def test_a_sound_database_has_nothing_wrong(client: Client) -> None:
    assert client.doctor() == []
    assert client.doctor(repair=True) == []


def test_a_session_in_daily_use_has_nothing_wrong(client: Client) -> None:
    session = client.session("chat")
    main = session.get_branch("main")
    main.edit(main[2], "edited")
    main.pop()
    main.insert(1, session.add_message(ask("between")))
    session.remove_message(main[3])
    session.remove_branch("top")
    client.delete_session("other")
    assert client.doctor() == []
    client.search_messages("rope")
    assert client.doctor() == []


def test_entries_whose_message_is_gone_are_dropped_from_every_history(
    client: Client, harm: Harm
) -> None:
    before = texts(client.session("chat"), "top")
    harm(f"DELETE FROM messages WHERE no = {nth(2)}")  # rope 1: below both forks
    mended(client, "entries")
    session = fresh(client).session("chat")
    assert texts(session, "low") == ["system", "rope 0", "low"]
    assert texts(session, "top") == [text for text in before if text != "rope 1"]


def test_entries_of_another_session_are_dropped(client: Client, harm: Harm) -> None:
    harm(
        f"""UPDATE entries SET message = (SELECT max(no) FROM messages)
        WHERE segment = {TOP} AND pos = 0"""
    )
    mended(client, "entries")
    assert "top" not in texts(fresh(client).session("chat"), "top")


def test_gaps_are_closed_and_forks_keep_their_place(client: Client, harm: Harm) -> None:
    before = messages(fresh(client).session("chat"))
    harm(f"DELETE FROM entries WHERE segment = {MAIN} AND pos IN (0, 3)")
    client.doctor(repair=True)
    session = fresh(client).session("chat")
    assert texts(session, "low") == ["system", "rope 1", "low"]
    assert texts(session, "top") == ["system", "rope 1", "rope 2", "rope 4", "rope 5", "top"]
    assert messages(session) == before


def test_a_gap_of_any_width_is_closed_at_once(client: Client, harm: Harm) -> None:
    harm(f"UPDATE entries SET pos = 1000000000 WHERE segment = {MAIN} AND pos = 5")
    mended(client, "gaps")
    assert texts(fresh(client).session("chat"), "main")[-2:] == ["rope 5", "life goes on"]


def test_a_start_past_the_base_is_moved_to_its_end(client: Client, harm: Harm) -> None:
    before = texts(client.session("chat"), "top")
    harm(f"UPDATE segments SET start = 99 WHERE no = {TOP}")
    mended(client, "starts")
    assert texts(fresh(client).session("chat"), "top") == before


def test_a_start_without_a_base_is_moved_to_the_beginning(client: Client, harm: Harm) -> None:
    before = messages(fresh(client).session("chat"))
    harm(f"UPDATE segments SET start = 5 WHERE no = {MAIN}")
    mended(client, "starts")
    assert set(messages(fresh(client).session("chat"))) > set(before)


def test_a_segment_whose_base_is_gone_keeps_what_is_its_own(client: Client, harm: Harm) -> None:
    harm(f"UPDATE segments SET base = 999999 WHERE no = {TOP}")
    mended(client, "base")
    session = fresh(client).session("chat")
    assert texts(session, "top") == ["system", "top"]
    assert len(texts(session, "main")) == 8


def test_segments_that_build_on_each_other_are_parted(client: Client, harm: Harm) -> None:
    harm(f"UPDATE segments SET base = {TOP} WHERE no = {MAIN}")
    mended(client, "base")
    assert len(texts(fresh(client).session("chat"), "main")) >= 7


def test_a_branch_whose_history_is_gone_becomes_empty(client: Client, harm: Harm) -> None:
    harm(f"DELETE FROM segments WHERE no = {TOP}")
    mended(client, "tail")
    assert texts(fresh(client).session("chat"), "top") == ["system"]


def test_a_branch_that_names_another_segment_is_told_its_own(client: Client, harm: Harm) -> None:
    before = texts(client.session("chat"), "low")
    harm(f"UPDATE branches SET tail = gen_random_uuid() WHERE segment = {LOW}")
    mended(client, "heads")
    assert texts(fresh(client).session("chat"), "low") == before


def test_a_branch_whose_system_is_gone_has_none(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET system = 999999 WHERE name = 'low'")
    mended(client, "system")
    assert fresh(client).session("chat").get_branch("low").system is None


def test_a_wrong_length_is_counted_again(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET length = 77 WHERE name = 'main'")
    mended(client, "lengths")
    assert len(texts(fresh(client).session("chat"), "main")) == 8


def test_unused_segments_are_dropped_with_their_entries_but_no_message(
    client: Client, harm: Harm
) -> None:
    before = messages(client.session("chat"))
    harm("DELETE FROM branches WHERE name = 'top'")
    assert [finding.kind for finding in client.doctor()] == ["unused"]
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert "top" not in session.branches
    assert messages(session) == before


def test_entries_of_no_segment_are_dropped(client: Client, harm: Harm) -> None:
    harm(f"INSERT INTO entries (owner, segment, pos, message) VALUES ({ADA}, 999999, 0, 1)")
    mended(client, "strays")


def test_leases_of_no_branch_are_dropped(client: Client, harm: Harm) -> None:
    harm(f"INSERT INTO leases VALUES ({ADA}, {CHAT}, gen_random_uuid(), 'me', 1, 1)")
    mended(client, "leases")


def test_messages_of_no_session_get_a_new_one(client: Client, harm: Harm) -> None:
    client.session("chat").add_message(ask("a rope not indexed yet"), branches="top")
    session = fresh(client).session("chat")
    before, kept = texts(session, "top"), messages(session)
    harm("DELETE FROM sessions WHERE key = 'chat'")
    (finding,) = client.doctor()
    assert (finding.kind, finding.mendable) == ("session", True)
    client.doctor(repair=True)
    assert client.doctor() == []
    (found,) = [one for one in client.sessions() if one.metadata.get("recovered")]
    session = fresh(client).session(found.id)
    assert (texts(session, "top"), messages(session)) == (before, kept)
    assert len(client.search_messages("rope", session=found.id, limit=99)) == 7
    assert client.doctor() == []


def test_rows_of_no_owner_are_told_of_and_left(client: Client, harm: Harm) -> None:
    harm(f"UPDATE messages SET owner = 99999 WHERE no = {nth(0)}")
    found = {finding.kind: finding for finding in client.doctor()}
    assert not found["owner"].mendable
    client.doctor(repair=True)
    assert [finding.kind for finding in client.doctor()] == ["owner"]


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM words WHERE message = {nth(4)}",
        f"INSERT INTO words VALUES ({ADA}, {CHAT}, 999999, 'rope')",
        f"UPDATE sessions SET indexed = {nth(2)}",
        "UPDATE sessions SET indexed = 0",
        "DELETE FROM words",
        "UPDATE sessions SET indexed = 0, unindexed = true",
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


@pytest.mark.parametrize("body", ["not json", "[1]", "{}", '{"type": "os.system"}'])
def test_messages_that_cannot_be_read_are_told_of_and_left(
    client: Client, harm: Harm, body: str
) -> None:
    uid = client.session("chat").get_branch("main")[1]
    harm(f"UPDATE messages SET body = convert_to('{body}', 'UTF8') WHERE no = {nth(1)}")
    for found in (client.doctor(), client.doctor(repair=True), client.doctor()):
        assert [(one.kind, one.count, one.mendable) for one in found] == [("messages", 1, False)]
        assert found[0].rows == (f"message {uid}",)


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE sessions SET metadata = '{{' WHERE no = {CHAT}",
        f"UPDATE sessions SET metadata = '[]' WHERE no = {CHAT}",
        f"UPDATE branches SET resources = '5' WHERE segment = {LOW}",
        f"UPDATE branches SET capabilities = '[5]' WHERE segment = {LOW}",
    ],
)
def test_columns_that_cannot_be_read_are_told_of(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    (finding,) = client.doctor()
    assert (finding.kind, finding.count, finding.mendable) == ("columns", 1, False)


def test_all_at_once_is_mended_at_once(client: Client, harm: Harm) -> None:
    harm(
        f"DELETE FROM messages WHERE no IN ({nth(1)}, {nth(3)})",
        f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 3",
        f"UPDATE segments SET start = 99 WHERE no = {LOW}",
        "UPDATE branches SET length = 77, system = 999999 WHERE name = 'main'",
        f"INSERT INTO entries (owner, segment, pos, message) VALUES ({ADA}, 999999, 0, 1)",
        f"INSERT INTO segments (owner, session, id, base, start) VALUES"
        f" ({ADA}, {CHAT}, gen_random_uuid(), 999999, 3)",
    )
    kinds = {"entries", "gaps", "starts", "lengths", "system", "strays", "index", "base", "unused"}
    assert {finding.kind for finding in client.doctor()} == kinds
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert texts(session, "main") == ["rope 1", "rope 4", "rope 5"]
    assert texts(session, "top") == ["system", "rope 1", "rope 4", "rope 5", "top"]


def test_a_repair_that_fails_changes_nothing(
    client: Client, harm: Harm, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm("UPDATE branches SET length = 77", "DELETE FROM words")

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sennit.stores.doctor_postgres.DatabasePatient.mend_index", crash)
    with pytest.raises(KeyboardInterrupt):
        client.doctor(repair=True)
    monkeypatch.undo()
    assert harm("SELECT DISTINCT length FROM branches") == [(77,)]
    assert {finding.kind for finding in client.doctor(repair=True)} == {"lengths", "index"}
    assert client.doctor() == []


def test_a_live_session_sees_what_was_mended(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    harm(f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 0")
    client.doctor(repair=True)
    session.refresh()
    assert texts(session, "main")[:2] == ["system", "rope 1"]


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


def test_what_was_noted_of_runs_goes_with_its_branch(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    assert client.doctor() == []
    harm("DELETE FROM branches WHERE id = (SELECT branch FROM journals)")
    mended(client, "journals")
    assert counted(client, "runs", "events") == [0, 0]


def test_runs_of_no_branch_are_dropped_with_their_events(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM journals")
    mended(client, "runs")
    assert counted(client, "runs", "events") == [0, 0]


def test_events_of_no_run_are_dropped(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM runs WHERE no = 1")
    mended(client, "events")
    assert counted(client, "runs", "events") == [1, 2]


def test_labels_of_no_message_are_dropped(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    session.label(session.get_branch("main")[-1], 1.0)
    assert client.doctor() == []
    harm("UPDATE labels SET message = message + 1000")
    mended(client, "labels")
    assert counted(client, "labels") == [0]


def test_what_was_noted_moves_with_a_session_that_was_lost(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM sessions WHERE key = 'chat'")
    client.doctor(repair=True)
    assert client.doctor() == []
    assert counted(client, "journals", "runs", "events") == [1, 2, 4]


def counted(client: Client, *tables: str) -> list[int]:
    store = client._store
    assert isinstance(store, PostgresStore)
    asked = [f"SELECT count(*) FROM sennit.{table}".encode() for table in tables]
    return [
        store._database.run(lambda line, one=one: line.execute(one).fetchall())[0][0]
        for one in asked
    ]

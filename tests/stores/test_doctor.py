"""The doctor: every kind of damage is found, and what can be mended is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

import sennit
from sennit import Client, InstructionContent, Message, Session, StoreError, SystemContent
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.doctor import examine, repair
from sennit.stores.records import AddMessages, MessageRecord
from sennit.stores.sqlite import SQLiteStore
from tests.noting import note_something


def ask(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def filled(client: Client, key: str = "chat") -> Session:
    session = client.session(key)
    main = session.create_branch("main", system=Message(SystemContent("Terse.")))
    for n in range(6):
        session.add_message(ask(f"rope {n}"), branches=main)
    low = session.fork(main, at=2, name="low", system=True)  # system, 0, 1
    session.add_message(ask("low"), branches=low)
    top = session.fork(main, name="top", system=True)
    session.add_message(ask("top"), branches=top)
    return session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sennit.db"


@pytest.fixture
def client(path: Path) -> Iterator[Client]:
    with sennit.open(path, durability="normal") as client:
        filled(client)
        filled(client, "other")
        client.search_messages("rope")
        yield client


Harm = Callable[..., None]


@pytest.fixture
def harm(path: Path, client: Client) -> Harm:
    """Does what nobody should do to the file."""

    def run(*statements: str) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return run


def fresh(client: Client) -> Client:
    """A client that remembers nothing."""
    return Client(client._store)


def texts(session: Session, branch: str) -> list[str]:
    found = (session.messages[uid].content for uid in session.get_branch(branch))
    return [one.instruction if isinstance(one, InstructionContent) else "system" for one in found]  # pyright: ignore


def mended(client: Client, kind: str) -> None:
    """It was found, and repair leaves nothing to find, and all other sessions as they were."""
    other = texts(fresh(client).session("other"), "top")
    found = {finding.kind: finding for finding in client.doctor()}
    assert kind in found
    assert found[kind].mendable
    assert found[kind].count >= len(found[kind].rows) > 0
    assert kind in {finding.kind for finding in client.doctor(repair=True)}
    assert client.doctor() == []
    assert client.doctor(repair=True) == []
    assert texts(fresh(client).session("other"), "top") == other
    client.session("chat").add_message("user", "life goes on")


MAIN = "(SELECT segment FROM branches WHERE name = 'main' ORDER BY session LIMIT 1)"
LOW = "(SELECT segment FROM branches WHERE name = 'low' ORDER BY session LIMIT 1)"
TOP = "(SELECT segment FROM branches WHERE name = 'top' ORDER BY session LIMIT 1)"
CHAT = "(SELECT no FROM sessions WHERE key = 'chat')"


def test_a_sound_file_has_nothing_wrong(client: Client) -> None:
    assert client.doctor() == []
    assert client.doctor(repair=True) == []


def test_of_a_store_in_memory_only_messages_can_be_wrong() -> None:
    with sennit.open(":memory:") as client:
        filled(client)
        assert client.doctor() == []
        uid = client.session("chat").id
        bad = MessageRecord(new_id(), 1, b"{}")
        client._store.write(client._owner, uid, [AddMessages((bad,))])
        for found in (client.doctor(), client.doctor(repair=True)):
            assert [(one.kind, one.rows) for one in found] == [("messages", (f"message {bad.id}",))]
    with pytest.raises(StoreError, match="closed"):
        client.doctor()


def test_the_doctor_sends_other_stores_away() -> None:
    with pytest.raises(StoreError, match=r"sennit.open.*not a object"):
        examine(cast("Store", object()))


def test_a_session_in_daily_use_has_nothing_wrong(client: Client) -> None:
    session = client.session("chat")
    main = session.get_branch("main")
    main.edit(main[2], InstructionContent(instruction="edited"))
    main.pop()
    main.insert(1, session.add_message(ask("between")))
    session.remove_message(main[3])
    session.remove_branch("top")
    client.delete_session("other")
    assert client.doctor() == []


def test_entries_whose_message_is_gone_are_dropped_from_every_history(
    client: Client, harm: Harm
) -> None:
    before = texts(client.session("chat"), "top")
    harm(
        "DELETE FROM words_docsize WHERE id = 3",
        "DELETE FROM messages WHERE no = 3",  # rope 1: below both forks
    )
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
    harm(f"DELETE FROM entries WHERE segment = {MAIN} AND pos IN (0, 3)")
    mended(client, "gaps")
    session = fresh(client).session("chat")
    assert texts(session, "low") == ["system", "rope 1", "low"]
    assert texts(session, "top") == ["system", "rope 1", "rope 2", "rope 4", "rope 5", "top"]
    assert len(session.messages) == 9 + 1


def test_a_gap_of_any_width_is_closed_at_once(client: Client, harm: Harm) -> None:
    harm(f"UPDATE entries SET pos = 1000000000000 WHERE segment = {MAIN} AND pos = 5")
    mended(client, "gaps")
    assert texts(fresh(client).session("chat"), "main")[-2:] == ["rope 5", "life goes on"]


def test_a_start_past_the_base_is_moved_to_its_end(client: Client, harm: Harm) -> None:
    before = texts(client.session("chat"), "top")
    harm(f"UPDATE segments SET start = 99 WHERE no = {TOP}")
    mended(client, "starts")
    assert texts(fresh(client).session("chat"), "top") == before


def test_a_start_without_a_base_is_moved_to_the_beginning(client: Client, harm: Harm) -> None:
    harm(f"UPDATE segments SET start = 5 WHERE no = {MAIN}")
    mended(client, "starts")


def test_a_segment_whose_base_is_gone_keeps_what_is_its_own(client: Client, harm: Harm) -> None:
    harm(f"UPDATE segments SET base = 9999 WHERE no = {TOP}")
    mended(client, "base")
    session = fresh(client).session("chat")
    assert texts(session, "top") == ["system", "top"]
    assert len(texts(session, "main")) == 8


def test_segments_that_build_on_each_other_are_parted(client: Client, harm: Harm) -> None:
    harm(f"UPDATE segments SET base = {TOP} WHERE no = {MAIN}")
    mended(client, "base")
    assert len(texts(fresh(client).session("chat"), "main")) >= 7


def test_a_branch_whose_history_is_gone_becomes_empty(client: Client, harm: Harm) -> None:
    harm(
        f"DELETE FROM entries WHERE segment = {TOP}",
        f"DELETE FROM segments WHERE no = {TOP}",
    )
    mended(client, "tail")
    assert texts(fresh(client).session("chat"), "top") == ["system"]


def test_a_branch_whose_system_is_gone_has_none(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET system = 9999 WHERE name = 'low'")
    before = texts(fresh(client).session("chat"), "main")
    mended(client, "system")
    session = fresh(client).session("chat")
    assert session.get_branch("low").system is None
    assert texts(session, "main") == [*before, "life goes on"]


def test_a_wrong_length_is_counted_again(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET length = 77 WHERE name = 'main'")
    mended(client, "lengths")
    assert len(texts(fresh(client).session("chat"), "main")) == 8


def test_unused_segments_are_dropped_with_their_entries(client: Client, harm: Harm) -> None:
    harm("DELETE FROM branches WHERE name = 'top'")
    assert [finding.kind for finding in client.doctor()] == ["unused"]
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert "top" not in session.branches
    assert len(session.messages) == 9  # no message goes with them


def test_entries_of_no_segment_are_dropped(client: Client, harm: Harm) -> None:
    harm("INSERT INTO entries VALUES (1, 9999, 0, 1)")
    mended(client, "strays")


def test_leases_of_no_branch_are_dropped(client: Client, harm: Harm) -> None:
    harm("INSERT INTO leases VALUES (1, 1, x'00', 'me', 1, 1)")
    mended(client, "leases")


def test_messages_of_no_session_get_a_new_one(client: Client, harm: Harm) -> None:
    before = texts(client.session("chat"), "top")
    harm("DELETE FROM sessions WHERE key = 'chat'")
    (finding,) = client.doctor()
    assert (finding.kind, finding.mendable) == ("session", True)
    client.doctor(repair=True)
    assert client.doctor() == []
    (found,) = [one for one in client.sessions() if one.metadata.get("recovered")]
    assert texts(fresh(client).session(found.id), "top") == before


def test_rows_of_no_owner_are_told_of_and_left(client: Client, harm: Harm) -> None:
    harm("UPDATE messages SET owner = 99 WHERE no = 1")
    found = {finding.kind: finding for finding in client.doctor()}
    assert not found["owner"].mendable
    client.doctor(repair=True)
    assert [finding.kind for finding in client.doctor()] == ["owner"]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM words_docsize WHERE id = 4",
        "INSERT INTO words_docsize VALUES (9999, x'0001')",
        "UPDATE indexed SET mark = 2",
        "INSERT INTO words (words) VALUES ('delete-all')",
        "DELETE FROM indexed",
        "INSERT INTO indexed VALUES (1)",
    ],
)
def test_an_index_that_is_not_complete_is_made_anew(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    mended(client, "index")
    assert len(client.search_messages("rope", limit=99)) == 12
    assert len(client.search_messages("life")) == 1


def test_messages_not_yet_indexed_are_nothing_wrong(client: Client) -> None:
    client.session("chat").add_message("user", "new")
    assert client.doctor() == []


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[1]",
        "{}",
        '{"type": "os.system"}',
        '{"type": "instruction", "content": {"no": 1}}',
        '{"type": "instruction", "content": 5}',
    ],
)
def test_messages_that_cannot_be_read_are_told_of_and_left(
    client: Client, harm: Harm, body: str
) -> None:
    harm(f"UPDATE messages SET body = CAST('{body}' AS BLOB) WHERE no = 2")
    for found in (client.doctor(), client.doctor(repair=True), client.doctor()):
        assert [(one.kind, one.count, one.mendable) for one in found] == [("messages", 1, False)]
    uid = client.session("chat").get_branch("main")[1]
    assert found[0].rows == (f"message {uid}",)


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


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET metadata = '{' WHERE no = 1",
        "UPDATE sessions SET metadata = '[]' WHERE no = 1",
        "UPDATE branches SET resources = '5' WHERE name = 'low'",
        "UPDATE branches SET capabilities = '[5]' WHERE name = 'low'",
        "UPDATE branches SET metadata = '' WHERE name = 'low'",
    ],
)
def test_columns_that_cannot_be_read_are_told_of(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    (finding,) = client.doctor()
    assert (finding.kind, finding.mendable) == ("columns", False)


def test_only_the_first_few_rows_are_named(client: Client, harm: Harm) -> None:
    harm("UPDATE messages SET body = x'00'")
    found = {finding.kind: finding for finding in client.doctor()}
    assert found["messages"].count == 18
    assert len(found["messages"].rows) == 5


def test_all_at_once_is_mended_at_once(client: Client, harm: Harm) -> None:
    harm(
        "DELETE FROM messages WHERE no IN (2, 4)",
        f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 3",
        f"UPDATE segments SET start = 99 WHERE no = {LOW}",
        "UPDATE branches SET length = 77, system = 9999 WHERE name = 'main'",
        "INSERT INTO entries VALUES (1, 9999, 0, 1)",
        "UPDATE indexed SET mark = 2",
        f"INSERT INTO segments VALUES (500, 1, {CHAT}, x'00', 9999, 3)",
    )
    kinds = {"entries", "gaps", "starts", "lengths", "system", "strays", "index", "base", "unused"}
    assert {finding.kind for finding in client.doctor()} == kinds
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert texts(session, "main") == ["rope 1", "rope 4", "rope 5"]
    assert texts(session, "top") == ["system", "rope 1", "rope 4", "rope 5", "top"]
    assert len(session.messages) == 7


def test_a_repair_that_fails_changes_nothing(
    client: Client, harm: Harm, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm("UPDATE branches SET length = 77", "UPDATE indexed SET mark = 2")

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sennit.stores.doctor_sqlite.index_words", crash)
    before = sqlite3.connect(path)
    dump = list(before.iterdump())
    with pytest.raises(KeyboardInterrupt):
        client.doctor(repair=True)
    assert list(before.iterdump()) == dump
    before.close()
    monkeypatch.undo()
    assert {finding.kind for finding in repair(client._store)} == {"lengths", "index"}


def test_a_live_session_sees_what_was_mended(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    harm(f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 0")
    client.doctor(repair=True)
    session.refresh()
    assert texts(session, "main")[:2] == ["system", "rope 1"]


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
        assert [(one.kind, one.mendable) for one in found] == [("file", False)]
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
    assert isinstance(store, SQLiteStore)
    return [
        store._writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
    ]

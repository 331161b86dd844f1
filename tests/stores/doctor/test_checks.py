"""The doctor: every kind of damage is found, and what can be mended is, on every store."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest

import sennit
from sennit import (
    Client,
    ImagePart,
    InstructionContent,
    Message,
    SennitError,
    StoreError,
    ValidationError,
)
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.doctor.checks import examine
from sennit.stores.records.blobs import blob_reference
from sennit.stores.records.sessions import AddMessages, MessageRecord, PutStarts
from tests.run_fixtures import note_something
from tests.stores.corrupted_stores import (
    ADA,
    CHAT,
    LOW,
    MAIN,
    TOP,
    DatabaseHarm,
    Harm,
    ask,
    counted,
    filled,
    fresh,
    mended,
    messages,
    nth,
    texts,
)

pytest_plugins = ("tests.postgres", "tests.stores.damaged")


def test_a_sound_store_has_nothing_wrong(client: Client) -> None:
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


@pytest.mark.parametrize(
    "turn",
    [
        "UPDATE segments SET base = no",
        f"UPDATE segments SET base = {TOP} WHERE no = {MAIN}",
        f"UPDATE segments SET base = CASE no WHEN {MAIN} THEN {TOP} WHEN {TOP} THEN {LOW} ELSE"
        f" {MAIN} END WHERE session = {CHAT}",
    ],
)
def test_what_builds_on_itself_is_refused_until_it_is_mended(
    client: Client, harm: Harm, turn: str, tmp_path: Path
) -> None:
    opened = fresh(client).session("chat")
    harm(turn)
    for use in (
        lambda: fresh(client).session("chat"),
        lambda: client.export(tmp_path / "a.zip"),
    ):
        with pytest.raises(
            StoreError, match=r"builds on itself. Run `sennit doctor`.*client.doctor"
        ):
            use()
    with suppress(SennitError):  # whoever has it open may do as they like, if only it ends
        opened.get_branch("main").append(opened.get_branch("low")[-1])
    client.doctor(repair=True)
    assert client.doctor() == []
    assert len(fresh(client).session("chat").messages) == 9


def test_a_branch_whose_history_is_gone_becomes_empty(client: Client, harm: Harm) -> None:
    harm(f"DELETE FROM segments WHERE no = {TOP}")
    mended(client, "tail")
    assert texts(fresh(client).session("chat"), "top") == ["system"]


def test_a_branch_whose_system_is_gone_has_none(client: Client, harm: Harm) -> None:
    harm("UPDATE branches SET system = 999999 WHERE name = 'low'")
    before = texts(fresh(client).session("chat"), "main")
    mended(client, "system")
    session = fresh(client).session("chat")
    assert session.get_branch("low").system is None
    assert texts(session, "main") == [*before, "life goes on"]


def test_unused_segments_are_dropped_with_their_entries_but_no_message(
    client: Client, harm: Harm
) -> None:
    before = messages(client.session("chat"))
    harm("DELETE FROM branches WHERE name = 'top'")
    assert [finding.kind for finding in client.doctor()] == ["unused", "detached"]
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert "top" not in session.branches
    assert messages(session) == before


def no_checksum(harm: Harm) -> str:
    """Return a value for the running checksum of an entry, which is of another type in a file."""
    return harm.bytes_of("") if isinstance(harm, DatabaseHarm) else "0"


def test_entries_of_no_segment_are_dropped(client: Client, harm: Harm) -> None:
    harm(
        f"INSERT INTO entries (owner, segment, pos, message, checksum)"
        f" VALUES ({ADA}, 999999, 0, 1, {no_checksum(harm)})"
    )
    mended(client, "strays")


def test_leases_of_no_branch_are_dropped(client: Client, harm: Harm) -> None:
    harm(
        f"INSERT INTO leases (owner, session, branch, holder, token, expires)"
        f" SELECT owner, session, id, 'me', 1, 1 FROM messages"
        f" WHERE no = {nth(1)}"
    )
    mended(client, "leases")


def test_messages_of_no_session_get_a_new_one(client: Client, harm: Harm) -> None:
    client.session("chat").add_message(ask("a rope not indexed yet"), branches="top")
    session = fresh(client).session("chat")
    before, kept = texts(session, "top"), messages(session)
    harm("DELETE FROM sessions WHERE key = 'chat'")
    (finding,) = client.doctor()
    assert (finding.kind, finding.repairable) == ("session", True)
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
    assert not found["owner"].repairable
    client.doctor(repair=True)
    assert [finding.kind for finding in client.doctor()] == ["owner"]


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
    uid = client.session("chat").get_branch("main")[1]
    harm(f"UPDATE messages SET body = {harm.bytes_of(body)} WHERE no = {nth(1)}")
    for found in (client.doctor(), client.doctor(repair=True), client.doctor()):
        assert [(one.kind, one.count, one.repairable) for one in found] == [("messages", 1, False)]
        assert found[0].rows == (f"message {uid}",)


@pytest.mark.parametrize("created", [2**63 - 1, -(2**63)])
def test_a_message_of_no_year_is_told_of_and_refuses_to_say_when(
    client: Client, harm: Harm, created: int
) -> None:
    uid = client.session("chat").get_branch("main")[1]
    harm(f"UPDATE messages SET created = {created} WHERE no = {nth(1)}")
    for found in (client.doctor(), client.doctor(repair=True), client.doctor()):
        assert [(one.kind, one.rows, one.repairable) for one in found] == [
            ("messages", (f"message {uid}",), False)
        ]
    message = fresh(client).session("chat").messages[uid]
    with pytest.raises(StoreError, match=rf"{uid} .* `sennit doctor`"):
        assert message.content
    with pytest.raises(ValidationError, match=r"years 1 to 9999; .* client.doctor"):
        assert message.created_at


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET metadata = '{' WHERE key = 'chat'",
        "UPDATE sessions SET metadata = '[]' WHERE key = 'chat'",
        "UPDATE branches SET resources = '5', capabilities = '[]' WHERE name = 'low'",
        "UPDATE branches SET resources = '[]', capabilities = '[5]' WHERE name = 'low'",
        "UPDATE branches SET metadata = '' WHERE name = 'low'",
    ],
)
def test_columns_that_cannot_be_read_are_told_of(
    client: Client, harm: Harm, statement: str
) -> None:
    harm(statement)
    found = {one.kind: one.repairable for one in client.doctor()}
    assert found.pop("columns") is False
    assert set(found) <= {"rows"}  # in a file, whose rows have checksums


def test_all_at_once_is_mended_at_once(client: Client, harm: Harm) -> None:
    in_database = isinstance(harm, DatabaseHarm)
    column = "" if in_database else "checksum, "  # only in a file do segments have one
    harm(
        f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 3",
        f"UPDATE segments SET start = 99 WHERE no = {LOW}",
        "UPDATE branches SET system = 999999 WHERE name = 'main'",
        f"INSERT INTO entries (owner, segment, pos, message, checksum)"
        f" VALUES ({ADA}, 999999, 0, 1, {no_checksum(harm)})",
        f"INSERT INTO segments ({column}owner, session, id, base, start)"
        f" SELECT {column}owner, session, id, 999999, 3 FROM messages WHERE no = {nth(1)}",
        f"DELETE FROM messages WHERE no IN ({nth(1)}, {nth(3)})",
    )
    kinds = {"entries", "gaps", "starts", "system", "strays", "index", "base", "unused"}
    kinds |= {"detached", "histories"}  # what stood on what is gone
    kinds.add("lengths" if in_database else "rows")  # a file writes no lengths down
    assert {finding.kind for finding in client.doctor()} == kinds
    client.doctor(repair=True)
    assert client.doctor() == []
    session = fresh(client).session("chat")
    assert texts(session, "main") == ["rope 1", "rope 4", "rope 5"]
    assert texts(session, "top") == ["system", "rope 1", "rope 4", "rope 5", "top"]
    assert len(session.messages) == 7


def test_a_live_session_sees_what_was_mended(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    harm(f"DELETE FROM entries WHERE segment = {MAIN} AND pos = 0")
    client.doctor(repair=True)
    session.refresh()
    assert texts(session, "main")[:2] == ["system", "rope 1"]


def test_what_was_noted_of_runs_goes_with_its_branch(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    assert client.doctor() == []
    harm("DELETE FROM branches WHERE id = (SELECT branch FROM journals)")
    mended(client, "journals")
    assert counted(harm, "runs", "events") == [0, 0]


def test_runs_of_no_branch_are_dropped_with_their_events(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM journals")
    mended(client, "runs")
    assert counted(harm, "runs", "events") == [0, 0]


def test_events_of_no_run_are_dropped(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM runs WHERE no = 1")
    mended(client, "events")
    assert counted(harm, "runs", "events") == [1, 2]


def test_labels_of_no_message_are_dropped(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    session.label(session.get_branch("main")[-1], 1.0)
    assert client.doctor() == []
    harm("UPDATE labels SET message = message + 1000")
    mended(client, "labels")
    assert counted(harm, "labels") == [0]


def test_starts_of_tool_calls_of_no_message_are_dropped(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    starts = PutStarts(((session.get_branch("main")[-1], 1),))
    client._store.write(client._owner, session.id, [starts])
    assert client.doctor() == []
    harm("UPDATE starts SET session = session + 1000")
    mended(client, "starts")
    assert counted(harm, "starts") == [0]


def test_starts_of_tool_calls_move_with_a_session_that_was_lost(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    call = session.get_branch("main")[2]
    client._store.write(client._owner, session.id, [PutStarts(((call, 1),))])
    harm("DELETE FROM sessions WHERE key = 'chat'")
    client.doctor(repair=True)
    assert client.doctor() == []
    (recovered,) = [one.id for one in client.sessions() if one.metadata.get("recovered")]
    assert client._store.starts(client._owner, recovered, None) == {call: 1}


def test_what_was_noted_moves_with_a_session_that_was_lost(client: Client, harm: Harm) -> None:
    note_something(client.session("chat"))
    harm("DELETE FROM sessions WHERE key = 'chat'")
    client.doctor(repair=True)
    assert client.doctor() == []
    assert counted(harm, "journals", "runs", "events") == [1, 2, 4]


def test_labels_move_with_a_session_that_was_lost(client: Client, harm: Harm) -> None:
    session = client.session("chat")
    session.label(session.get_branch("main")[2], 0.5, by="ann")
    harm("DELETE FROM sessions WHERE key = 'chat'")
    client.doctor(repair=True)
    assert client.doctor() == []
    (recovered,) = [one.id for one in client.sessions() if one.metadata.get("recovered")]
    found = fresh(client).session(recovered)
    assert [(one.score, one.by) for one in found.labels()] == [(0.5, "ann")]


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4_000


def show_picture(client: Client) -> str:
    session = client.session("chat")
    content = InstructionContent.create("look", images=[ImagePart(PICTURE).url])
    session.add_message(Message(content), branches="main")
    return f"blob {sha256(PICTURE).hexdigest()}"


def test_a_blob_whose_bytes_have_changed_is_found(client: Client, harm: Harm) -> None:
    name = show_picture(client)
    assert client.doctor() == []
    zero = harm.bytes_of("x")
    for statement in (
        f"UPDATE blob_chunks SET bytes = {zero} WHERE pos = 1",
        "DELETE FROM blob_chunks WHERE pos = 3",
        "UPDATE blobs SET size = size - 1",
    ):
        harm(statement)
        [found] = client.doctor()
        assert (found.kind, found.rows, found.repairable) == ("blobs", (name,), False)
        assert "restore a backup" in found.said


def test_storing_the_same_bytes_again_repairs_a_damaged_blob(client: Client, harm: Harm) -> None:
    show_picture(client)
    session = client.session("chat")
    for store in (
        lambda: session.put_blob(PICTURE, "image/png"),
        lambda: session.add_message("user", [ImagePart(PICTURE)]),
    ):
        harm("DELETE FROM blob_chunks WHERE pos = 1")
        assert client.doctor()
        store()
        assert client.doctor() == []
        assert b"".join(session.open_blob(blob_reference(sha256(PICTURE).digest()))) == PICTURE
    client.forget(session="chat")
    assert counted(harm, "blobs", "blob_chunks", "blob_refs") == [0, 0, 0]


def test_a_blob_that_is_missing_is_found_and_its_notes_and_pieces_are_dropped(
    client: Client, harm: Harm
) -> None:
    name = show_picture(client)
    harm("DELETE FROM blobs")
    kinds = [(found.repairable, found.rows[0]) for found in client.doctor(repair=True)]
    assert [repairable for repairable, _ in kinds] == [True, True, False]
    assert kinds[-1][1].startswith(name)
    [left] = client.doctor()
    assert "missing" in left.said
    assert counted(harm, "blob_chunks", "blob_refs") == [0, 0]
    assert texts(fresh(client).session("chat"), "main")[-1] == "look"


def test_a_blob_that_is_named_without_a_note_is_noted_again(client: Client, harm: Harm) -> None:
    show_picture(client)
    harm("DELETE FROM blob_refs")
    mended(client, "blobs")
    client._store.collect_blobs(2**62)
    assert client.doctor() == []

"""Checksums: what was changed behind the store's back is told, and never read as what was said."""

from __future__ import annotations

from pathlib import Path

import pytest

import sennit
from sennit import Client, StoreError
from sennit.stores import checksums
from tests.stores.corrupted_stores import (
    CHAT,
    LOW,
    MAIN,
    TOP,
    DatabaseHarm,
    FileHarm,
    Harm,
    admitted,
    ask,
    fresh,
    mended,
    nth,
    texts,
)

pytest_plugins = ("tests.postgres", "tests.stores.damaged")


OTHER_WORDS = '{"type":"instruction","content":{"instruction":"rope 7"}}'


def change_a_word(harm: Harm) -> None:
    body = harm.bytes_of(OTHER_WORDS)
    harm(f"UPDATE messages SET body = {body} WHERE no = {nth(1)}")


def test_a_message_that_was_changed_is_named_and_not_read(client: Client, harm: Harm) -> None:
    uid = client.session("chat").get_branch("main")[1]
    change_a_word(harm)
    (found,) = client.doctor()
    assert (found.kind, found.rows) == ("changed", (f"message {uid}",))
    message = fresh(client).session("chat").messages[uid]
    with pytest.raises(StoreError, match=rf"{uid} .* `sennit doctor`"):
        assert message.content
    with pytest.raises(StoreError, match=str(uid)):
        texts(fresh(client).session("chat"), "main")


def test_all_but_the_changed_message_can_be_read(client: Client, harm: Harm) -> None:
    change_a_word(harm)
    session = fresh(client).session("chat")
    said = [session.messages[uid].content for uid in list(session.get_branch("main"))[2:]]
    assert len(said) == 5
    session.remove_message(session.get_branch("main")[1])
    assert len(texts(fresh(client).session("chat"), "main")) == 6
    assert client.doctor() == []


def test_a_changed_message_is_neither_exported_nor_shown_by_a_search(
    client: Client, harm: Harm, tmp_path: Path
) -> None:
    uid = client.session("chat").get_branch("main")[1]
    change_a_word(harm)
    with pytest.raises(StoreError, match=str(uid)):
        fresh(client).export(tmp_path / "a.zip")
    assert "rope 7" not in [one.snippet for one in fresh(client).search_messages("rope", limit=99)]


def test_repair_takes_a_changed_message_as_it_is(client: Client, harm: Harm) -> None:
    change_a_word(harm)
    mended(client, "changed")
    assert texts(fresh(client).session("chat"), "main")[1] == "rope 7"


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE entries SET message = {nth(2)} WHERE segment = {MAIN} AND pos = 3",
        f"UPDATE entries SET message = {nth(1)} WHERE segment = {MAIN} AND pos = 5",
    ],
)
def test_a_history_that_names_other_messages_is_told_of_and_refused(
    client: Client, harm: Harm, change: str
) -> None:
    harm(change)
    assert "histories" in {one.kind for one in client.doctor()}
    with pytest.raises(StoreError, match=r"checksum.* `sennit doctor`"):
        fresh(client).session("chat")
    mended(client, "histories")


def test_the_entries_that_someone_else_added_are_checked_as_they_come(
    client: Client, harm: Harm
) -> None:
    session = client.session("chat")
    other = fresh(client).session("chat")
    for number in range(3):
        other.add_message("user", f"more {number}", branches="top")
    harm(
        f"UPDATE entries SET message = {nth(3)} WHERE segment = {TOP} AND pos = 2",
    )
    with pytest.raises(StoreError, match="checksum"):
        session.refresh()


def test_checksums_hold_through_every_kind_of_change(client: Client) -> None:
    session = client.session("chat")
    main, low = session.get_branch("main"), session.get_branch("low")
    session.fork(main, at=3, name="third")
    session.fork("third", name="fourth")
    for name in ("third", "fourth"):
        session.add_message("user", f"on {name}", branches=name)
    session.remove_message(main[2])
    session.remove_message(main[0])
    low.append(main[3])
    session.rename_branch(low, "lower")
    main.insert(1, session.add_message(ask("inserted")))
    main.reverse()
    main.pop()
    session.add_message("user", "after all", branches=[main, low])
    session.remove_branch("third")
    session.describe({"title": "knots"})
    assert client.doctor() == []
    again = fresh(client).session("chat")
    assert texts(again, "main") == texts(session, "main")
    assert client.doctor(repair=True) == []


def test_a_copy_keeps_the_checksums_and_an_archive_gets_new_ones(
    client: Client, tmp_path: Path
) -> None:
    client.backup(tmp_path / "copy.db")
    client.export(tmp_path / "a.zip")
    with sennit.open(tmp_path / "copy.db") as copy:
        assert copy.doctor() == []
        assert texts(copy.session("chat"), "top") == texts(client.session("chat"), "top")
    with sennit.open(tmp_path / "new.db") as new:
        new.import_sessions(tmp_path / "a.zip")
        assert new.doctor() == []


def test_a_backup_of_a_database_does_not_launder_a_changed_message(
    client: Client, harm: Harm, tmp_path: Path
) -> None:
    change_a_word(harm)
    if isinstance(harm, DatabaseHarm):
        with pytest.raises(StoreError, match="`sennit doctor`"):
            client.backup(tmp_path / "copy.db")
        return
    client.backup(tmp_path / "copy.db")  # of a file, which is copied as it is
    with sennit.open(tmp_path / "copy.db") as copy:
        assert [one.kind for one in copy.doctor()] == ["changed"]


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE segments SET start = start - 1 WHERE no = {LOW}",
        f"UPDATE branches SET system = {nth(2)} WHERE name = 'low' AND session = {CHAT}",
        f"UPDATE branches SET segment = {MAIN} WHERE name = 'top' AND session = {CHAT}",
        """UPDATE branches SET resources = '["gpt"]', capabilities = '[]' WHERE name = 'low'""",
        "UPDATE sessions SET key = 'chap' WHERE key = 'other'",
    ],
)
def test_a_file_tells_of_rows_that_still_fit_together(tmp_path: Path, change: str) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path, durability="normal") as client:
        admitted(client)
        FileHarm(path)(change)
        found = {one.kind: one for one in client.doctor()}
        assert "rows" in found
        assert found["rows"].count >= 1
        client.doctor(repair=True)
        assert client.doctor() == []


def test_messages_on_no_branch_are_noted_and_no_damage(client: Client) -> None:
    session = client.session("chat")
    loose = session.add_message(ask("nowhere"), branches=[])
    assert client.doctor() == []
    (note,) = [note for note in client.store_notes() if "no branch" in note]
    assert str(loose.id) in note
    assert "no damage" in note


def test_a_version_of_sqlite_that_can_damage_a_file_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        for version, warned in (((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), False)):
            monkeypatch.setattr("sqlite3.sqlite_version_info", version)
            monkeypatch.setattr("sqlite3.sqlite_version", ".".join(map(str, version)))
            (note,) = client.store_notes()
            assert note.startswith(f"SQLite {version[0]}.{version[1]}.{version[2]}")
            assert ("WAL-reset" in note) is warned


def test_the_checksum_of_a_long_value_is_made_without_its_repr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def watched(value: object) -> str:
        sizes.append(len(told := repr(value)))
        return told

    monkeypatch.setattr(checksums, "repr", watched, raising=False)
    text = "knot " * 10_000
    rows: list[tuple[object, ...]] = [
        (1, text),
        (1, text.encode()),
        (1, text + "."),
        (1, "." + text[1:]),
        (2, text),
        (text, 1),
        (1, text, None),
    ]
    assert len({checksums.row_checksum(*row) for row in rows}) == len(rows)
    assert max(sizes) < 100

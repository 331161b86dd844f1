"""Archives: what goes out comes back in, and nothing that is not sound comes in at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
import stat
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sennit
from sennit import (
    Client,
    ExistsError,
    ImagePart,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    Session,
    StoreError,
    SystemContent,
    TextPart,
    ToolPart,
    ValidationError,
)
from sennit.errors import ArchiveError, CodecError, SennitError
from sennit.messages.codec import MAX_BYTES, dumps
from sennit.stores.records.sessions import Owner
from sennit.stores.session_ids import session_id
from sennit.stores.sqlite.store import SQLiteStore
from sennit.stores.transfer import container as archives
from sennit.stores.transfer import export_import
from sennit.stores.transfer import session_jsonl as lines
from tests import strategies as some

pytest_plugins = ("tests.postgres",)


def ask(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def fill(client: Client, key: str | UUID = "chat") -> Session:
    """A session with all there is: forks, systems, edits, groups, tools, rewrites, loose ends."""
    session = client.session(key, metadata={"topic": "hemp", "depth": {"a": [1, 2.5, None]}})
    main = session.create_branch("main", system=Message(SystemContent("You are terse.")))
    for n in range(4):
        session.add_message(ask(f"question {n} — \u00e9\U0001f9f6"), branches=main)
    session.add_message(
        "assistant",
        [TextPart("Let me see."), ToolPart("search", {"q": "rope"}, output=[1])],
        [main],
    )
    other = session.fork(main, name="other", at=2, system=True)
    session.add_message(ask("elsewhere"), branches=other)
    main.edit(main[2], InstructionContent(instruction="edited"))
    deep = session.fork(other, name="deep", system=True)
    session.add_message(ask("deeper"), branches=deep)
    session.remove_message(main.pop())  # an export leaves out what was removed
    main.insert(1, session.add_message(ask("in between")))
    session.branches.remove("other")
    session.create_branch("empty")
    session.add_message(ask("on no branch"))
    return session


def seen(session: Session) -> dict[str, Any]:
    """All one can see of a session, as plain data."""
    return {
        "key": session.key,
        "user": session.user,
        "created": session.created_at,
        "metadata": dict(session.metadata),
        "messages": [message.to_json() for message in session.messages],
        "branches": {
            branch.name: (
                branch.id,
                branch.created_at,
                dict(branch.metadata),
                branch.system.to_json() if branch.system else None,
                list(branch),
            )
            for branch in session.branches
        },
    }


def reopened(client: Client, key: str | UUID = "chat") -> dict[str, Any]:
    """What a client that knows nothing yet sees."""
    return seen(Client(client._store, tenant=client.tenant, user=client.user).session(key))


def contents(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        found = [one for one in path.rglob("*") if one.is_file()]
        return {one.relative_to(path).as_posix(): one.read_bytes() for one in found}
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def session_files(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(path).items() if name != "manifest.json"}


KINDS = ["sqlite", "memory"]


@pytest.fixture(params=["folder", "pack.zip"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / request.param


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Opens clients on new stores, and closes them."""
    clients: list[Client] = []

    def make(kind: str = "memory", **who: Any) -> Client:
        url = ":memory:" if kind == "memory" else tmp_path / f"{len(clients)}.db"
        waits = "full" if url == ":memory:" else "normal"
        clients.append(sennit.open(url, durability=waits, **who))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


Opened = Callable[..., Client]


# Round trips


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("goal", KINDS)
def test_a_session_comes_back_exactly(opened: Opened, target: Path, source: str, goal: str) -> None:
    old, new = opened(source), opened(goal)
    session = fill(old)
    fill(old, "second")
    old.export(target)
    found = new.import_sessions(target)
    assert (found.sessions, found.new_sessions) == (2, 2)
    assert found.new_messages == 2 * len(session.messages)
    assert reopened(new) == reopened(old) == seen(session)
    assert reopened(new, "second") == reopened(old, "second")


@pytest.mark.parametrize("goal", KINDS)
def test_exporting_what_was_imported_gives_the_same_bytes(
    opened: Opened, target: Path, goal: str
) -> None:
    old, new = opened("sqlite"), opened(goal)
    fill(old)
    old.export(target)
    new.import_sessions(target)
    again = target.with_name(f"again{target.suffix}")
    new.export(again)
    assert session_files(again) == session_files(target)
    one, other = (json.loads(contents(path)["manifest.json"]) for path in (target, again))
    assert one.pop("created_at") <= other.pop("created_at")
    assert one == other


@pytest.mark.parametrize("goal", KINDS)
def test_importing_twice_changes_nothing(opened: Opened, target: Path, goal: str) -> None:
    old, new = opened(), opened(goal)
    fill(old)
    old.export(target)
    new.import_sessions(target)
    before, listed = reopened(new), new.sessions()
    again = new.import_sessions(target)
    assert (again.sessions, again.new_sessions, again.new_messages) == (1, 0, 0)
    assert reopened(new) == before
    assert new.sessions() == listed
    old.import_sessions(target)
    assert reopened(old) == before


def test_an_imported_session_goes_on(opened: Opened, target: Path) -> None:
    old, new = opened(), opened("sqlite")
    fill(old)
    old.export(target)
    new.import_sessions(target)
    session = new.session("chat")
    session.add_message(ask("and on"), branches="main")
    fork = session.fork("deep")
    assert len(fork) == len(session.get_branch("deep")) - 1  # less the system message
    assert new.search_messages("rope")
    assert new.doctor() == []


@pytest.mark.parametrize("name", ["export", "export_training", "backup", "fs.export"])
def test_a_path_whose_folder_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    with sennit.open(tmp_path / "chat.db") as client:
        write = attrgetter(name)(client)
        with pytest.raises(NotFoundError, match=r"there is no folder '.*none'. Create it first"):
            write(tmp_path / "none" / "x.jsonl")
    assert not (tmp_path / "none").exists()


def test_an_archive_of_no_sessions_is_sound(opened: Opened, target: Path) -> None:
    assert opened().export(target).sessions == 0
    assert opened().import_sessions(target).sessions == 0


def test_a_session_with_nothing_in_it_is_moved_too(opened: Opened, target: Path) -> None:
    old, new = opened(), opened("sqlite")
    old.session("bare", metadata={"a": 1})
    old.export(target)
    assert new.import_sessions(target).new_sessions == 1
    assert new.session("bare").metadata == {"a": 1}


@given(st.lists(some.messages, max_size=8, unique_by=lambda message: message.id), st.data())
@settings(max_examples=20)
def test_any_message_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.zip"
    with sennit.open(":memory:") as old, sennit.open(":memory:") as new:
        session = old.session("chat")
        main = session.create_branch("main")
        for message in messages:
            session.add_message(message, branches=main)
        if len(main):
            session.fork(main, at=data.draw(st.integers(0, len(main) - 1)))
        old.purge(datetime.now(UTC) + timedelta(days=1))  # of two system messages one is left
        old.export(path)
        new.import_sessions(path)
        assert reopened(new) == reopened(old)


def test_only_the_named_sessions_are_exported(opened: Opened, target: Path) -> None:
    old, new = opened(), opened()
    for key in ("a", "b", "c"):
        old.session(key).add_message("user", key)
    uid = old.session("c").id
    summary = old.export(target, sessions=["a", uid, "a"])
    assert (summary.sessions, summary.messages) == (2, 2)
    assert summary.bytes == sum(map(len, session_files(target).values()))
    new.import_sessions(target)
    assert {one.key for one in new.sessions()} == {"a", "c"}


def test_a_named_session_that_is_not_there_leaves_no_archive(opened: Opened, target: Path) -> None:
    with pytest.raises(NotFoundError, match="'nobody'"):
        opened().export(target, sessions=["nobody"])
    assert list(target.parent.iterdir()) == []


def test_a_plain_key_or_id_names_one_session(opened: Opened, tmp_path: Path) -> None:
    client = opened()
    for key in ("a", "b", "ab"):
        client.session(key).add_message("user", key)
    for number, one in enumerate(("ab", client.session("ab").id)):
        client.export(tmp_path / f"{number}", sessions=one)
        client.export_training(tmp_path / f"{number}.jsonl", sessions=one)
        with sennit.open(":memory:") as other:
            other.import_sessions(tmp_path / f"{number}")
            assert [found.key for found in other.sessions()] == ["ab"]
    wrong: Any = 5
    with pytest.raises(InvalidTypeError, match=r"keys or ids.* got 5"):
        client.export(tmp_path / "c", sessions=wrong)
    with pytest.raises(NotFoundError, match="'nobody'"):
        client.export_training(tmp_path / "c", sessions="nobody")


def test_a_session_deleted_during_the_export_is_left_out(opened: Opened, target: Path) -> None:
    client = opened()
    for key in ("a", "b"):
        client.session(key).add_message("user", key)

    def delete(done: int, total: int) -> None:
        client.delete_session("a")

    assert client.export(target, progress=delete).sessions == 1


@pytest.mark.parametrize("kind", KINDS)
def test_messages_erased_during_the_export_leave_an_archive_that_can_be_imported(
    opened: Opened, target: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = opened(kind), opened()
    session = client.session("chat")
    for text in ("gone", "kept"):
        session.add_message("user", text)
        session.label(session.add_message("assistant", f"re {text}").messages[0], 1.0, by="ann")
    session.commit()

    def erase_first(*args: Any) -> Any:
        monkeypatch.undo()
        session.remove_messages(session.default_branch.messages[:2])
        return client._store.load(*args)

    monkeypatch.setattr(client._store, "load", erase_first)
    client.export(target)
    other.import_sessions(target)
    there = other.session("chat")
    assert [one.content.words for one in there.messages] == ["kept", "re kept"]
    assert [label.message for label in there.labels()] == [there.default_branch[-1]]
    assert there.current() == []


def test_all_sessions_are_found_however_many_pages_they_fill(
    opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_import, "_PAGE", 3)
    client = opened()
    for n in range(10):
        client.session(f"s{n}")
    assert client.export(target).sessions == 10


def test_progress_is_told_of_every_session(opened: Opened, target: Path) -> None:
    old, steps = opened(), []
    for n in range(3):
        old.session(f"s{n}")
    old.export(target, progress=lambda done, total: steps.append((done, total)))
    opened().import_sessions(target, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)] * 2


def test_the_file_begins_with_the_session_and_every_line_says_its_kind(
    opened: Opened, tmp_path: Path
) -> None:
    client = opened()
    session = fill(client)
    client.export(tmp_path / "out")
    lines = (tmp_path / "out" / "sessions" / f"{session.id}.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    order = ["session", "message", "segment", "branch"]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["format"] == "sennit-archive"
    assert manifest["version"] == 1
    assert manifest["files"][0]["lines"] == len(lines)


def test_a_zip_made_of_the_folder_by_hand_is_taken_too(opened: Opened, tmp_path: Path) -> None:
    client = opened()
    fill(client)
    client.export(tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "hand.zip", "w") as packed:
        packed.write(tmp_path / "out" / "sessions", "sessions/")
        for name, data in contents(tmp_path / "out").items():
            packed.writestr(name, data)
    assert opened().import_sessions(tmp_path / "hand.zip").new_sessions == 1


# Owners and grants


def test_ids_are_derived_as_the_client_derives_them(opened: Opened) -> None:
    client = opened(tenant="t", user="ada")
    assert client.session("chat").id == session_id(Owner("t", "user", "ada"), "chat")


def test_the_sessions_become_those_of_whoever_imports_them(opened: Opened, target: Path) -> None:
    ada = opened("sqlite", user="ada")
    loose = uuid4()
    fill(ada)
    fill(ada, loose)
    ada.export(target)
    bob = Client(ada._store, user="bob")
    assert bob.import_sessions(target).new_sessions == 2
    assert bob.session("chat").id != ada.session("chat").id
    assert bob.session(loose).id == ada.session(loose).id
    assert reopened(bob) == reopened(ada)
    bob.session("chat").add_message("user", "mine")
    assert reopened(bob) != reopened(ada)
    assert bob.import_sessions(target).new_messages == 0


def test_grants_are_written_for_the_reader_and_never_imported(opened: Opened, target: Path) -> None:
    old, new = opened(), opened()
    old.session("chat").create_branch("main", resources={"gpt"}, capabilities={"pay"})
    old.export(target)
    (data,) = session_files(target).values()
    assert b'"resources":["gpt"],"capabilities":["pay"]' in data
    new.import_sessions(target)
    branch = new.session("chat").get_branch("main")
    assert (branch.resources, branch.capabilities) == (frozenset(), frozenset())
    branch.grant(resources={"own"})
    new.import_sessions(target)
    assert new.session("chat").get_branch("main").resources == {"own"}


# What is here already


def test_what_has_grown_since_is_taken_in(opened: Opened, tmp_path: Path) -> None:
    old, new = opened(), opened("sqlite")
    session = old.session("chat")
    session.add_message("user", "one")
    old.export(tmp_path / "first")
    new.import_sessions(tmp_path / "first")
    session.add_message("user", "two")
    session.fork("main", name="fork")
    old.export(tmp_path / "second")
    assert new.import_sessions(tmp_path / "second").new_messages == 1
    assert reopened(new) == reopened(old)
    assert new.import_sessions(tmp_path / "first").new_messages == 0
    assert reopened(new) == reopened(old)


def change_message(client: Client) -> None:
    session = client.session("chat")
    first = session.get_branch("main")[0]
    session.remove_message(first)
    session.add_message(Message(InstructionContent(instruction="other"), id=first))


def make_branch_anew(client: Client) -> None:
    session = client.session("chat")
    session.remove_branch("main")
    session.create_branch("main")


def rewrite_branch(client: Client) -> None:
    client.session("chat").get_branch("main").reverse()


def change_system(client: Client) -> None:
    client.session("chat").set_branch_system("main", Message(SystemContent("Other.")))


def remove_forked_branch(client: Client) -> None:
    client.session("chat").remove_branch("main")


def append_elsewhere(client: Client) -> None:
    client.session("chat").add_message(ask("mine"), branches="main")


@pytest.mark.parametrize(
    "change",
    [change_message, make_branch_anew, rewrite_branch, change_system, remove_forked_branch],
)
def test_a_session_that_differs_refuses_the_whole_import(
    opened: Opened, target: Path, change: Callable[[Client], None]
) -> None:
    old, new = opened("sqlite"), opened("sqlite")
    old.session("another").add_message("user", "hello")
    session = old.session("chat")
    main = session.create_branch("main")
    for n in range(3):
        session.add_message(ask(f"{n}"), branches=main)
    session.fork(main, name="fork")
    old.export(target)
    new.import_sessions(target)
    new.delete_session("another")
    change(new)
    before = reopened(new)
    with pytest.raises(ExistsError, match="differs from the archive"):
        new.import_sessions(target)
    assert reopened(new) == before
    assert [one.key for one in new.sessions()] == ["chat"]


def test_a_branch_that_has_another_name_here_is_told_of(opened: Opened, target: Path) -> None:
    old, new = opened(), opened()
    session = old.session("chat")
    session.add_message("user", "one")
    session.fork("main", name="draft")
    old.export(target)
    new.import_sessions(target)
    new.session("chat").rename_branch("draft", "final")
    with pytest.raises(ExistsError, match="branch 'draft' is named 'final'"):
        new.import_sessions(target)
    assert "final" in new.session("chat").branches


def test_two_continuations_of_one_branch_are_not_merged(opened: Opened, target: Path) -> None:
    old, new = opened(), opened()
    old.session("chat").add_message("user", "one")
    old.export(target)
    new.import_sessions(target)
    append_elsewhere(new)
    old.session("chat").add_message("user", "theirs")
    later = target.with_name(f"later{target.suffix}")
    old.export(later)
    with pytest.raises(ExistsError, match="another history"):
        new.import_sessions(later)


def test_a_store_that_fails_in_the_middle_keeps_nothing_of_that_session(
    opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = opened(), opened("sqlite")
    fill(old)
    old.export(target)

    def full(*args: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(new._store, "write", full)
    with pytest.raises(StoreError, match="full"):
        new.import_sessions(target)
    assert new.sessions() == []


# Appearing whole


def test_a_target_that_exists_is_refused_and_left_alone(opened: Opened, target: Path) -> None:
    target.write_text("mine")
    with pytest.raises(ExistsError, match="already exists"):
        opened().export(target)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_crash_in_the_middle_leaves_nothing(
    opened: Opened, target: Path, error: type[BaseException]
) -> None:
    client = opened()
    for n in range(3):
        client.session(f"s{n}")

    def crash(done: int, total: int) -> None:
        if done == 2:
            raise error("crash")

    with pytest.raises(error):
        client.export(target, progress=crash)
    assert list(target.parent.iterdir()) == []


def test_a_disk_that_refuses_is_a_store_error_and_leaves_nothing(
    opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        opened().export(target)
    assert list(target.parent.iterdir()) == []


def test_a_session_too_large_to_read_back_is_not_written(
    opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened()
    client.session("chat").add_message("user", "x" * 5000)
    monkeypatch.setattr(archives, "LIMITS", replace(archives.LIMITS, file_bytes=4000))
    with pytest.raises(ArchiveError, match="too large"):
        client.export(target)
    monkeypatch.setattr(archives, "LIMITS", replace(archives.LIMITS, sessions=0))
    with pytest.raises(ArchiveError, match="at most 0 sessions"):
        client.export(target)
    assert list(target.parent.iterdir()) == []


def test_what_packs_too_well_to_be_read_back_is_not_packed(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened()
    client.session("chat").add_message("user", "x" * 100_000)
    limit(monkeypatch, ratio=20, ratio_from=50_000)
    with pytest.raises(ArchiveError, match=r"refused as a zip bomb.* export them to a folder"):
        client.export(tmp_path / "a.zip")
    client.export(tmp_path / "a")
    assert opened().import_sessions(tmp_path / "a").new_messages == 1
    assert not (tmp_path / "a.zip").exists()


def test_the_largest_message_that_can_be_stored_is_moved(opened: Opened, tmp_path: Path) -> None:
    old, new = opened(), opened()
    room = MAX_BYTES - len(dumps(ask("").to_record()))
    longest = ask("x" * room)
    with pytest.raises(CodecError):
        old.session("chat").add_message(ask("x" * (room + 1)))
    old.session("chat").add_message(longest)
    old.export(tmp_path / "a")
    new.import_sessions(tmp_path / "a")
    assert new.session("chat").messages[0].content == longest.content


def test_what_no_line_holds_is_named(
    opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened()
    said = client.session("chat").add_message(ask("x" * 5000))
    monkeypatch.setattr(lines, "MAX_LINE", 4000)
    with pytest.raises(ArchiveError, match=f"Message {said.id} of session 'chat' does not fit"):
        client.export(target)


# Paths


def doors(client: Client) -> list[Callable[[Any], object]]:
    """All that takes a path of the disk."""
    fs = client.fs
    return [
        client.export,
        client.import_sessions,
        client.export_training,
        client.backup,
        fs.export,
        fs.import_folder,
    ]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("file/x.zip", SennitError),
        ("n" * 300, StoreError),
        ("nul\0.zip", ValidationError),
        ("half \ud800.zip", ValidationError),
        ("~nobody-of-that-name/x.zip", ValidationError),
        (None, InvalidTypeError),
        (b"x.zip", InvalidTypeError),
    ],
)
def test_a_path_that_cannot_be_is_refused_by_name(
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: object,
    error: type[Exception],
) -> None:
    client = opened("sqlite")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    named = re.escape(repr(path)[:90].rstrip("'"))
    before = sorted(tmp_path.iterdir())
    for door in doors(client):
        with pytest.raises(error, match=named):
            door(path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_name_as_long_as_names_may_be_can_be_written(opened: Opened, tmp_path: Path) -> None:
    client, longest = opened("sqlite"), os.pathconf(tmp_path, "PC_NAME_MAX")
    client.session("chat").add_message("user", "x")
    client.export(tmp_path / ("n" * longest))
    client.export(tmp_path / ("é" * ((longest - 4) // 2) + ".zip"))
    client.backup(tmp_path / ("n" * 226 + ".db"))
    client.backup(tmp_path / ("b" * longest))
    with sennit.open(tmp_path / ("n" * 226 + ".db")) as copy:
        assert len(copy.session("chat").messages) == 1


def test_a_tilde_is_the_home_folder(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    client = opened("sqlite")
    client.session("chat").add_message("user", "x")
    assert client.export("~/a.zip").path == tmp_path / "home" / "a.zip"
    assert client.import_sessions("~/a.zip").sessions == 1
    client.backup(Path("~/b.db"))
    client.export_training("~/c.jsonl")
    client.fs.export("~/d")
    client.fs.import_folder("~/d")
    names = {one.name for one in (tmp_path / "home").iterdir()}
    assert names == {"a.zip", "b.db", "c.jsonl", "d"}
    assert not (tmp_path / "~").exists()


# Hostile archives


class Forged:
    """An archive taken apart, to be put together again with something wrong in it."""

    def __init__(self, path: Path) -> None:
        self.files = contents(path)
        self.manifest: dict[str, Any] = json.loads(self.files.pop("manifest.json"))
        self.name = self.manifest["files"][0]["name"]
        self.lines: list[Any] = [json.loads(line) for line in self.files[self.name].splitlines()]
        self.raw: bytes | None = None

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def data(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    def sealed(self) -> dict[str, bytes]:
        """All files, with checksums, sizes and counts that fit."""
        data = self.data()
        file, session = self.manifest["files"][0], self.manifest["sessions"][0]
        file.update(
            sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), lines=data.count(b"\n")
        )
        for name in ("message", "segment", "branch"):
            plural = f"{name}es" if name == "branch" else f"{name}s"
            session[plural] = sum(
                isinstance(line, dict) and line.get("kind") == name for line in self.lines
            )
        return {**self.files, self.name: data, "manifest.json": self.manifest_bytes()}

    def manifest_bytes(self) -> bytes:
        return json.dumps(self.manifest).encode()


@pytest.fixture
def forged(opened: Opened, tmp_path: Path) -> Forged:
    client = opened()
    fill(client)
    client.export(tmp_path / "sound")
    return Forged(tmp_path / "sound")


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(name, data)
    return path


def refused(path: Path, match: str | None = None) -> None:
    """Importing it fails clearly and leaves no trace."""
    with sennit.open(":memory:") as client:
        with pytest.raises(ArchiveError, match=match):
            client.import_sessions(path)
        assert client.sessions() == []
        assert client._store._owners == {}  # pyright: ignore


def test_the_forger_gives_back_what_it_took(forged: Forged, tmp_path: Path) -> None:
    with sennit.open(":memory:") as client:
        client.import_sessions(packed(tmp_path / "a.zip", forged.sealed()))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "no file or folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no manifest.json")
    (tmp_path / "text.zip").write_text("these are my notes" * 100)
    refused(tmp_path / "text.zip", "not a zip file")
    (tmp_path / "zero.zip").touch()
    refused(tmp_path / "zero.zip", "not a zip file")


@pytest.mark.parametrize("cut", [1, 10, 30, 100])
def test_a_zip_cut_short_is_refused(forged: Forged, tmp_path: Path, cut: int) -> None:
    path = packed(tmp_path / "a.zip", forged.sealed())
    path.write_bytes(path.read_bytes()[:-cut])
    refused(path)


def test_no_flipped_byte_of_a_zip_goes_unnoticed(forged: Forged, tmp_path: Path) -> None:
    sound = packed(tmp_path / "a.zip", forged.sealed()).read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 150)):
        path = tmp_path / "b.zip"
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        with sennit.open(":memory:") as client:
            try:
                client.import_sessions(path)
            except ArchiveError:
                assert client.sessions() == []
            else:  # a time stamp or the like: what was said is unharmed
                assert session_files(path) == {forged.name: forged.data()}


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "sessions/../../evil",
        "/etc/evil",
        "C:\\evil",
        "sessions\\..\\evil",
        "sessions/a/b.jsonl",
        "evil",
        "sessions/evil.jsonl",
        "manifest.json/evil",
    ],
)
def test_names_that_lead_elsewhere_and_extra_files_are_refused(
    forged: Forged, tmp_path: Path, name: str
) -> None:
    refused(packed(tmp_path / "a.zip", {**forged.sealed(), name: b"x"}), "not in its manifest")


@pytest.mark.parametrize("name", ["../evil.jsonl", "/evil", "sessions/evil.jsonl", ""])
def test_a_manifest_that_names_files_of_its_own_is_refused(
    forged: Forged, tmp_path: Path, name: str
) -> None:
    files = forged.sealed()
    forged.manifest["files"][0]["name"] = name
    files["manifest.json"] = forged.manifest_bytes()
    refused(packed(tmp_path / "a.zip", files), "not those of its sessions")


def test_a_missing_file_is_refused(forged: Forged, tmp_path: Path) -> None:
    files = forged.sealed()
    del files[forged.name]
    refused(packed(tmp_path / "a.zip", files), "missing")


def test_a_name_that_stands_twice_in_a_zip_is_refused(forged: Forged, tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", forged.sealed())
    with zipfile.ZipFile(path, "a") as target, pytest.warns(UserWarning, match="Duplicate"):
        target.writestr("manifest.json", b"{}")
    refused(path, "twice")


def test_a_session_that_stands_twice_in_the_manifest_is_refused(
    forged: Forged, tmp_path: Path
) -> None:
    forged.sealed()
    for part in ("files", "sessions"):
        forged.manifest[part] *= 2
    refused(packed(tmp_path / "a.zip", forged.sealed()), "twice")


def test_two_sessions_of_one_key_are_refused(forged: Forged, tmp_path: Path) -> None:
    files = forged.sealed()
    uid = str(uuid4())
    forged.lines[0]["id"] = uid
    data = forged.data()
    name = f"sessions/{uid}.jsonl"
    sha = hashlib.sha256(data).hexdigest()
    forged.manifest["files"].append(
        {**forged.manifest["files"][0], "name": name, "sha256": sha, "bytes": len(data)}
    )
    forged.manifest["sessions"].append({**forged.manifest["sessions"][0], "id": uid})
    files.update({name: data, "manifest.json": forged.manifest_bytes()})
    refused(packed(tmp_path / "a.zip", files), "Two sessions")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFBLK])
def test_anything_but_plain_files_in_a_zip_is_refused(
    forged: Forged, tmp_path: Path, mode: int
) -> None:
    files = forged.sealed()
    info = zipfile.ZipInfo(forged.name)
    info.external_attr = (mode | 0o777) << 16
    data = files.pop(forged.name)
    path = packed(tmp_path / "a.zip", files)
    with zipfile.ZipFile(path, "a") as target:
        target.writestr(info, data)
    refused(path, "not a regular file")


def test_encrypted_files_are_refused(forged: Forged, tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", forged.sealed())
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    refused(path, "encrypted")


def test_a_rare_way_of_packing_is_refused(forged: Forged, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as target:
        for name, data in forged.sealed().items():
            target.writestr(name, data)
    refused(tmp_path / "a.zip", "compression method")


def unpacked(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_links_in_a_folder_are_refused(forged: Forged, tmp_path: Path) -> None:
    path = unpacked(tmp_path / "a", forged.sealed())
    (path / forged.name).rename(tmp_path / "outside")
    (path / forged.name).symlink_to(tmp_path / "outside")
    refused(path, "not a regular file")
    (path / forged.name).unlink()
    (path / "sessions").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (path / "sessions").symlink_to(tmp_path / "elsewhere")
    refused(path, "not a regular file")


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", ["extra", "sessions/extra"])
def test_extra_things_in_a_folder_are_refused(
    forged: Forged, tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    path = unpacked(tmp_path / "a", forged.sealed())
    make(path / name)
    refused(path, "extra")


def test_a_changed_file_is_refused(forged: Forged, tmp_path: Path) -> None:
    files = forged.sealed()
    data = files[forged.name]
    files[forged.name] = data.replace(b"question 1", b"question 9")
    refused(packed(tmp_path / "a.zip", files), "was modified")
    refused(unpacked(tmp_path / "a", files), "was modified")
    files[forged.name] = data[:-1]
    refused(unpacked(tmp_path / "b", files), "was modified")
    files[forged.name] = data + b"\n"
    refused(unpacked(tmp_path / "c", files), "was modified")


def test_a_file_changed_after_the_check_is_refused_before_its_session_is_written(
    forged: Forged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked(tmp_path / "a", forged.sealed())
    check = export_import._check

    def check_then_change(*args: Any) -> None:
        check(*args)
        data = (path / forged.name).read_bytes()
        (path / forged.name).write_bytes(data.replace(b"question 1", b"question 9"))

    monkeypatch.setattr(export_import, "_check", check_then_change)
    refused(path, "was modified")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "other"),
        ("format", None),
        ("version", 2),
        ("version", 0),
        ("version", "1"),
        ("version", None),
        ("files", None),
        ("files", [1]),
        ("sessions", {}),
        ("extra", 1),
        ("created_at", 5),
    ],
)
def test_a_manifest_of_another_kind_or_version_is_refused(
    forged: Forged, tmp_path: Path, field: str, value: object
) -> None:
    files = forged.sealed()
    forged.manifest[field] = value
    refused(packed(tmp_path / "a.zip", {**files, "manifest.json": forged.manifest_bytes()}))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_no_object_is_refused(
    forged: Forged, tmp_path: Path, data: bytes
) -> None:
    refused(packed(tmp_path / "a.zip", {**forged.sealed(), "manifest.json": data}))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (7, "version 7.*update Sennit"),
        (0, "version 0, which no version of Sennit writes"),
        (None, "version None, which no version of Sennit writes"),
        ("2", "version '2', which no version of Sennit writes"),
    ],
)
def test_only_a_later_version_says_to_update(
    forged: Forged, tmp_path: Path, version: object, said: str
) -> None:
    files = forged.sealed()
    forged.manifest["version"] = version
    files["manifest.json"] = forged.manifest_bytes()
    refused(packed(tmp_path / "a.zip", files), said)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("files", "bytes", 10**30),
        ("files", "bytes", -1),
        ("files", "lines", 1),
        ("files", "sha256", "0" * 64),
        ("sessions", "messages", 1),
        ("sessions", "branches", 0),
        ("sessions", "key", "other"),
        ("sessions", "id", "chat"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    forged: Forged, tmp_path: Path, part: str, field: str, value: object
) -> None:
    files = forged.sealed()
    forged.manifest[part][0][field] = value
    refused(packed(tmp_path / "a.zip", {**files, "manifest.json": forged.manifest_bytes()}))


# Bombs


def limit(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setattr(archives, "LIMITS", replace(archives.LIMITS, **limits))


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"file_bytes": 100}, "too large"),
        ({"total_bytes": 1000}, "too large"),
        ({"lines": 5}, "too many lines"),
        ({"ratio": 1, "ratio_from": 1000}, "zip bomb"),
        ({"sessions": 0}, "more than 0 files"),
        ({"listing_bytes": 50}, "too many names"),
    ],
)
def test_more_than_the_limits_allow_is_refused(
    forged: Forged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    match: str,
) -> None:
    path = packed(tmp_path / "a.zip", forged.sealed())
    limit(monkeypatch, **limits)
    refused(path, match)


def test_a_real_zip_bomb_is_refused_before_it_is_unpacked(forged: Forged, tmp_path: Path) -> None:
    files = forged.sealed()
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("manifest.json", files["manifest.json"])
        with target.open(forged.name, "w") as stream:
            for _ in range(160):
                stream.write(bytes(1 << 20))
    assert path.stat().st_size < 200_000
    refused(path, "zip bomb")


def test_a_zip_that_lies_about_its_sizes_is_refused(forged: Forged, tmp_path: Path) -> None:
    files = forged.sealed()
    size = len(files[forged.name])
    files[forged.name] += b" " * 1_000_000
    path = packed(tmp_path / "a.zip", files)
    lying = path.read_bytes().replace(
        len(files[forged.name]).to_bytes(4, "little"), size.to_bytes(4, "little")
    )
    path.write_bytes(lying)
    refused(path)


def test_a_list_of_names_that_lies_about_its_size_is_refused(
    forged: Forged, tmp_path: Path
) -> None:
    path = packed(tmp_path / "a.zip", forged.sealed())
    data = bytearray(path.read_bytes())
    data[-10:-6] = (0x7FFFFFFF).to_bytes(4, "little")
    path.write_bytes(data)
    refused(path, "too many names")


# Lines


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"{}\n",
        b"null\n",
        b'{"kind":"session"}\n',
        b'{"kind":"thing"}\n',
        b"not json\n",
        b"\xff\xfe\n",
        b'{"kind":"session","id":"\xed\xa0\x80"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_files_that_hold_no_session_are_refused(forged: Forged, tmp_path: Path, raw: bytes) -> None:
    forged.raw = raw
    refused(packed(tmp_path / "a.zip", forged.sealed()))


def test_bad_utf_8_is_refused(forged: Forged, tmp_path: Path) -> None:
    forged.raw = forged.data().replace(b"question 1", b"question \xff")
    refused(packed(tmp_path / "a.zip", forged.sealed()), "utf-8")


def test_a_last_line_cut_short_is_refused(forged: Forged, tmp_path: Path) -> None:
    forged.raw = forged.data()[:-1]
    refused(packed(tmp_path / "a.zip", forged.sealed()), "truncated")


Forge = Callable[[Forged], object]


def put(kind: str, field: str, value: object) -> Forge:
    """Change a field of the first line of a kind."""
    return lambda forged: forged.of(kind)[0].update({field: value})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def said(**fields: object) -> dict[str, Any]:
    return {"type": "instruction", "content": fields}


def based(forged: Forged) -> dict[str, Any]:
    return next(line for line in forged.of("segment") if line["base"] is not None)


def repeat_across(forged: Forged) -> None:
    """Let a segment hold what its base holds below the cut."""
    upper = based(forged)
    lower = next(line for line in forged.of("segment") if line["id"] == upper["base"])
    while not lower["entries"][: upper["offset"] - lower["offset"]]:
        upper, lower = (
            lower,
            next(line for line in forged.of("segment") if line["id"] == lower["base"]),
        )
    upper["entries"].append(lower["entries"][0])


def cycle(forged: Forged) -> None:
    upper = based(forged)
    lower = next(line for line in forged.of("segment") if line["id"] == upper["base"])
    lower["base"], lower["offset"] = upper["id"], 0


def share_a_segment(forged: Forged) -> None:
    one, other, *_ = forged.of("branch")
    one["segment"] = other["segment"]


def name_twice(forged: Forged) -> None:
    one, other, *_ = forged.of("branch")
    one["name"] = other["name"]


def system_that_is_none(forged: Forged) -> None:
    entry = next(line for line in forged.of("segment") if line["entries"])["entries"][0]
    forged.of("branch")[0]["system"] = entry


def twice(kind: str) -> Forge:
    def double(forged: Forged) -> None:
        line = forged.of(kind)[0]
        forged.lines.insert(forged.lines.index(line), deepcopy(line))

    return double


def unused_segment(forged: Forged) -> None:
    at = forged.lines.index(forged.of("branch")[0])
    line = {"kind": "segment", "id": str(uuid4()), "base": None, "offset": 0, "entries": []}
    forged.lines.insert(at, line)


def extra_message_key(forged: Forged) -> None:
    forged.of("message")[0]["body"]["id"] = str(uuid4())


FORGERIES: dict[str, Forge] = {
    "unknown kind": lambda forged: forged.lines.append({"kind": "secret"}),
    "no object": lambda forged: forged.lines.append([1]),
    "no session": lambda forged: forged.lines.pop(0),
    "two sessions": twice("session"),
    "wrong order": lambda forged: forged.lines.append(forged.lines.pop(1)),
    "unknown field": put("message", "secret", 1),
    "missing field": lambda forged: forged.lines[0].pop("user"),
    "session id": put("session", "id", "chat"),
    "session key empty": put("session", "key", ""),
    "session key with NUL": put("session", "key", "a\0b"),
    "session key is an id": put("session", "key", str(uuid4())),
    "session key is a number": put("session", "key", 5),
    "session time": put("session", "created", 10**18),
    "session time of a float": put("session", "created", 1.5),
    "session metadata deep": put("session", "metadata", {"a": nested(200)}),
    "session metadata huge integer": put("session", "metadata", {"a": 10**30}),
    "session metadata NUL": put("session", "metadata", {"a": "\0"}),
    "session metadata list": put("session", "metadata", []),
    "session user NUL": put("session", "user", "a\0"),
    "message twice": twice("message"),
    "message id": put("message", "id", "../../etc/passwd"),
    "message time": put("message", "created", -(10**18)),
    "message time huge": put("message", "created", 10**30),
    "message without body": put("message", "body", None),
    "message of no type": put("message", "body", {}),
    "message of unknown type": put("message", "body", {"type": "os.system", "content": {}}),
    "message with extra key": extra_message_key,
    "message content no dict": put("message", "body", {"type": "instruction", "content": [1]}),
    "message unknown content field": put("message", "body", said(evil=1)),
    "message bad image": put("message", "body", said(images=["file:///etc/passwd"])),
    "message depth bomb": put("message", "body", said(context=[nested(101)])),
    "message deeper than Python": put("message", "body", said(context=[nested(900)])),
    "message huge integer": put("message", "body", said(context=[10**30])),
    "message NUL": put("message", "body", said(instruction="a\0b")),
    "message lone surrogate": put("message", "body", said(instruction="\ud800 and more")),
    "message NaN": put("message", "body", said(context=[float("nan")])),
    "message infinity": put("message", "body", said(context=[float("inf")])),
    "message sender": put("message", "body", {**said(instruction="x"), "sender": 5}),
    "message metadata": put("message", "body", {**said(instruction="x"), "metadata": [1]}),
    "segment twice": twice("segment"),
    "segment base gone": put("segment", "base", str(uuid4())),
    "segment base itself": lambda forged: based(forged).update(base=based(forged)["id"]),
    "segment cycle": cycle,
    "segment offset past base": lambda forged: based(forged).update(offset=99),
    "segment offset negative": lambda forged: based(forged).update(offset=-1),
    "segment offset without base": lambda forged: next(
        line for line in forged.of("segment") if line["base"] is None
    ).update(offset=1),
    "segment entry gone": lambda forged: based(forged)["entries"].append(str(uuid4())),
    "segment entry twice": lambda forged: next(
        line for line in forged.of("segment") if line["entries"]
    ).update(entries=[forged.of("message")[0]["id"]] * 2),
    "segment repeats its base": repeat_across,
    "segment unused": unused_segment,
    "branch twice": twice("branch"),
    "branch name twice": name_twice,
    "branch name empty": put("branch", "name", ""),
    "branch name NUL": put("branch", "name", "a\0"),
    "branch segment gone": put("branch", "segment", str(uuid4())),
    "branch segment shared": share_a_segment,
    "branch system gone": put("branch", "system", str(uuid4())),
    "branch system is none": system_that_is_none,
    "branch grants": put("branch", "resources", {"gpt": True}),
    "branch metadata": put("branch", "metadata", {"a": nested(101)}),
    "branch time": put("branch", "created", None),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_session_that_is_not_sound_is_refused(
    forged: Forged, tmp_path: Path, forge: Forge
) -> None:
    forge(forged)
    refused(packed(tmp_path / "a.zip", forged.sealed()), "cannot be imported")


def test_a_bad_session_after_a_good_one_refuses_both(opened: Opened, tmp_path: Path) -> None:
    client = opened()
    for key in ("a", "b"):
        client.session(key).add_message("user", "hello")
    client.export(tmp_path / "sound")
    forged = Forged(tmp_path / "sound")
    for line in forged.of("branch"):
        line["name"] = ""
    files = forged.sealed()
    for part in ("files", "sessions"):  # so that the sound one comes first
        forged.manifest[part].reverse()
    files["manifest.json"] = forged.manifest_bytes()
    refused(packed(tmp_path / "a.zip", files), "must not be empty")


def test_messages_may_stand_on_branches_that_do_not_see_each_other(
    opened: Opened, tmp_path: Path
) -> None:
    client = opened()
    session = client.session("chat")
    main = session.create_branch("main")
    shared = [session.add_message(ask(f"{n}"), branches=main) for n in range(4)]
    fork = session.fork(main, at=0, name="fork")
    session.add_message(shared[3], branches=fork)
    above = session.fork(fork, name="above")
    session.add_message(shared[2], branches=above)
    client.export(tmp_path / "a.zip")
    other = opened()
    other.import_sessions(tmp_path / "a.zip")
    assert reopened(other) == reopened(client)


def test_a_long_chain_of_forks_moves_in_linear_time(opened: Opened, tmp_path: Path) -> None:
    client, new = opened(), opened("sqlite")
    session = client.session("chat")
    branch = session.create_branch("b0")
    for n in range(1, 1000):
        session.add_message(ask(f"{n}"), branches=branch)
        branch = session.fork(branch, name=f"b{n}")
    client.export(tmp_path / "a.zip")
    new.import_sessions(tmp_path / "a.zip")
    assert list(new.session("chat").get_branch("b999")) == list(branch)


# Backup


def test_a_backup_is_the_store_as_it_was(opened: Opened, tmp_path: Path) -> None:
    client = opened("sqlite")
    session = fill(client)
    client.search_messages("rope")
    (tmp_path / "copies").mkdir()
    client.backup(tmp_path / "copies" / "b.db")
    then = seen(session)
    session.add_message("user", "later")
    assert [one.name for one in (tmp_path / "copies").iterdir()] == ["b.db"]
    with sennit.open(tmp_path / "copies" / "b.db") as copy:
        assert seen(copy.session("chat")) == then
        assert copy.search_messages("rope")
        assert copy.doctor() == []


def test_a_backup_is_made_while_others_write(opened: Opened, tmp_path: Path) -> None:
    client = opened("sqlite")
    session = client.session("chat")
    session.add_message("user", "committed")
    store = client._store
    assert isinstance(store, SQLiteStore)
    with store._transaction() as connection:
        connection.execute("DELETE FROM messages")
        client.backup(tmp_path / "b.db")
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
    session.add_message("user", "after")
    with sennit.open(tmp_path / "b.db") as copy:
        assert len(copy.session("chat").messages) == 1


def test_a_backup_overwrites_nothing(opened: Opened, tmp_path: Path) -> None:
    client = opened("sqlite")
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(ExistsError, match="already exists"):
        client.backup(tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"


def test_a_backup_that_fails_leaves_nothing(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened("sqlite")
    monkeypatch.setattr("sennit.atomic_file._fsync_tree", lambda path: 1 / 0)
    (tmp_path / "copies").mkdir()
    with pytest.raises(ZeroDivisionError):
        client.backup(tmp_path / "copies" / "b.db")
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_closed_store_makes_no_backup(opened: Opened, tmp_path: Path) -> None:
    client = opened("sqlite")
    client.close()
    with pytest.raises(StoreError, match="closed"):
        client.backup(tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def test_a_key_is_checked_before_anything_is_exported(opened: Opened, target: Path) -> None:
    with pytest.raises(ValidationError):
        opened().export(target, sessions=[""])
    assert list(target.parent.iterdir()) == []


def test_async_callers_have_the_same_doors(opened: Opened, target: Path) -> None:
    old, new = opened("sqlite"), opened("sqlite")
    fill(old)

    async def move() -> None:
        await old.aexport(target, progress=None)
        assert (await new.aimport_sessions(target)).new_sessions == 1
        assert await new.adoctor(repair=False) == []
        await new.abackup(target.with_name("b.db"))

    asyncio.run(move())
    assert reopened(new) == reopened(old)
    assert target.with_name("b.db").exists()


def test_an_import_compares_again_what_a_user_adds_meanwhile(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = opened("sqlite"), opened("sqlite")
    session = source.session("chat")
    session.add_message("user", "one")
    source.export(tmp_path / "one.zip")
    session.add_message("user", "two")
    source.export(tmp_path / "two.zip")
    target.import_sessions(tmp_path / "one.zip")
    store, pending = target._store, ["mine"]
    write = store.write

    def write_after_a_user(*arguments: Any) -> Any:
        if pending:
            target.session("chat").add_message("user", pending.pop())
        return write(*arguments)

    monkeypatch.setattr(store, "write", write_after_a_user)
    with pytest.raises(ExistsError, match="another history"):
        target.import_sessions(tmp_path / "two.zip")
    assert [message.text for message in target.session("chat").default_branch.messages] == [
        "one",
        "mine",
    ]


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2_000


def with_pictures(client: Client) -> Session:
    session = client.session("pictures")
    for name in ("chat", "again"):
        content = InstructionContent.create(name, images=[ImagePart(PICTURE).url])
        session.add_message(Message(content), branches=session.default_branch)
    return session


def pictures(session: Session) -> list[bytes]:
    contents = [message.content for message in session.default_branch.messages]
    return [session.read_blob(url) for content in contents for url in content.attachment_urls]


@pytest.mark.parametrize("name", ["archive", "archive.zip"])
def test_an_archive_takes_blobs_along_once(tmp_path: Path, emptied: str, name: str) -> None:
    path = tmp_path / name
    with sennit.open(tmp_path / "a.db") as client, sennit.open(emptied, user="else") as other:
        with_pictures(client)
        client.export(path)
        assert other.import_sessions(path).new_messages == 2
        assert pictures(other.session("pictures")) == [PICTURE, PICTURE]
        assert other.import_sessions(path).new_messages == 0
        assert other.doctor() == []
        other.export(tmp_path / "back")
        with sennit.open(tmp_path / "b.db") as third:
            third.import_sessions(tmp_path / "back")
            assert pictures(third.session("pictures")) == [PICTURE, PICTURE]
    assert sum(file.stat().st_size for file in (tmp_path / "back").rglob("*") if file.is_file()) < (
        len(PICTURE) + 4_000
    )


def test_an_archive_with_a_changed_missing_or_extra_blob_is_refused(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        with_pictures(client)
        client.export(tmp_path / "archive")
    [blob] = (tmp_path / "archive" / "blobs").iterdir()
    manifest = tmp_path / "archive" / "manifest.json"
    whole, listed = blob.read_bytes(), manifest.read_text()
    with sennit.open(tmp_path / "b.db") as other:
        for data in (whole[:-1] + b"x", whole[:-1]):
            blob.write_bytes(data)
            with pytest.raises(ArchiveError, match="was modified"):
                other.import_sessions(tmp_path / "archive")
        blob.unlink()
        with pytest.raises(ArchiveError, match="is missing from the archive"):
            other.import_sessions(tmp_path / "archive")
        fields = json.loads(listed)
        manifest.write_text(json.dumps({**fields, "blobs": []}))
        with pytest.raises(ArchiveError, match="not in the archive"):
            other.import_sessions(tmp_path / "archive")
        blob.write_bytes(whole)
        with pytest.raises(ArchiveError, match="not in its manifest"):
            other.import_sessions(tmp_path / "archive")
        for name in ("../../evil", "A" * 64):
            manifest.write_text(listed.replace(fields["blobs"][0]["sha256"], name))
            with pytest.raises(ArchiveError, match=r"manifest\.json is invalid"):
                other.import_sessions(tmp_path / "archive")
        assert not list(other.sessions())
        manifest.write_text(listed)
        assert other.import_sessions(tmp_path / "archive").new_messages == 2


def test_an_export_of_a_damaged_blob_says_so_and_leaves_no_archive(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        with_pictures(client)
        with sqlite3.connect(tmp_path / "a.db") as connection:
            connection.execute("UPDATE blob_chunks SET bytes = zeroblob(length(bytes))")
        with pytest.raises(StoreError, match="damaged"):
            client.export(tmp_path / "archive")
    assert not (tmp_path / "archive").exists()

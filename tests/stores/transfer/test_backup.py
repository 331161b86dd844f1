"""A backup of any store is a SQLite file with all there is, of all owners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import sennit
from sennit import Client, ExistsError, ImagePart, InstructionContent, Message, StoreError
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.records.sessions import EventRecord, RunRecord, SessionDump, Snapshot
from sennit.stores.sqlite.store import SQLiteStore
from sennit.stores.transfer.backup import backup
from tests.run_fixtures import note_something
from tests.stores.transfer.test_export_import import ask, fill

if TYPE_CHECKING:
    from tests.postgres_server import Server

pytest_plugins = ("tests.postgres",)

WHO = [("default", "ada"), ("default", "bob"), ("acme", "ada")]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store of each kind."""
    made: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "original.db"),
        "postgres": lambda: PostgresStore(request.getfixturevalue("emptied")),
    }
    opened = made[request.param]()
    yield opened
    opened.close()


def filled(store: Store) -> list[Client]:
    clients = [Client(store, tenant=tenant, user=user) for tenant, user in WHO]
    for client in clients:
        fill(client, "chat")
        granted = client.session("granted", resources={"gpt4"}, capabilities={"Answer"})
        granted.add_message(ask(f"a rope of {client.user}"), granted.default_branch)
        granted.default_branch.grant(resources={"claude"})
    clients[0].session("empty")
    clients[0].session("chat").add_message("user", "changed last")
    for client in clients:
        note_something(client.session("chat"))
    return clients


def kept(store: Store, client: Client) -> list[Snapshot]:
    """All that a store keeps for one owner, told the same way by every store."""
    owner = client._owner
    listed = store.list_sessions(owner, contains=None, before=None, limit=1000)
    return [_in_order(store.load(owner, one.id)) for one in listed]


def noted(store: Store, client: Client) -> list[tuple[list[RunRecord], list[EventRecord]]]:
    """What runs have noted on all branches of a session."""
    session = client.session("chat")
    where = [(client._owner, session.id, branch.id) for branch in session.branches]
    return [(store.runs(*one), store.events(*one, 0, 1000)) for one in where]


def _in_order(found: Snapshot) -> Snapshot:
    return replace(
        found,
        messages=sorted(found.messages, key=lambda one: one.id),
        segments=sorted(found.segments, key=lambda one: one.id),
    )


def test_a_backup_holds_all_that_the_store_held(store: Store, tmp_path: Path) -> None:
    clients = filled(store)
    (tmp_path / "copies").mkdir()
    clients[0].backup(tmp_path / "copies" / "b.db")
    assert [one.name for one in (tmp_path / "copies").iterdir()] == ["b.db"]
    copy = SQLiteStore(tmp_path / "copies" / "b.db")
    for client in clients:
        assert kept(copy, client) == kept(store, client)
        assert noted(copy, client) == noted(store, client)
        assert [len(events) for _, events in noted(copy, client)][:1] == [4]
    copy.close()


def test_a_backup_is_opened_searched_and_written_like_any_file(
    store: Store, tmp_path: Path
) -> None:
    clients = filled(store)
    clients[0].backup(tmp_path / "b.db")
    for client in clients:
        with sennit.open(tmp_path / "b.db", tenant=client.tenant, user=client.user) as copy:
            assert copy.doctor() == []
            session = copy.session("granted")
            assert session.default_branch.resources == {"gpt4", "claude"}
            assert session.default_branch.capabilities == {"Answer"}
            found = [hit.snippet for hit in copy.search_messages("rope", session="granted")]
            assert found == [f"a rope of {client.user}"]
            session.add_message("user", "later")
            session.default_branch.pop()
            session.fork("main", name="fork")
    assert len(clients[0].session("granted").branches) == 1


def test_an_empty_store_gives_an_empty_file(store: Store, tmp_path: Path) -> None:
    Client(store).backup(tmp_path / "b.db")
    with sennit.open(tmp_path / "b.db") as copy:
        assert copy.sessions() == []
        assert copy.doctor() == []


def test_a_backup_while_others_write_is_of_one_moment(store: Store, tmp_path: Path) -> None:
    enough, stop, failed = threading.Event(), threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            client = Client(store)
            first, second = client.session("first"), client.session("second")
            number = 0
            while not stop.is_set():
                for session in (first, second):
                    session.add_message(ask(f"{number}"))
                    session.add_message("user", f"{number}")
                number += 1
                if number == 20:
                    enough.set()
        except BaseException as error:
            failed.append(error)
            enough.set()

    thread = threading.Thread(target=write)
    thread.start()
    enough.wait()
    for number in range(3):
        Client(store).backup(tmp_path / f"{number}.db")
    stop.set()
    thread.join()
    assert failed == []
    for number in range(3):
        with sennit.open(tmp_path / f"{number}.db") as copy:
            first, second = (len(copy.session(key).messages) for key in ("first", "second"))
            assert 40 <= second <= first <= second + 2
            assert copy.doctor() == []


def test_a_backup_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    filled(store)
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(ExistsError, match="already exists"):
        Client(store).backup(tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"


def test_a_backup_that_fails_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr("sennit.atomic_file._fsync_tree", lambda path: 1 / 0)
    (tmp_path / "copies").mkdir()
    with pytest.raises(ZeroDivisionError):
        Client(store).backup(tmp_path / "copies" / "b.db")
    assert list((tmp_path / "copies").iterdir()) == []
    monkeypatch.undo()
    Client(store).backup(tmp_path / "copies" / "b.db")


def test_a_closed_store_makes_no_backup(store: Store, tmp_path: Path) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        Client(store).backup(tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def test_a_store_of_another_kind_is_told_to_export(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="export"):
        backup(cast("Store", object()), tmp_path / "b.db")


def test_a_lost_connection_begins_the_file_again(
    emptied: str, server: Server, shared_database: str, tmp_path: Path
) -> None:
    store = PostgresStore(emptied)
    client = filled(store)[0]
    tries = list[int]()

    def cut_off(sessions: Iterable[SessionDump], _: object, __: object) -> int:
        tries.append(0)
        for _ in sessions:
            tries[-1] += 1
            if len(tries) == 1:
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE datname = '{shared_database}' AND application_name = 'sennit'"
                )
        return tries[-1]

    assert store.with_everything(cut_off) == 7
    assert len(tries) == 2
    client.backup(tmp_path / "b.db")
    store.close()


def test_a_damaged_database_is_told_of_and_not_copied(
    emptied: str, server: Server, shared_database: str, tmp_path: Path
) -> None:
    store = PostgresStore(emptied)
    client = filled(store)[0]
    server.execute("DELETE FROM sennit.messages WHERE no % 3 = 0", shared_database)
    with pytest.raises(StoreError, match="doctor"):
        client.backup(tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == []
    client.doctor(repair=True)
    client.backup(tmp_path / "b.db")
    store.close()


def test_a_message_of_any_size_is_in_the_backup(store: Store, tmp_path: Path) -> None:
    client = Client(store)
    long: Message = ask("rope " * 200_000)
    client.session("chat").add_message(long)
    client.backup(tmp_path / "b.db")
    with sennit.open(tmp_path / "b.db") as copy:
        assert copy.session("chat").messages[0].to_json() == long.to_json()


def test_a_backup_has_the_blobs_and_what_messages_name(store: Store, tmp_path: Path) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4_000
    for tenant, user in WHO:
        session = Client(store, tenant=tenant, user=user).session("chat")
        content = InstructionContent.create("look", images=[ImagePart(picture).url])
        session.add_message(Message(content), branches=session.default_branch)
    backup(store, tmp_path / "backup.db")
    for tenant, user in WHO:
        with sennit.open(tmp_path / "backup.db", tenant=tenant, user=user) as copy:
            copy._store.collect_blobs(2**62)
            session = copy.session("chat")
            [url] = session.default_branch.messages[0].content.attachment_urls
            assert session.read_blob(url) == picture
            assert copy.doctor() == []

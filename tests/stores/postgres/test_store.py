"""The PostgreSQL store, on a real server: its promises, what it refuses, what it survives."""

from __future__ import annotations

import asyncio
import re
import string
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import sennit
from sennit import (
    ConflictError,
    ExistsError,
    NotFoundError,
    SennitError,
    Session,
    StoreError,
    ValidationError,
)
from sennit.api.client import Client
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.connection import Database, PreparedConnection
from sennit.stores.postgres.fast_path import appending as as_appending
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.records.sessions import (
    MAX_OWNER_NAME_BYTES,
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    BranchRecord,
    Change,
    EventRecord,
    LabelRecord,
    LeaseGrant,
    MessageRecord,
    Owner,
    PutLabels,
    PutRun,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    TakeLease,
    Write,
)
from sennit.stores.schema_version import SCHEMA_VERSION
from sennit.testing import conformance
from tests.sessions.test_session import assistant, said, system, user

if TYPE_CHECKING:
    from tests.postgres_server import OwnServer, Server

pytest_plugins = ("tests.postgres",)

ADA = Owner("acme", "user", "ada")
SECRET = "hunter2-is-no-secret"

_T = TypeVar("_T")


@pytest.fixture
def opened(emptied: str) -> Generator[Callable[[], PostgresStore]]:
    """Opens the same empty database each time it is called."""
    stores: list[PostgresStore] = []

    def again() -> PostgresStore:
        stores.append(PostgresStore(emptied))
        return stores[-1]

    yield again
    for store in stores:
        store.close()


@pytest.fixture
def client(opened: Callable[[], PostgresStore]) -> Callable[..., Client]:
    """Makes clients with stores of their own on one database."""
    return lambda **who: Client(opened(), **who)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_promises_of_a_store(
    check: conformance.ConformanceCheck, opened: Callable[[], PostgresStore]
) -> None:
    check(opened())


@pytest.mark.parametrize("check", conformance.DURABLE_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_promises_of_a_durable_store(
    check: conformance.DurableCheck, opened: Callable[[], PostgresStore]
) -> None:
    check(opened)


class Forgetful(Database):
    """Loses the connection after everything it does, before it is told that it was done."""

    def run(self, work: Callable[[PreparedConnection], _T]) -> _T:
        tries = 0

        def lost(connection: PreparedConnection) -> _T:
            nonlocal tries
            tries += 1
            done = work(connection)
            if tries == 1:
                connection.close()
                raise psycopg.OperationalError("the connection is gone")
            return done

        return super().run(lost)


@pytest.mark.parametrize(
    "check",
    [
        check
        for check in conformance.CHECKS
        if check.__module__.rpartition(".")[2] in ("histories", "branches")
    ],
    ids=lambda check: check.__name__,
)
def test_a_lost_acknowledgement_changes_nothing(
    check: conformance.ConformanceCheck, emptied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.stores.postgres.store.Database", Forgetful)
    with PostgresStore(emptied) as store:
        check(store)
    with pytest.raises(StoreError, match="closed"):
        store.find_session(ADA, new_id())


def message(text: str) -> MessageRecord:
    return MessageRecord(
        new_id(), 1, dumps({"type": "instruction", "content": {"instruction": text}})
    )


def started(store: PostgresStore) -> tuple[SessionRecord, BranchRecord]:
    """A session with one empty branch."""
    session = store.create_session(ADA, SessionRecord(new_id(), "chat", "ada", 1, 1, {}))
    segment = SegmentRecord(new_id(), None, 0, ())
    branch = BranchRecord(new_id(), "main", 1, None, segment.id, 0, frozenset(), frozenset(), {})
    store.write(ADA, session.id, [AddBranch(branch, segment)])
    return session, branch


def taken(outcome: list[BranchHead] | SennitError) -> LeaseGrant:
    """What taking a lease gave."""
    assert not isinstance(outcome, SennitError), outcome
    assert outcome[0].taken is not None
    return outcome[0].taken


def event(seq: int, run: UUID) -> EventRecord:
    return EventRecord(seq, run, None, f"event {seq}".encode())


def appending(branch: BranchRecord, *messages: MessageRecord) -> list[Change]:
    return [AddMessages(messages), Append(branch.id, tuple(one.id for one in messages))]


def same(a: Session, b: Session) -> None:
    """Both sessions hold the same messages and branches."""
    assert sorted(m.to_json() for m in a.messages) == sorted(m.to_json() for m in b.messages)
    assert {one.name: list(one) for one in a.branches} == {
        one.name: list(one) for one in b.branches
    }


def run_all(works: list[Callable[[], None]]) -> None:
    """Run these at once, and fail with the first error."""
    start, failed = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_a_session_comes_back_as_it_was(client: Callable[..., Client]) -> None:
    session = client().session("chat", resources={"gpt4"}, metadata={"n": 1})
    session.add_message("user", "Hello")
    fork = session.fork(session.default_branch, name="fork", system=system("S"), resources=True)
    session.add_message(assistant("both"), branches=[session.default_branch, fork])
    fork.edit(1, "Hello there")
    again = client().session("chat")
    same(session, again)
    assert again.key == "chat"
    assert again.metadata == {"n": 1}
    assert again.get_branch("fork").resources == {"gpt4"}


def test_two_clients_on_one_branch_lose_nothing(client: Callable[..., Client]) -> None:
    one, two = (client().session("chat") for _ in range(2))
    for number in range(20):
        one.add_message("user", f"one {number}")
        two.add_message("user", f"two {number}")
    one.refresh()
    two.refresh()
    same(one, two)
    for name in ("one", "two"):
        mine = [text for text in said(one.default_branch) if text.startswith(name)]
        assert mine == [f"{name} {n}" for n in range(20)]


def test_four_threads_appending_at_once_lose_and_reorder_nothing(
    client: Callable[..., Client],
) -> None:
    def work(name: int) -> Callable[[], None]:
        session = client().session("chat")

        def write() -> None:
            for number in range(50):
                session.add_message("user", f"{name} {number}")

        return write

    run_all([work(name) for name in range(4)])
    texts = said(client().session("chat").default_branch)
    assert len(texts) == 200
    for name in range(4):
        mine = [text for text in texts if text.startswith(f"{name} ")]
        assert mine == [f"{name} {n}" for n in range(50)]


def test_groups_that_write_to_many_sessions_at_once_all_land(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    places = [started(store) for _ in range(6)]

    def work(number: int) -> Callable[[], None]:
        mine = opened()
        # Each begins with another session: without an order of locks they would wait in a ring.
        ordered = places[number:] + places[:number]

        def write() -> None:
            for _ in range(10):
                writes = [
                    Write(ADA, session.id, tuple(appending(branch, message("x"))))
                    for session, branch in ordered
                ]
                assert not any(isinstance(one, Exception) for one in mine.write_many(writes))

        return write

    run_all([work(number) for number in range(4)])
    for session, _ in places:
        assert store.load(ADA, session.id).branches[0].length == 40


def test_a_write_that_fails_in_a_group_leaves_the_others_alone(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    session, branch = started(store)
    good, bad = message("good"), message("bad")
    writes = [
        Write(ADA, session.id, tuple(appending(branch, good))),
        Write(ADA, new_id(), tuple(appending(branch, bad))),
        Write(ADA, session.id, tuple(appending(branch, good))),
        Write(ADA, session.id, (Append(branch.id, (bad.id,)),)),
    ]
    first, missing, again, unknown = store.write_many(writes)
    assert isinstance(missing, NotFoundError)
    assert isinstance(unknown, NotFoundError)
    assert first == again
    assert [one.id for one in store.load(ADA, session.id).messages] == [good.id]


def test_a_branch_that_is_held_refuses_one_write_of_a_group(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    session, branch = started(store)
    said, run, segment = message("said"), new_id(), SegmentRecord(new_id(), None, 0, ())
    other = BranchRecord(new_id(), "two", 1, None, segment.id, 0, frozenset(), frozenset(), {})
    mine = Write(ADA, session.id, (TakeLease(branch.id, "me", 60_000_000),))
    token = taken(store.write_many([mine])[0]).lease.token
    steps: list[tuple[Change, ...]] = [
        (PutRun(RunRecord(run, branch.id, "running", 1, 1, b"{}"), token),),
        (TakeLease(branch.id, "you", 60_000_000),),
        (AddBranch(other, segment),),
        (*appending(branch, said), AddEvents(branch.id, (event(1, run),), token)),
        (AddEvents(branch.id, (event(2, run),), token - 1),),
        (PutRun(RunRecord(run, branch.id, "ended", 1, 2, b"{}"), token, release=True),),
        (TakeLease(branch.id, "you", 60_000_000),),
    ]
    found = store.write_many([Write(ADA, session.id, changes) for changes in steps])
    refused = [at for at, one in enumerate(found) if isinstance(one, ConflictError)]
    assert refused == [1, 4]
    last = taken(found[-1])
    assert (last.seq, last.run and last.run.state) == (1, "ended")
    assert [one.name for one in store.load(ADA, session.id).branches] == ["main", "two"]
    assert store.events(ADA, session.id, branch.id, 0, 9) == [event(1, run)]


def test_a_damaged_session_is_told_of_by_name(
    opened: Callable[[], PostgresStore], emptied: str
) -> None:
    store = opened()
    session, branch = started(store)
    store.write(ADA, session.id, appending(branch, message("one")))
    with psycopg.connect(emptied) as connection:
        connection.execute("DELETE FROM sennit.messages")
    with pytest.raises(StoreError, match="damaged"):
        store.load(ADA, session.id)


def test_what_the_server_has_forgotten_is_prepared_again(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    session, branch = started(store)

    def write() -> None:
        writes = [Write(ADA, session.id, tuple(appending(branch, message("x")))) for _ in "ab"]
        assert not any(isinstance(one, Exception) for one in store.write_many(writes))

    write()
    store.write(ADA, session.id, appending(branch, message("y")))
    mine = Write(ADA, session.id, (TakeLease(branch.id, "me", 60_000_000),))
    store.write_many([mine])
    store._database.run(lambda connection: connection.execute("DEALLOCATE ALL"))
    store.write(ADA, session.id, appending(branch, message("z")))  # only this one is known again
    assert taken(store.write_many([mine])[0]).lease.token == 2
    write()
    assert store.load(ADA, session.id).branches[0].length == 6


def test_after_a_group_that_was_refused_the_next_one_is_written(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    session, branch = started(store)
    said, run = message("said"), new_id()

    def steps(token: int, seq: int) -> list[Write]:
        note = AddEvents(branch.id, (event(seq, run),), token)
        put = PutRun(RunRecord(run, branch.id, "running", 1, seq, b"{}"), token)
        wholes = ((*appending(branch, said), put, note), tuple(appending(branch, message("x"))))
        return [Write(ADA, session.id, changes) for changes in wholes]

    mine = Write(ADA, session.id, (TakeLease(branch.id, "me", 60_000_000),))
    token = taken(store.write_many([mine])[0]).lease.token
    for seq in (1, 2, 3):  # the message is there from the second time on, which breaks a key
        assert not any(isinstance(one, Exception) for one in store.write_many(steps(token, seq)))
    assert [one.seq for one in store.events(ADA, session.id, branch.id, 0, 9)] == [1, 2, 3]
    assert store.load(ADA, session.id).branches[0].length == 4


def test_a_rewrite_of_what_someone_else_changed_is_refused(client: Callable[..., Client]) -> None:
    one, two = (client().session("chat") for _ in range(2))
    one.add_message("user", "first")
    two.refresh()
    two.add_message("user", "second")
    with pytest.raises(ConflictError, match="refresh"):
        one.default_branch.pop()
    assert said(one.default_branch) == ["first", "second"]
    with pytest.raises(ExistsError):
        two.create_branch("main")


def test_erasing_reaches_other_clients(client: Callable[..., Client]) -> None:
    one, two = (client().session("chat") for _ in range(2))
    first = one.add_message("user", "secret").messages[0]
    one.add_message("user", "kept")
    one.add_message(assistant("more"), branches=one.fork("main", name="fork"))
    two.refresh()
    one.remove_message(first)
    two.add_message("user", "later")
    assert said(two.default_branch) == ["kept", "later"]
    assert said(two.get_branch("fork")) == ["kept", "more"]
    same(client().session("chat"), two)


def test_an_owner_reaches_nothing_of_another(client: Callable[..., Client]) -> None:
    ada, bob = client(user="ada"), client(user="bob")
    session = ada.session("chat")
    session.add_message("user", "my secret word is bowline")
    assert bob.sessions() == []
    assert bob.search_messages("bowline") == []
    assert bob.delete_session(session.id) is False
    assert len(bob.session(session.id).messages) == 0
    assert [hit.session for hit in ada.search_messages("bowline")] == [session.id]


def test_every_statement_on_a_table_names_the_owner() -> None:
    statements = {
        name: text
        for name, value in vars(sql).items()
        for text in (value if isinstance(value, tuple) else (value,))
        if isinstance(text, str) and "sennit." in text and name[0] != "_"
    }
    assert len(statements) > 30
    free = {name for name, text in statements.items() if "owner" not in text}
    assert free == {"VERSION", "SET_VERSION", "ADD_RECEIPT", "DROP_RECEIPTS"}


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Running the benchmarks", "run benchmark"),
        ("see src/config.py, version 3.11", "config"),
        ("see src/config.py, version 3.11", "3.11"),
        ("node_modules is large", "node_modules"),
        ("write to ada@example.com", "example"),
        ("https://example.com/a/path?x=1", "path"),
        ("the well-known trick", "known"),
        ("un café à Łódź", "CAFE"),
        ("what is it", "what is it"),
        ("temperature -40", "40"),
    ],
)
def test_words_are_found_in_whatever_they_are_wrapped(
    client: Callable[..., Client], text: str, question: str
) -> None:
    mine = client()
    mine.session("chat").add_message("user", text)
    mine.session("other").add_message("user", "nothing like that")
    assert [hit.snippet for hit in mine.search_messages(question)] == [text]


@pytest.mark.parametrize("question", ["?!", "' | ' & !", "a:*B <-> ' \\", "\ud800", "\0", "²"])
def test_signs_in_a_question_are_no_operators(
    opened: Callable[[], PostgresStore], question: str
) -> None:
    store = opened()
    session, branch = started(store)
    store.write(ADA, session.id, appending(branch, message("nothing")))
    assert store.search(ADA, question, session=None, limit=5) == []


def test_a_text_too_long_for_one_tsvector_is_found_by_all_its_words(
    opened: Callable[[], PostgresStore], server: Server, shared_database: str
) -> None:
    store = opened()
    session, branch = started(store)
    long = message(" ".join(f"{number:x}zebra" for number in range(200_000)))
    store.write(ADA, session.id, appending(branch, long, message("short")))
    for word in ("0zebra", f"{199_999:x}zebra", f"{100_000:x}zebra"):
        assert [hit.message for hit in store.search(ADA, word, session=None, limit=9)] == [long.id]
    assert store.delete_session(ADA, session.id)
    assert rows(server, shared_database) == {"owners": 1}


def rows(server: Server, database: str) -> dict[str, int]:
    """How many rows each table holds that holds any."""
    tables = server.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname <> 'schema'"
        " AND relnamespace = 'sennit'::regnamespace",
        database,
    )
    counts = {
        name: server.execute(f"SELECT count(*) FROM sennit.{name}", database)[0][0]
        for (name,) in tables
    }
    counts.pop("receipts", None)  # which are thrown away by and by
    return {name: count for name, count in counts.items() if count}


def texts_found(store: PostgresStore, word: str, owner: Owner = ADA) -> list[str]:
    return sorted(hit.snippet for hit in store.search(owner, word, session=None, limit=1000))


def test_a_message_numbered_before_others_but_committed_after_them_is_found(
    opened: Callable[[], PostgresStore], emptied: str
) -> None:
    store = opened()
    (slow, late), (quick, early) = started(store), started(store)
    written = as_appending(
        Write(ADA, slow.id, tuple(appending(late, message("rope late")))),
        store._database.run(lambda connection: store._owner(connection, ADA)),
    )
    assert written is not None
    with psycopg.connect(emptied) as connection:
        psycopg.RawCursor(connection).execute(sql.APPEND, written)
        store.write(ADA, quick.id, appending(early, message("rope early")))
        assert texts_found(store, "rope") == ["rope early"]
    assert texts_found(store, "rope") == ["rope early", "rope late"]


def test_searching_while_others_write_misses_and_doubles_nothing(
    opened: Callable[[], PostgresStore], server: Server, shared_database: str
) -> None:
    store, count = opened(), 40
    places = [started(store) for _ in range(3)]

    def writing(number: int) -> Callable[[], None]:
        mine, (session, branch) = opened(), places[number]

        def write() -> None:
            for at in range(count):
                text = f"rope {number} {at}"
                mine.write(ADA, session.id, appending(branch, message(text)))
                assert text in texts_found(mine, "rope")

        return write

    def searching() -> None:
        seen: set[str] = set()
        while len(seen) < 3 * count:
            found = texts_found(store, "rope")
            assert seen <= set(found)
            assert len(found) == len(set(found))
            seen = set(found)

    run_all([writing(0), writing(1), writing(2), searching, searching])
    assert rows(server, shared_database)["words"] == 3 * count


def test_a_long_tail_of_many_sessions_is_indexed_in_batches(
    opened: Callable[[], PostgresStore],
    server: Server,
    shared_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sennit.stores.postgres.search._BATCH", 7)
    monkeypatch.setattr("sennit.stores.postgres.search._BATCH_SESSIONS", 3)
    store = opened()
    places = [started(store) for _ in range(8)]
    for number, (session, branch) in enumerate(places):
        many = [message(f"rope {number} {at}") for at in range(5 * number)]
        if many:
            store.write(ADA, session.id, appending(branch, *many))
    asked = places[3][0].id
    assert len(store.search(ADA, "rope", session=asked, limit=99)) == 15
    assert rows(server, shared_database)["words"] == 15
    assert len(texts_found(store, "rope")) == 140
    assert rows(server, shared_database)["words"] == 140
    left = server.execute("SELECT count(*) FROM sennit.sessions WHERE unindexed", shared_database)
    assert left == [(0,)]


def test_what_is_erased_before_or_after_it_was_indexed_is_not_found(
    client: Callable[..., Client], server: Server, shared_database: str
) -> None:
    mine = client()
    session = mine.session("chat")
    indexed = session.add_message("user", "rope one").messages[0]
    mine.search_messages("rope")
    waiting = session.add_message("user", "rope two").messages[0]
    session.add_message("user", "rope three")
    session.remove_message(indexed)
    session.remove_message(waiting)
    assert [hit.snippet for hit in mine.search_messages("rope")] == ["rope three"]
    assert rows(server, shared_database)["words"] == 1


def test_an_append_to_a_branch_that_is_gone_changes_nothing(
    opened: Callable[[], PostgresStore],
) -> None:
    store = opened()
    session, branch = started(store)
    before = store.load(ADA, session.id)
    gone = replace(branch, id=new_id())
    with pytest.raises(NotFoundError, match="no branch"):
        store.write(ADA, session.id, appending(gone, message("x")))
    assert store.load(ADA, session.id) == before


def test_a_deleted_session_leaves_no_rows(
    client: Callable[..., Client], server: Server, shared_database: str
) -> None:
    mine = client()
    session = mine.session("chat")
    for number in range(5):
        session.add_message("user", f"{number}")
    for _ in range(3):
        session.fork("main").pop()
    assert mine.delete_session("chat") is True
    assert mine.delete_session("chat") is False
    assert mine.search_messages("1") == []
    with pytest.raises(NotFoundError, match="deleted"):
        session.add_message("user", "more")
    assert rows(server, shared_database) == {"owners": 1}


def test_removed_history_leaves_no_rows(
    client: Callable[..., Client], server: Server, shared_database: str
) -> None:
    session = client().session("chat")
    for number in range(5):
        session.add_message("user", f"{number}")
    for _ in range(3):
        session.fork("main").pop()
    session.default_branch.reverse()
    for branch in list(session.branches):
        session.remove_branch(branch)
    session.messages.clear()
    assert rows(server, shared_database) == {"owners": 1, "sessions": 1}


@pytest.mark.parametrize("name", ["'; DROP TABLE messages; --", '"', "a%_b%s", "é\u202e🦜"])
def test_sql_in_names_is_only_text(client: Callable[..., Client], name: str) -> None:
    mine = client(user=name)
    session = mine.session(name, metadata={name: name})
    session.create_branch(name, resources={name})
    session.add_message("user", f"find {name}", branches=name)
    mine.search_messages(name)
    assert mine.sessions(contains=name)[0].key == name
    again = client(user=name).session(name)
    assert again.get_branch(name).resources == {name}
    assert again.metadata == {name: name}


def test_killed_connections_are_replaced_between_writes(
    store: PostgresStore, server: Server, database: str
) -> None:
    session = Client(store).session("chat")
    for number in range(10):
        session.add_message("user", f"{number}")
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{database}' AND application_name = 'sennit'"
        )
        session.refresh()
    assert said(Client(store).session("chat").default_branch) == [f"{n}" for n in range(10)]


def test_a_server_that_stays_away_is_a_clear_error_and_the_store_goes_on(
    own_server: OwnServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.stores.postgres.connection._POOL_TIMEOUT_S", 0.3)
    store = PostgresStore(url)
    session = Client(store).session("chat")
    own_server.stop("fast")
    with pytest.raises(StoreError, match="cannot be reached"):
        session.add_message("user", "lost")
    own_server.start()
    monkeypatch.setattr(store._database._pool, "timeout", 20)
    session.add_message("user", "after")
    assert said(Client(store).session("chat").default_branch) == ["after"]
    store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://ada:{SECRET}@[bad", "URL is invalid"),
        (f"mysql://ada:{SECRET}@localhost/db", "URL is invalid"),
        (f"not an address {SECRET}", "URL is invalid"),
        ("", "cannot be reached|refuses|has no such"),
        (f"postgresql://ada:{SECRET}@127.0.0.1:1/db", "cannot be reached"),
        (f"postgresql://ada@127.0.0.1:1/db?password={SECRET}", "cannot be reached"),
        (f"postgresql://ada:{SECRET}@127.0.0.1:port/db", "URL is invalid"),
        (f"postgresql://ada:{SECRET}@no-such-host.invalid/db", "cannot be reached"),
        (f"host=/nowhere user=ada password={SECRET} dbname=db", "cannot be reached"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_without_its_password(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "/nowhere")
    with pytest.raises(StoreError, match=says) as raised:
        PostgresStore(url)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.fixture
def role(own_server: OwnServer) -> Generator[str]:
    """A user who must give a password."""
    name, rules = f"role_{new_id().hex}", own_server.folder / "pg_hba.conf"
    before = rules.read_text()
    own_server.execute(f"CREATE ROLE {{}} LOGIN PASSWORD '{SECRET}'", name=name)
    rules.write_text(f"local all {name} scram-sha-256\n{before}")
    own_server.reload()
    yield name
    rules.write_text(before)
    own_server.reload()
    own_server.execute("DROP ROLE {}", name=name)


def test_a_wrong_password_is_refused_without_being_shown(url: str, role: str) -> None:
    wrong = f"{SECRET}-not"
    with pytest.raises(StoreError, match="refuses this user") as raised:
        PostgresStore(make_conninfo(url, user=role, password=wrong))
    shown = "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown
    assert role in shown


def test_a_user_without_rights_is_told_so_and_a_password_is_never_in_a_repr(
    url: str, role: str
) -> None:
    address = make_conninfo(url, user=role, password=SECRET)
    with pytest.raises(StoreError, match="grant"):
        PostgresStore(address)
    PostgresStore(url).close()
    with psycopg.connect(url) as connection:
        for what in ("USAGE ON SCHEMA sennit", "SELECT ON ALL TABLES IN SCHEMA sennit"):
            connection.execute(f"GRANT {what} TO {role}")  # pyright: ignore
    reader = PostgresStore(address)
    assert SECRET not in repr(reader) + repr(vars(reader))
    with pytest.raises(StoreError, match="grant") as raised:
        reader.create_session(ADA, SessionRecord(new_id(), None, "ada", 1, 1, {}))
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    reader.close()
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP OWNED BY {role}")  # pyright: ignore


def test_an_unknown_database_is_refused(server: Server) -> None:
    with pytest.raises(StoreError, match="no such database"):
        PostgresStore(server.address("sennit_nowhere"))


def test_many_servers_may_start_at_once_on_a_new_database(url: str) -> None:
    stores: list[PostgresStore] = []
    run_all([lambda: stores.append(PostgresStore(url)) for _ in range(6)])
    for number, store in enumerate(stores):
        Client(store).session(f"chat {number}").add_message("user", "x")
    assert len(Client(stores[0]).sessions()) == 6
    for store in stores:
        store.close()


def test_opening_again_keeps_what_is_there(url: str) -> None:
    for number in range(3):
        store = PostgresStore(url)
        session = Client(store).session("chat")
        assert len(session.messages) == number
        session.add_message("user", "x")
        store.close()


@pytest.mark.parametrize("version", [0, 1, 10, SCHEMA_VERSION + 1])
def test_a_database_of_another_version_is_refused_and_left_alone(
    url: str, server: Server, database: str, version: int
) -> None:
    PostgresStore(url).close()
    server.execute(f"UPDATE sennit.schema SET version = {version}", database)
    with pytest.raises(StoreError, match=rf"{version}, this .* {SCHEMA_VERSION};.*[Ee]xport it"):
        PostgresStore(url)
    assert server.execute("SELECT version FROM sennit.schema", database) == [(version,)]


def test_tables_that_cannot_all_be_created_leave_none(
    url: str, server: Server, database: str
) -> None:
    server.execute("CREATE SCHEMA sennit", database)
    server.execute(
        "CREATE FUNCTION sennit.queue_commit() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NULL; END'",
        database,
    )
    with pytest.raises(StoreError, match="queue_commit"):
        PostgresStore(url)
    asked = "SELECT count(*) FROM pg_class WHERE relnamespace = 'sennit'::regnamespace"
    assert server.execute(asked, database) == [(0,)]


def test_a_schema_of_another_program_is_refused_and_left_alone(
    url: str, server: Server, database: str
) -> None:
    server.execute("CREATE SCHEMA sennit CREATE TABLE theirs (a integer)", database)
    with pytest.raises(StoreError, match=r"another program.*choose another database"):
        PostgresStore(url)
    assert rows(server, database) == {}


def test_the_longest_names_of_owners_are_kept(emptied: str) -> None:
    rare = Random(1)  # what repeats itself would be compressed before it is indexed
    tenant, user, agent = (
        "".join(rare.choices(string.printable, k=MAX_OWNER_NAME_BYTES)) for _ in range(3)
    )
    with sennit.open(emptied, tenant=tenant, user=user, agent=agent) as client:
        client.session("chat").add_message("user", "hi")
        client.fs.write("viking://agent/skills/knots.md", "Tie them.")
        client.fs.write("viking://resources/rope.md", "Hemp.")
    with sennit.open(emptied, tenant=tenant, user=user, agent=agent) as client:
        assert len(client.session("chat").messages) == 1
        assert client.fs.read("viking://agent/skills/knots.md") == "Tie them."


def test_a_name_that_is_too_long_for_an_index_is_not_taken_for_a_lost_server(emptied: str) -> None:
    long = "".join(Random(1).choices(string.ascii_letters, k=5000))
    with sennit.open(emptied) as client:
        session = client.session("chat")
        session.add_message("user", "hi")
        label = LabelRecord(session.default_branch[0], long, 0.5, session.created_us)
        with pytest.raises(ValidationError, match="cannot store this value"):
            client._store.write(client._owner, session.id, [PutLabels((label,))])
        assert session.labels() == []


def test_what_the_pool_notes_is_not_written_to_stderr() -> None:
    said = "logging.getLogger('psycopg.pool').warning('discarding a connection')"
    code = f"import logging, sennit.stores.postgres.store; {said}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ran.stderr == b""


def test_a_database_that_is_not_unicode_is_refused(server: Server) -> None:
    server.execute("CREATE DATABASE sennit_latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    try:
        with pytest.raises(StoreError, match="UTF8"):
            PostgresStore(server.address("sennit_latin"))
    finally:
        server.drop("sennit_latin")


def test_a_pool_needs_a_size() -> None:
    with pytest.raises(ValidationError, match="pool_size"):
        PostgresStore("postgresql://localhost/db", pool_size=0)


def test_a_small_pool_serves_many_threads(url: str) -> None:
    store = PostgresStore(url, pool_size=2)
    session, branch = started(store)

    def work() -> None:
        for _ in range(10):
            store.write(ADA, session.id, appending(branch, message("x")))

    run_all([work] * 8)
    assert store.load(ADA, session.id).branches[0].length == 80
    store.close()


def test_without_the_driver_the_error_names_the_extra() -> None:
    script = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "import sennit.stores.postgres.session_writer\n"
        "try:\n"
        "    import sennit.stores.postgres.store\n"
        "except ImportError as error:\n"
        "    assert \"pip install 'sennit[postgres]'\" in str(error), error\n"
        "else:\n"
        "    raise SystemExit('it was imported')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_removing_one_by_one_from_the_middle_is_not_quadratic(
    client: Callable[..., Client], server: Server, shared_database: str
) -> None:
    def written(size: int) -> int:
        """The bytes of journal that it takes for half of a branch."""
        session = client().session(f"chat {size}")
        main = session.default_branch
        session.add_messages([user(str(number)) for number in range(size)], branches=main)
        fork, expected = session.fork(main), list(main)
        ((before,),) = server.execute("SELECT pg_current_wal_insert_lsn()", shared_database)
        for _ in range(size // 2):
            assert main.pop(len(main) // 2) == expected.pop(len(expected) // 2)
        found = client().session(f"chat {size}")
        assert list(found.default_branch) == expected
        assert len(found.get_branch(fork.id)) == size
        ((grown,),) = server.execute(
            f"SELECT pg_current_wal_insert_lsn() - '{before}'::pg_lsn", shared_database
        )
        return int(grown)

    few, many = written(100), written(400)
    assert many < 8 * few  # four times as much to do; sixteen times would be quadratic


def filled_with_sessions(store: PostgresStore, count: int) -> list[SessionRecord]:
    """Sessions changed one in ten minutes, the last one first."""
    minute = 60_000_000
    made = [
        SessionRecord(new_id(), f"chat {number}", "user", 0, number * 10 * minute, {})
        for number in range(count)
    ]
    for record in made:
        store.create_session(ADA, record)
    return made[::-1]


def test_pages_of_sessions_are_read_from_an_index_and_not_sorted_out_of_all(
    opened: Callable[[], PostgresStore], server: Server, shared_database: str
) -> None:
    store = opened()
    made = filled_with_sessions(store, 400)
    server.execute("ANALYZE sennit.sessions", shared_database)
    numbers: dict[str, int] = {}
    # The plan that all connections use, made without looking at values.
    asked = re.sub(
        r"%\((\w+)\)s",
        lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}",
        sql.LIST_SESSIONS,
    )
    plan = "\n".join(
        line for (line,) in server.execute(f"EXPLAIN (GENERIC_PLAN) {asked}", shared_database)
    )
    assert "Incremental Sort" in plan
    assert "Index Scan Backward using sessions_by_hour" in plan
    found: list[SessionRecord] = []
    while page := store.list_sessions(
        ADA, contains=None, before=(found[-1].updated, found[-1].id) if found else None, limit=30
    ):
        found += page
    assert [one.id for one in found] == [one.id for one in made]


def test_an_append_changes_no_index_of_sessions(
    opened: Callable[[], PostgresStore], emptied: str
) -> None:
    store = opened()
    session, branch = started(store)
    store.write(ADA, session.id, appending(branch, message("the first of this hour")))
    owner = store._database.run(lambda connection: store._owner(connection, ADA))
    with psycopg.connect(emptied) as connection:
        for number in range(10):
            write = Write(ADA, session.id, tuple(appending(branch, message(f"{number}"))))
            psycopg.RawCursor(connection).execute(sql.APPEND, as_appending(write, owner))
        changed, on_its_page = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables"
            " WHERE relname = 'sessions'"
        ).fetchall()[0]
    assert changed == 10
    assert on_its_page >= 9  # the clock may strike meanwhile


def test_messages_larger_than_the_buffers_of_a_connection_are_written_in_a_group(
    emptied: str,
) -> None:
    async def say(client: Client) -> None:
        session = client.session("large")
        await session.aadd_message("user", "knot")
        texts = [f"{number} " * 1_000_000 for number in range(3)]
        await asyncio.gather(*(session.aadd_message("user", text) for text in texts))
        assert len(session.default_branch) == 4

    with sennit.open(emptied) as client:
        asyncio.run(say(client))

"""The SQLite store: what it refuses, what it survives."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

import sennit
from sennit import ConflictError, ExistsError, StoreError, ValidationError
from sennit.stores.records.sessions import TakeLease, Write
from sennit.stores.schema_version import SCHEMA_VERSION
from sennit.stores.sqlite import search, search_rows
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite import store as sqlite
from sennit.stores.sqlite.connection import preallocate_wal, wal_path_of
from sennit.stores.sqlite.store import SQLiteStore
from sennit.testing import ToolCall, faults
from sennit.testing.conformance import CHECKS, DURABLE_CHECKS, ConformanceCheck, DurableCheck
from sennit.testing.conformance.fixtures import Scenario
from tests.conversation_fixtures import Talk


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_sqlite_keeps_what_every_store_promises(check: ConformanceCheck, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "sennit.db", durability="normal")
    check(store)
    store.close()


@pytest.mark.parametrize("check", DURABLE_CHECKS, ids=lambda check: check.__name__)
def test_sqlite_keeps_it_across_openings(check: DurableCheck, tmp_path: Path) -> None:
    opened: list[SQLiteStore] = []

    def open_again() -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "sennit.db", durability="normal"))
        return opened[-1]

    check(open_again)
    for store in opened:
        store.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are my notes, not a database. " * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        sennit.open(path)
    assert path.read_bytes().startswith(b"these are my notes")


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize(
    "theirs", ["CREATE TABLE theirs (a)", "PRAGMA user_version = 3", "PRAGMA application_id = 7"]
)
def test_not_one_byte_changes_of_a_database_of_another_program(
    tmp_path: Path, mode: str, theirs: str
) -> None:
    path = tmp_path / "other.db"
    changed_by(path, f"PRAGMA journal_mode = {mode}", theirs)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        sennit.open(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("version", [0, 1, 6, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_not_one_byte_changes_of_a_file_of_another_version(
    tmp_path: Path, mode: str, version: int
) -> None:
    path = tmp_path / "other.db"
    sennit.open(path).close()
    changed_by(path, f"PRAGMA journal_mode = {mode}", f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"{version}, this .* {SCHEMA_VERSION};.*[Ee]xport it"):
        sennit.open(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("version", [6, SCHEMA_VERSION + 1])
def test_not_one_byte_changes_of_the_log_of_a_killed_program_of_another_version(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
        other.execute(f"PRAGMA user_version = {version}")
        left = {name: (tmp_path / name).read_bytes() for name in ("live.db", "live.db-wal")}
        killed = tmp_path / "killed"
        killed.mkdir()
        for name, content in left.items():
            (killed / name).write_bytes(content)
    assert len(left["live.db-wal"]) > 0
    with pytest.raises(StoreError, match=rf"{version}, this .* {SCHEMA_VERSION}"):
        sennit.open(killed / "live.db")
    assert {name: (killed / name).read_bytes() for name in left} == left


def changed_by(path: Path, *statements: str) -> None:
    """Do something to a file as another program."""
    other = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        other.execute(statement)
    other.close()


def journal_mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as other:
        return other.execute("PRAGMA journal_mode").fetchone()[0]


def test_a_file_that_was_taken_out_of_wal_returns_to_it(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    sennit.open(path).close()
    changed_by(path, "PRAGMA journal_mode = delete")
    with sennit.open(path) as client:
        client.session("chat").add_message("user", "hi")
        assert journal_mode(path) == "wal"


def test_a_file_out_of_wal_that_another_program_reads_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.stores.sqlite.connection._WAL_SWITCH_TIMEOUT_S", 0.01)
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        client.session("chat").add_message("user", "hi")
    changed_by(path, "PRAGMA journal_mode = delete")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM sessions").fetchall()
        with sennit.open(path) as client:
            other.execute("COMMIT")
            client.session("chat").add_message("user", "and now")
    assert journal_mode(path) == "delete"
    with sennit.open(path) as client:
        assert len(client.session("chat").messages) == 2
        assert journal_mode(path) == "wal"


def test_a_relative_path_stays_the_same_file_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with sennit.open("here.db") as client:
        monkeypatch.chdir("elsewhere")
        client.session("chat").add_message("user", "hi")
        assert client.doctor() == []
        assert [one.key for one in client.sessions()] == ["chat"]
        client.backup("copy.db")
    assert [one.name for one in Path().iterdir()] == ["copy.db"]
    with pytest.raises(StoreError, match=r"here\.db' is closed"):
        client.sessions()


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, "/"):
        with pytest.raises(StoreError, match="is a folder; name a file in it"):
            sennit.open(folder)


def test_what_is_no_ordinary_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")  # opened for reading, it would wait for a writer
    for path in (tmp_path / "pipe.db", "/dev/null"):
        with pytest.raises(StoreError, match="not a regular file"):
            sennit.open(path)


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to("loop.db")
    with pytest.raises(StoreError, match=r"loop\.db' could not be used .*symbolic links"):
        sennit.open(tmp_path / "loop.db")


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        sennit.open(tmp_path / "file" / "sennit.db")


def test_a_closed_store_refuses_everything_and_closes_twice(tmp_path: Path) -> None:
    client = sennit.open(tmp_path / "sennit.db")
    session = client.session("chat")
    client.close()
    client.close()
    with pytest.raises(StoreError, match="closed"):
        session.add_message("user", "x")
    with pytest.raises(StoreError, match="closed"):
        client.sessions()
    assert len(session.messages) == 0


def test_durability_is_full_unless_told_otherwise(tmp_path: Path) -> None:
    def synchronous(store: SQLiteStore) -> int:
        return store._connect().execute("PRAGMA synchronous").fetchone()[0]

    assert synchronous(SQLiteStore(tmp_path / "a.db")) == 2
    assert synchronous(SQLiteStore(tmp_path / "a.db", durability="normal")) == 1
    with pytest.raises(ValidationError, match="'none'"):
        SQLiteStore(tmp_path / "a.db", durability="none")  # pyright: ignore


def test_a_file_locked_by_another_program_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.stores.sqlite.connection._BUSY_TIMEOUT_S", 0.01)
    path = tmp_path / "sennit.db"
    session = sennit.open(path).session("chat")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="busy with another process"):
        session.add_message("user", "x")
    other.execute("ROLLBACK")
    session.add_message("user", "x")
    assert len(session.messages) == 1
    other.close()


@pytest.mark.parametrize("name", ["'; DROP TABLE messages; --", '"', "a%_b", "é\u202e🦜"])
def test_sql_in_names_is_only_text(tmp_path: Path, name: str) -> None:
    with sennit.open(tmp_path / "sennit.db", user=name) as client:
        session = client.session(name, metadata={name: name})
        session.create_branch(name, resources={name})
        session.add_message("user", f"find {name}", branches=name)
        client.search_messages(name)
        assert client.sessions(contains=name)[0].key == name
    again = sennit.open(tmp_path / "sennit.db", user=name).session(name)
    assert again.get_branch(name).resources == {name}
    assert again.metadata == {name: name}


def test_two_threads_opening_a_new_file_at_once_both_succeed(tmp_path: Path) -> None:
    start = threading.Barrier(4)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        start.wait()
        try:
            with sennit.open(tmp_path / "sennit.db") as client:
                client.session(f"chat {number}").add_message("user", "x")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(sennit.open(tmp_path / "sennit.db").sessions()) == 4


def test_removed_history_leaves_no_rows_behind(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        for number in range(5):
            session.add_message("user", f"{number}")
        main = session.default_branch
        for _ in range(3):
            session.fork(main).pop()
        main.reverse()
        for branch in list(session.branches):
            session.remove_branch(branch)
        session.messages.clear()
    rows = sqlite3.connect(path)
    for table in ("segments", "entries", "branches", "messages"):
        assert rows.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    rows.close()


def test_indexing_catches_up_in_batches_and_after_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.stores.sqlite.search_rows._BATCH", 3)
    client = sennit.open(tmp_path / "sennit.db")
    session = client.session("chat")
    groups = [session.add_message("user", f"needle number {n}") for n in range(10)]
    assert len(client.search_messages("needle", limit=50)) == 10
    session.remove_message(groups[-1].messages[0])
    session.add_message("user", "needle again")
    assert len(client.search_messages("needle", limit=50)) == 10
    assert client.search_messages("again")[0].snippet == "needle again"


def _plan(query: str, path: Path) -> list[str]:
    SQLiteStore(path).close()
    connection = sqlite3.connect(path)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", (1,) * query.count("?")).fetchall()
    connection.close()
    return [step for *_, step in plan if step.startswith(("SEARCH", "SCAN"))]


def test_the_entries_of_a_message_are_found_by_their_index(tmp_path: Path) -> None:
    (step,) = _plan(sql.TAKE_ENTRIES, tmp_path / "sennit.db")
    assert "(owner=? AND message=?)" in step


def test_a_session_is_read_without_looking_at_the_others(tmp_path: Path) -> None:
    first, *others = _plan(sql.ALL_SEGMENTS, tmp_path / "sennit.db")
    assert "(owner=? AND session=?)" in first
    assert "(owner=? AND segment=?)" in others[0]
    assert all("(owner=? AND segment=?)" in step or "subquery" in step for step in others[1:])


def test_whoever_reads_while_the_store_is_closed_reads_to_the_end(tmp_path: Path) -> None:
    with faults.record():
        client = sennit.open(tmp_path / "sennit.db")
        session = client.session("chat")
        session.add_message("user", "hello")
        with faults.arm("sqlite.after: SELECT FROM messages", lambda _: client.close()) as armed:
            found = client._store.load(client._owner, session.id)
    assert armed.fired
    assert [one.id for one in found.messages] == list(session.default_branch)
    assert [one.length for one in found.branches] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["sennit.db"]  # no log left beside it


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM messages WHERE no = 2",
        "DELETE FROM segments WHERE base IS NULL",
        "UPDATE branches SET metadata = '['",
        "UPDATE branches SET resources = '{}', capabilities = '[]'",
        "UPDATE sessions SET metadata = '1'",
    ],
)
def test_a_damaged_session_is_told_of_by_name(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        for number in range(3):
            session.add_message("user", f"hello {number}")
        session.fork("main", name="fork")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(harm)
    other.close()
    with sennit.open(path) as client:
        with pytest.raises(StoreError, match="damaged"):
            client.session("chat")
        with pytest.raises(StoreError, match="damaged"):
            client.export(tmp_path / "archive.zip")
        assert client.doctor()


def test_an_index_without_its_mark_is_told_of_and_mended(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        client.session("chat").add_message("user", "hello")
        other = sqlite3.connect(tmp_path / "sennit.db", isolation_level=None)
        other.execute("DELETE FROM indexed")
        other.close()
        with pytest.raises(StoreError, match="doctor"):
            client.search_messages("hello")
        client.doctor(repair=True)
        assert len(client.search_messages("hello")) == 1


def test_a_group_makes_no_session_that_is_there_already(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        kept = client.session("chat")
        kept.add_message("user", "hello")
        record = client._store.find_session(client._owner, kept.id)
        usual, new = (Write(client._owner, kept.id, (), create) for create in (None, record))
        first, second = client._store.write_many([usual, new])
        assert first == []
        assert isinstance(second, ExistsError)


def test_the_log_is_longer_than_what_is_in_it_and_holds_all_after_a_crash(tmp_path: Path) -> None:
    path, copy = tmp_path / "sennit.db", tmp_path / "crashed.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        for number in range(30):
            session.add_message("user", f"{number}")
        log = wal_path_of(path)
        assert log.stat().st_size % (64 * 1024) == 0, "It was not lengthened ahead."
        assert log.read_bytes().endswith(bytes(4096))
        shutil.copy(path, copy)
        shutil.copy(log, wal_path_of(copy))
    with sennit.open(copy) as crashed:
        assert len(crashed.session("chat").default_branch) == 30
        assert crashed.doctor() == []


def test_a_log_without_room_ahead_grows_as_it_is_needed(tmp_path: Path) -> None:
    log = tmp_path / "sennit.db-wal"
    log.write_bytes(b"x" * 5000)
    script = """
import resource, sys
from pathlib import Path
from sennit.stores.sqlite.connection import preallocate_wal
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
preallocate_wal(Path(sys.argv[1]), 5000)
"""
    subprocess.run([sys.executable, "-c", script, log], check=True)
    assert log.read_bytes() == b"x" * 5000


def test_a_log_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    preallocate_wal(wal_path_of(tmp_path / "sennit.db"), 5000)
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_linked_file_lies_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "far" / "sennit.db")
    with sennit.open(link) as client:
        for number in range(5):
            client.session("chat").add_message("user", f"{number}")
        assert wal_path_of(link).stat().st_size % (64 * 1024) == 0
        assert wal_path_of(link).parent == tmp_path / "far"


@pytest.mark.parametrize("removed", [False, True])
def test_the_work_of_a_fork_does_not_grow_with_the_number_of_branches(
    tmp_path: Path, removed: bool
) -> None:
    with sennit.open(tmp_path / "sennit.db", durability="normal") as client:
        session = client.session("chat")
        for text in ("one", "two", "three"):
            session.add_message("user", text)
        if removed:
            session.default_branch.pop()
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        store = client._store
        assert isinstance(store, SQLiteStore)

        def work_of_forks() -> int:
            """The instructions of SQLite's machine that ten forks take."""
            nonlocal steps
            store._writer.set_progress_handler(step, 1)
            steps = 0
            for _ in range(10):
                session.fork("main")
            store._writer.set_progress_handler(None, 1)
            return steps

        session.fork("main")
        few = work_of_forks()
        for _ in range(500):
            session.fork("main")
        assert work_of_forks() < 1.2 * few


def test_a_lease_waits_for_no_disk_and_whatever_comes_after_it_does(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    scene = Scenario(store)
    branch = scene.branch("main", "a").stored().id
    told: list[str] = []
    store._writer.set_trace_callback(told.append)

    def take(holder: str) -> Write:
        return Write(scene.owner, scene.id, (TakeLease(branch, holder, 60_000_000),))

    (heads,) = store.write_many([take("ada")])
    assert not isinstance(heads, Exception)
    (refused,) = store.write_many([take("bob")])
    assert isinstance(refused, ConflictError)
    relaxed = [one for one in told if one.startswith("PRAGMA synchronous")]
    assert relaxed == ["PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"] * 2
    told.clear()
    scene.append("main", "b")
    assert not [one for one in told if "synchronous" in one]
    assert store._writer.execute("PRAGMA synchronous").fetchone()[0] == 2
    store.close()


def test_a_write_does_not_wait_for_a_reader_that_keeps_the_log_from_being_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_CHECKPOINT_TIMEOUT_S", 20.0)
    begun = threading.Event()
    happened: list[str] = []
    with sennit.open(tmp_path / "sennit.db") as client:
        store = client._store
        assert isinstance(store, SQLiteStore)
        session = client.session("chat")
        session.add_message("user", "hello")
        empty_log = store._truncate_wal

        def watched() -> None:
            begun.set()
            empty_log()
            happened.append("emptied")

        monkeypatch.setattr(store, "_truncate_wal", watched)
        with store._snapshot() as connection:
            connection.execute("SELECT count(*) FROM messages").fetchone()
            scrubbing = threading.Thread(target=store.scrub)
            scrubbing.start()
            begun.wait()
            session.add_message("user", "hello again")
            happened.append("written")
        scrubbing.join()
    assert happened == ["written", "emptied"]


def test_the_log_is_copied_into_the_file_before_it_is_long(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        for _ in range(60):
            session.add_message("user", "x" * 100_000)
        assert wal_path_of(path).stat().st_size < 3_000_000


def test_a_search_indexes_long_texts_in_short_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed: list[int] = []
    index_words = search_rows.index_words

    def watched(number: int, created: int, body: bytes) -> tuple[int, str]:
        indexed.append(len(body))
        return index_words(number, created, body)

    index_more = search_rows.index_more
    sizes: list[int] = []

    def counted(connection: sqlite3.Connection) -> None:
        indexed.clear()
        index_more(connection)
        sizes.append(sum(indexed))

    monkeypatch.setattr(search_rows, "index_words", watched)
    monkeypatch.setattr(search, "index_more", counted)
    with sennit.open(tmp_path / "sennit.db") as client:
        session = client.session("chat")
        for number in range(20):
            session.add_message("user", f"knot {number} " * 1000)
        found = client._store.search(client._owner, "knot", session=None, limit=50)
    assert len(found) == 20
    assert sum(sizes) > 100_000
    assert max(sizes) < 50_000


def test_what_is_new_in_a_session_is_read_with_few_statements_however_many_branches_it_has(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    with sennit.open(tmp_path / "sennit.db") as client:
        store = client._store
        assert isinstance(store, SQLiteStore)
        session = client.session("chat")
        session.add_message("user", "hello")
        for _ in range(50):
            session.default_branch.fork()
        found = store.load(client._owner, session.id)
        known = {one.id: len(one.entries) for one in found.segments}
        with store._snapshot() as connection:  # the next to read uses it again
            connection.set_trace_callback(asked.append)
        changed = store.changes(client._owner, session.id, known)
        assert (changed.messages, changed.segments, len(changed.branches)) == ([], [], 51)
        session.add_message("user", "hello again")
        (message,) = store.changes(client._owner, session.id, known).messages
        assert b"hello again" in message.body
    assert 0 < len(asked) < 20


def test_what_is_noted_of_a_tool_turn_names_its_messages_by_number(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    with sennit.open(path, durability="normal") as client:
        replies = [ToolCall("add", {"a": 1, "b": 2})], "Three."
        talk = Talk(*replies, session=client.session("chat"))
        talk.run()
        told = [type(one).__name__ for one in talk.conversation().history()]
    with closing(sqlite3.connect(path)) as connection:
        kinds = {kind for (kind,) in connection.execute("SELECT typeof(message) FROM events")}
        starts = connection.execute("SELECT typeof(message), times FROM starts").fetchall()
    assert {"ToolCalled", "ToolStarted", "ToolCompleted", "MessageCompleted"} <= set(told)
    assert kinds == {"integer", "null"}
    assert starts == [("integer", 1)]


def test_a_run_among_many_is_found_by_an_index(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "sennit.db") as store, store._snapshot() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql.FIND_RUN}", (1, 1, bytes(16)))
        assert all("<expr>=?" in row[3] for row in plan)


def test_the_schema_is_kept_without_comments_and_indentation(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    SQLiteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        texts = [text for (text,) in connection.execute("SELECT sql FROM sqlite_schema") if text]
    assert not [text for text in texts if "--" in text or "\n " in text]

"""Sessions that last: opened again, shared by clients and processes, killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import sennit
from sennit import (
    Client,
    ConflictError,
    ExistsError,
    InstructionContent,
    Message,
    NotFoundError,
    Session,
    SystemContent,
    TextPart,
    ToolPart,
    clock,
)
from sennit.stores.sqlite.store import SQLiteStore
from tests.sessions.test_session import assistant, said, system, user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sennit.db"


def same(a: Session, b: Session) -> None:
    """Both sessions hold the same messages and branches."""
    assert sorted(m.to_json() for m in a.messages) == sorted(m.to_json() for m in b.messages)
    assert {one.name for one in a.branches} == {one.name for one in b.branches}
    for one in a.branches:
        other = b.get_branch(one.name)
        assert other.id == one.id
        assert list(other) == list(one)
        assert other.system == one.system
        assert other.resources == one.resources
        assert other.capabilities == one.capabilities
        assert other.metadata == one.metadata
        assert other.created_at == one.created_at


def reopened(path: Path, key: str = "chat_001") -> Session:
    return sennit.open(path).session(key)


def test_a_session_comes_back_as_it_was(path: Path) -> None:
    with sennit.open(path) as client:
        session = client.session("chat_001", resources={"gpt4"}, capabilities={"Report"})
        session.add_message("user", [TextPart("Hello"), TextPart("again")])
        session.add_message("assistant", [ToolPart("search", {"q": "x"}, output=None)])
        main = session.default_branch
        fork = session.fork(main, at=1, name="fork", system=system("S"), resources=True)
        session.add_message(assistant("both"), branches=[main, fork])
        session.add_message(user("on no branch"))
        fork.edit(1, "Hello there")
    same(session, reopened(path))
    assert reopened(path).key == "chat_001"


def test_every_change_of_a_branch_comes_back(path: Path) -> None:
    session = sennit.open(path).session("chat_001")
    main = session.create_branch("main", system=system("S"))
    for number in range(8):
        session.add_message(user(f"{number}"), branches=main)
    fork = session.fork(main, system=True)
    main.pop()
    main.remove(main[2])
    main.move(1, 3)
    main.insert(2, session.add_message(user("in between")))
    main.reverse()
    del main[2:4]
    main.swap(1, 2)
    session.set_branch_system(main, system("T"))
    fork.popleft()
    fork.grant(resources={"a", "b"})
    fork.revoke(resources={"a"})
    session.remove_message(fork[3])
    session.remove_branch(session.fork(fork, name="gone"))
    same(session, reopened(path))
    main.clear()
    same(session, reopened(path))


def test_opening_a_session_twice_gives_the_same_object(path: Path) -> None:
    with sennit.open(path) as client:
        session = client.session("chat_001")
        assert client.session("chat_001") is session
        assert client.session(session.id) is session
        assert client.session(str(session.id)) is session


def test_a_session_id_follows_from_owner_and_key(path: Path) -> None:
    one, two = sennit.open(path, user="ada"), sennit.open(path, user="bob")
    assert one.session("chat").id == sennit.open(":memory:", user="ada").session("chat").id
    assert one.session("chat").id != two.session("chat").id
    assert one.session("chat").id != sennit.open(path, tenant="x", user="ada").session("chat").id


def test_an_owner_reaches_nothing_of_another(path: Path) -> None:
    ada, bob = sennit.open(path, user="ada"), sennit.open(path, user="bob")
    session = ada.session("chat")
    session.add_message("user", "my secret word is bowline")
    assert bob.sessions() == []
    assert bob.search_messages("bowline") == []
    assert bob.delete_session(session.id) is False
    assert len(bob.session(session.id).messages) == 0
    assert len(ada.session("chat").messages) == 1
    assert [hit.session for hit in ada.search_messages("bowline")] == [session.id]


def test_two_clients_on_one_branch_lose_nothing(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    for number in range(20):
        one.add_message("user", f"one {number}")
        two.add_message("user", f"two {number}")
    one.refresh()
    two.refresh()
    same(one, two)
    words = said(one.default_branch)
    assert [word for word in words if word.startswith("one")] == [f"one {n}" for n in range(20)]
    assert [word for word in words if word.startswith("two")] == [f"two {n}" for n in range(20)]


def test_a_rewrite_of_what_someone_else_changed_is_refused_and_repeatable(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    for number in range(3):
        one.add_message("user", f"{number}")
    two.refresh()
    two.add_message("user", "from two")
    with pytest.raises(ConflictError, match="refresh"):
        one.default_branch.pop()
    assert said(one.default_branch) == ["0", "1", "2", "from two"]
    one.default_branch.pop()
    two.refresh()
    assert said(two.default_branch) == ["0", "1", "2"]


def test_an_append_after_someone_elses_rewrite_lands_on_the_new_history(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    for number in range(4):
        one.add_message("user", f"{number}")
    two.refresh()
    two.default_branch.remove(two.default_branch[1])
    one.add_message("user", "after")
    assert said(one.default_branch) == ["0", "2", "3", "after"]
    two.refresh()
    same(one, two)


def test_a_name_someone_else_took_is_refused(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    one.create_branch("mine")
    with pytest.raises(ExistsError):
        two.create_branch("mine")
    assert two.get_branch("mine").id == one.get_branch("mine").id


def test_automatic_names_never_collide_between_clients(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    one.add_message("user", "hi")
    two.refresh()
    names = [session.fork("main").name for _ in range(3) for session in (one, two)]
    names += [session.create_branch().name for _ in range(3) for session in (one, two)]
    assert len(set(names)) == 12
    one.refresh()
    two.refresh()
    same(one, two)


def test_erasing_reaches_other_clients(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    first = one.add_message("user", "secret").messages[0]
    one.add_message("user", "kept")
    fork = one.fork("main", name="fork")
    one.add_message(assistant("more"), branches=fork)
    two.refresh()
    one.remove_message(first)
    two.add_message("user", "later")
    assert said(two.default_branch) == ["kept", "later"]
    assert said(two.get_branch("fork")) == ["kept", "more"]
    same(reopened(path, "chat"), two)


def test_an_erasure_is_seen_though_the_branch_that_showed_it_is_gone(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    source = one.create_branch("source")
    for word in "abcd":
        one.add_message(user(word), branches=source)
    two.refresh()
    one.remove_message(source[1])
    one.fork(source, at=1, name="fork")
    one.remove_branch(source)
    two.refresh()
    assert said(two.get_branch("fork")) == ["a", "c"]
    same(one, two)


def test_several_messages_are_erased_in_one_step_or_none_of_them(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    for word in "abcd":
        one.add_message("user", word)
    fork = one.fork("main", at=2, name="fork")
    two.refresh()
    with pytest.raises(NotFoundError):
        one.remove_messages([fork[0], user("never said")])
    assert said(fork) == ["a", "b", "c"]
    gone = one.remove_messages([fork[2], fork[0], fork[0]])
    assert [one.rendered for one in gone] == ["Instruction: c", "Instruction: a"]
    assert said(one.default_branch) == ["b", "d"]
    one.default_branch.grant(resources={"a"})  # knows the version the store has
    two.refresh()
    same(one, two)
    assert one.remove_messages([]) == []


def test_a_session_described_otherwise_is_so_for_everybody(path: Path) -> None:
    clients = [sennit.open(path) for _ in range(2)]
    one, two = (client.session("chat") for client in clients)
    one.add_message("user", "Hello")
    one.describe({"title": "Knots"})
    two.refresh()
    assert two.metadata == one.metadata == {"title": "Knots"}
    assert clients[1].session_info("chat").metadata == {"title": "Knots"}
    two.describe({})
    assert reopened(path, "chat").metadata == {}
    with pytest.raises(sennit.ValidationError):
        one.describe({"title": object()})


def test_a_session_is_read_again_only_after_a_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    read, reads = SQLiteStore.changes, list[object]()
    monkeypatch.setattr(SQLiteStore, "changes", lambda *given: reads.append(1) or read(*given))
    one.add_message("user", "Hello")
    for _ in range(3):
        two.refresh()
    assert len(reads) == 1
    with clock.wall_clock_from(lambda: 0):  # the clock was set back
        one.add_message("user", "Again")
    two.refresh()
    assert said(two.default_branch) == ["Hello", "Again"]


def test_a_renamed_branch_is_so_for_everybody_who_refreshes(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    one.add_message("user", "Hello")
    fork, other = one.fork("main", name="fork"), one.fork("main", name="other")
    two.refresh()
    theirs = two.get_branch("fork")
    fork.rename("spare")
    other.rename("fork")
    fork.rename("other")  # they have swapped their names
    two.refresh()
    assert (theirs.name, two.get_branch("fork").id) == ("other", other.id)
    assert two.get_branch("other") is theirs
    same(one, two)
    same(one, reopened(path, "chat"))


def test_renaming_stands_in_nobody_elses_way(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    mine = one.create_branch("fork", system=system("S"))
    two.refresh()
    theirs = two.get_branch("fork")
    mine.rename("renamed")
    two.add_message(user("a"), branches=theirs)
    theirs.grant(resources={"gpt4"})
    two.set_branch_system(theirs, system("T"))
    two.refresh()
    one.refresh()
    assert theirs.name == "renamed"
    same(one, two)


def test_of_two_who_rename_one_branch_the_last_one_is_heard(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    mine = one.create_branch("fork")
    two.refresh()
    mine.rename("mine")
    two.get_branch("fork").rename("theirs")
    two.get_branch("theirs").rename("fork")
    mine.rename("mine")  # already called so, as far as is known here
    two.refresh()
    assert [branch.name for branch in two.branches] == ["mine"]
    same(one, two)


def test_a_name_that_someone_else_has_taken_is_refused_and_then_known(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    mine = one.create_branch("mine")
    theirs = two.create_branch("wanted")
    with pytest.raises(ExistsError, match="already a branch named 'wanted'; choose another name"):
        mine.rename("wanted")
    assert (mine.name, one.get_branch("wanted").id) == ("mine", theirs.id)
    two.remove_branch(theirs)
    one.refresh()
    mine.rename("wanted")
    with pytest.raises(NotFoundError):
        two.rename_branch("mine", "other")
    two.refresh()
    same(one, two)


def test_a_branch_that_someone_else_has_removed_is_not_renamed(path: Path) -> None:
    one, two = (sennit.open(path).session("chat") for _ in range(2))
    mine = one.create_branch("mine")
    two.refresh()
    two.remove_branch("mine")
    with pytest.raises(NotFoundError, match="may have been removed"):
        mine.rename("other")
    assert mine.name == "mine"


def test_a_deleted_session_is_gone_and_writing_to_it_says_so(path: Path) -> None:
    client = sennit.open(path)
    session = client.session("chat")
    session.add_message("user", "a canary called xylophone")
    client.search_messages("xylophone")
    assert client.delete_session("chat") is True
    assert client.delete_session("chat") is False
    with pytest.raises(NotFoundError, match="deleted"):
        session.add_message("user", "more")
    assert client.search_messages("xylophone") == []
    client.close()
    for file in path.parent.iterdir():
        assert b"xylophone" not in file.read_bytes()


def test_a_session_someone_else_deleted_is_made_anew(path: Path) -> None:
    one, two = sennit.open(path), sennit.open(path)
    old = one.session("chat")
    old.add_message("user", "gone")
    two.delete_session("chat")
    new = one.session("chat")
    assert new is not old
    assert len(new.messages) == 0
    new.add_message("user", "here")
    assert len(two.session("chat").messages) == 1


def test_granting_what_is_granted_writes_nothing(path: Path) -> None:
    client = sennit.open(path)
    main = client.session("chat", resources={"gpt4"}).default_branch
    before = main._version
    client.session("chat", resources={"gpt4"})
    main.revoke(resources={"never granted"})
    assert main._version == before


def test_an_erased_message_leaves_no_trace_in_the_file(path: Path) -> None:
    with sennit.open(path) as client:
        session = client.session("chat")
        message = session.add_message("user", "a canary called xylophone").messages[0]
        session.add_message("user", "another")
        client.search_messages("another")
        session.remove_message(message)
        assert client.search_messages("xylophone") == []
        assert len(client.search_messages("another")) == 1
    for file in path.parent.iterdir():
        assert b"xylophone" not in file.read_bytes()


def test_sessions_are_listed_filtered_and_paged(path: Path) -> None:
    client = sennit.open(path)
    for number in range(5):
        client.session(f"chat_{number}", metadata={"n": number})
    client.session("other").add_message("user", "x")
    client.session("chat_2").add_message("user", "latest")
    listed = [info.key for info in client.sessions()]
    assert listed[0] == "chat_2"
    assert set(listed) == {"other", *(f"chat_{n}" for n in range(5))}
    first = client.sessions(contains="CHAT", limit=3)
    rest = client.sessions(contains="CHAT", limit=3, before=first[-1])
    assert [info.key for info in [*first, *rest]] == [k for k in listed if k != "other"]
    assert first[0].metadata == {"n": 2}


def test_search_stems_ignores_common_words_and_shows_a_snippet(path: Path) -> None:
    client = sennit.open(path)
    session = client.session("chat")
    session.add_message("user", "How do I run the benchmarks?")
    session.add_message("assistant", "Running them is easy: make bench.")
    session.add_message("user", "Thanks, and what about the weather in the north?")
    assert {hit.snippet.split()[0] for hit in client.search_messages("the runs")} == {
        "How",
        "Running",
    }
    [hit] = client.search_messages("who asked about northern weather?", limit=1)
    assert "weather" in hit.snippet
    assert client.search_messages("?!") == []
    session.add_message("user", "weather again")
    assert len(client.search_messages("weather", session="chat")) == 2


@pytest.mark.parametrize("after", [1, 7, 23])
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_what_was_acknowledged_survives_a_kill(path: Path, durability: str, after: int) -> None:
    script = (
        "import sys, sennit\n"
        "session = sennit.open(sys.argv[1], durability=sys.argv[2]).session('chat')\n"
        "number = 0\n"
        "while True:\n"
        "    session.add_message('user', str(number))\n"
        "    if number % 5 == 0: session.fork('main')\n"
        "    print(number, flush=True)\n"
        "    number += 1\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(path), durability], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    acknowledged = -1
    for _ in range(after):
        acknowledged = int(worker.stdout.readline())
    os.kill(worker.pid, signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, worker.stdout.read().split())])
    worker.wait()
    worker.stdout.close()
    session = reopened(path, "chat")
    words = said(session.default_branch)
    assert words == [str(n) for n in range(len(words))]
    assert acknowledged + 1 <= len(words) <= acknowledged + 2
    for branch in session.branches:
        assert said(branch) == words[: len(branch)]
    session.add_message("user", "on we go")
    assert said(reopened(path, "chat").default_branch)[-1] == "on we go"


def test_an_unstorable_message_is_refused_and_the_session_goes_on(path: Path) -> None:
    session = sennit.open(path).session("chat")
    big = Message(InstructionContent(instruction="x" * 100), metadata={"n": 1})
    session.add_message(big, branches=session.default_branch)
    with pytest.raises(sennit.ValidationError):
        session.add_message("user", "lone \ud800 surrogate")
    with pytest.raises(NotFoundError):
        session.add_message(user("x"), branches=uuid4())
    assert len(reopened(path, "chat").messages) == 1


class TwoClients(RuleBasedStateMachine):
    """Two clients on one store, and a fresh one that must agree with whoever refreshes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "sennit.db"
        self.clients = [sennit.open(path, durability="normal") for _ in range(3)]
        self.sessions = [client.session("chat") for client in self.clients[:2]]
        self.count = 0

    def teardown(self) -> None:
        for client in self.clients:
            client.close()
        self.folder.cleanup()

    def fresh(self) -> Session:
        store = self.clients[2]._store
        return Client(store).session("chat")

    @rule(who=st.integers(0, 1))
    def add(self, who: int) -> None:
        self.count += 1
        self.sessions[who].add_message("user", f"{self.count}")

    @rule(who=st.integers(0, 1), at=st.integers(0, 20))
    def fork(self, who: int, at: int) -> None:
        session = self.sessions[who]
        main = session.default_branch
        fork = session.fork(
            main,
            at=at % len(main) if len(main) else None,
            name=f"f{self.count}{who}{at}-{len(session.branches)}",
        )
        session.add_message(user(f"on {fork.name}"), branches=fork)

    @rule(
        who=st.integers(0, 1),
        at=st.integers(0, 20),
        how=st.sampled_from(["remove", "pop", "move", "system"]),
    )
    def rewrite(self, who: int, at: int, how: str) -> None:
        session = self.sessions[who]
        session.refresh()
        branch = (
            session.branches[at % len(session.branches)]
            if len(session.branches)
            else session.default_branch
        )
        if how == "system":
            session.set_branch_system(branch, Message(SystemContent(system_message=f"{at}")))
        elif len(branch) > 2 and branch.system is None:
            if how == "remove":
                branch.remove(branch[at % len(branch)])
            elif how == "pop":
                branch.pop()
            else:
                branch.move(0, at % len(branch))

    @rule(who=st.integers(0, 1), at=st.integers(0, 20))
    def erase(self, who: int, at: int) -> None:
        session = self.sessions[who]
        session.refresh()
        if len(session.messages):
            session.remove_message(session.messages[at % len(session.messages)])

    @invariant()
    def whoever_refreshes_agrees_with_the_store(self) -> None:
        fresh = self.fresh()
        for session in self.sessions:
            session.refresh()
            assert {b.name: list(b) for b in session.branches} == {
                b.name: list(b) for b in fresh.branches
            }


TwoClients.TestCase.settings = settings(max_examples=20, stateful_step_count=25)
TestTwoClients = TwoClients.TestCase


def rows_changed(path: Path, size: int, way: str) -> int:
    """How many rows change while half of a branch is taken away, or put in, one by one."""
    with sennit.open(path, durability="normal") as client:
        session = client.session("chat_001")
        main = session.default_branch
        session.add_messages([user(str(number)) for number in range(size)], branches=main)
        fork, new = session.fork(main), [user("new") for _ in range(size // 2)]
        session.add_messages(new)
        expected, shared = list(main), list(fork)
        before = client._store._writer.total_changes  # pyright: ignore
        for number, message in enumerate(new):
            places = {"first": 0, "middle": len(main) // 2, "each second": number + 1}
            at = places[way.partition(", ")[2]]
            if way.startswith("remove"):
                assert main.pop(at) == expected.pop(at)
            else:
                main.insert(at, message)
                expected.insert(at, message.id)
        changed = client._store._writer.total_changes - before  # pyright: ignore
        assert client.doctor() == []
    found = reopened(path)
    assert list(found.default_branch) == expected
    assert list(found.get_branch(fork.id)) == shared
    return changed


@pytest.mark.parametrize(
    "way", ["remove, first", "remove, middle", "remove, each second", "insert, middle"]
)
def test_rewriting_a_stored_branch_one_by_one_is_not_quadratic(tmp_path: Path, way: str) -> None:
    few = rows_changed(tmp_path / "few.db", 200, way)
    many = rows_changed(tmp_path / "many.db", 800, way)
    assert many < 8 * few  # four times as much to do; sixteen times would be quadratic


@pytest.mark.anyio
@pytest.mark.parametrize("waits", [True, False])
async def test_a_fork_never_holds_what_another_program_left_in_place_of_the_history(
    path: Path, waits: bool
) -> None:
    with sennit.open(path) as here, sennit.open(path) as there:
        session = here.session("chat_001")
        for text in ("one", "two", "three"):
            session.add_message("user", text)
        other = there.session("chat_001")
        other.remove_message(other.default_branch[0])
        branch = session.default_branch
        with pytest.raises(ConflictError, match="changed by another writer"):
            await session.afork(branch, at=0) if waits else session.fork(branch, at=0)
        assert said(branch) == ["two", "three"]  # as it is known now
        fork = await session.afork(branch, at=0) if waits else session.fork(branch, at=0)
        assert said(there.session("chat_001").get_branch(fork.id)) == ["two"]

"""Commits: archived in one step, finished once, honest about what came of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread

import pytest

import sennit
from sennit import (
    Client,
    ContextPart,
    InstructionContent,
    Message,
    NotFoundError,
    Session,
    StoreError,
    SystemContent,
    TextPart,
    ToolPart,
    UsageError,
    ValidationError,
)
from sennit.ids import new_id
from sennit.memory.commit.result import CommitResult
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.records.files import PutFile, VersionRecord
from sennit.stores.records.sessions import Owner
from sennit.stores.sqlite.store import SQLiteStore
from sennit.testing import faults
from tests.memory.remembering import PROFILE, TALK, client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)


def texts(messages: list[Message]) -> list[object]:
    return [getattr(message.content, "instruction", None) for message in messages]


def user(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def test_a_commit_archives_remembers_and_says_so(client: Client) -> None:
    session = client.session("chat")
    talk(session, *TALK)
    result = session.commit()
    assert result["status"] == "committed"
    assert result["archived"] is True
    assert result["memories_extracted"] == sum(result["counts"].values()) > 2
    assert result["method"] == "rules"
    assert result["archive"] == "archive_001"
    assert "Ada" in client.fs.read("viking://user/memories/profile.md")
    assert any("tea" in text for text in memories(client).values())
    assert client.get_task(result.task_id or "") == result


def test_an_empty_session_commits_to_nothing(client: Client) -> None:
    session = client.session("chat")
    for _ in range(2):
        result = session.commit()
        assert (result.status, result["archived"], result.task_id) == ("committed", False, None)
    assert client.fs.ls("viking://session/chat/history") == []
    session.create_branch("main")
    assert session.commit()["archived"] is False


def test_a_second_commit_finds_nothing_new(client: Client) -> None:
    session = client.session("chat")
    talk(session, *TALK)
    session.commit()
    before = memories(client)
    assert session.commit()["archived"] is False
    assert memories(client) == before


def test_messages_stay_on_the_branch_and_leave_what_is_current(client: Client) -> None:
    session = client.session("chat")
    session.create_branch("main", system=Message(SystemContent(system_message="Be kind.")))
    talk(session, "one")
    session.commit()
    talk(session, "two")
    current = session.current()
    assert isinstance(current[0].content, SystemContent)
    assert texts(current)[1:] == ["two", None]
    assert len(session.default_branch) == 5
    session.commit()
    assert len(session.current("main")) == 1


def test_a_session_that_was_opened_elsewhere_sees_what_is_archived(client: Client) -> None:
    session = client.session("chat")
    talk(session, "one")
    other = Client(client._store, user="ada", agent="helper").session("chat")
    session.commit()
    assert other.current() == []
    talk(other, "two")
    assert other.commit()["archive"] == "archive_002"


def test_the_last_messages_can_be_kept(client: Client) -> None:
    session = client.session("chat")
    talk(session, "one", "two")
    assert session.commit(keep_recent=10)["archived"] is False
    session.commit(keep_recent=1)
    assert texts(session.current()) == [None]
    session.commit()
    assert session.current() == []


def test_what_was_said_together_is_kept_together(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "one")
    session.add_message("assistant", [TextPart("a"), ToolPart("tie", {"n": 1}, output=1)])
    session.commit(keep_recent=1)
    assert len(session.current()) == 3


def test_keep_recent_must_be_a_number(client: Client) -> None:
    session = client.session("chat")
    with pytest.raises(ValidationError, match="0 or more, got -1"):
        session.commit(keep_recent=-1)
    with pytest.raises(TypeError, match="number"):
        session.commit(keep_recent=True)


def test_a_shared_entry_is_archived_once(client: Client) -> None:
    session = client.session("chat")
    talk(session, "shared")
    fork = session.fork("main", name="fork")
    session.add_message("user", "on main")
    session.add_message("user", "on the fork", branches=fork)
    first, second = session.commit("fork"), session.commit("main")
    assert (first["archive"], second["archive"]) == ("archive_001", "archive_002")
    archives = [
        client.fs.read(f"viking://session/chat/history/{name}/messages.jsonl").splitlines()
        for name in ("archive_001", "archive_002")
    ]
    said = [[json.loads(line)["parts"][0]["text"] for line in lines] for lines in archives]
    assert said == [["shared", "I see.", "on the fork"], ["on main"]]
    assert session.commit("fork")["archived"] is False


def test_an_unknown_branch_is_refused_and_nothing_is_done(client: Client) -> None:
    session = client.session("chat")
    talk(session, "one")
    with pytest.raises(NotFoundError, match="nowhere"):
        session.commit("nowhere")
    assert len(session.current()) == 2


def test_a_session_without_a_store_says_where_to_commit_to() -> None:
    session = Session()
    session.add_message("user", "one")
    with pytest.raises(StoreError, match=r"sennit\.open"):
        session.commit()


def test_a_session_with_a_store_of_its_own_commits_to_it(tmp_path: Path) -> None:
    with Session(store=tmp_path / "a.db") as session:
        session.add_message("user", "My name is Ada.")
        session.commit(wait=False)
        key = session.id
    with sennit.open(tmp_path / "a.db") as client:
        assert "Ada" in client.fs.read("viking://user/memories/profile.md")
        assert client.session(key).current() == []


def test_what_is_used_is_counted_once_with_the_archive_that_covers_it(client: Client) -> None:
    uri = "viking://user/memories/profile.md"
    session = client.session("chat")
    talk(session, "My name is Ada.")
    session.commit()
    session.used(contexts=[uri])
    assert session.commit()["archived"] is False  # nothing to archive yet
    session.add_message("assistant", [TextPart("Hello Ada"), ContextPart(uri=uri)])
    session.used(contexts=[uri, "viking://user/memories/nowhere.md", "viking://resources/x.md"])
    assert session.commit()["active_count_updated"] == 3  # distinct URIs, there or not
    assert client.fs.stat(uri).active_count == 3
    talk(session, "more")
    assert session.commit()["active_count_updated"] == 0
    assert client.fs.stat(uri).active_count == 3


def test_a_use_at_an_entry_that_stays_current_waits_with_it(client: Client) -> None:
    uri = "viking://resources/guide.md"
    client.fs.write(uri, "How to tie a bowline")
    session = client.session("chat")
    talk(session, "one", "two")
    session.used(contexts=[uri])
    session.commit(keep_recent=1)
    assert client.fs.stat(uri).active_count == 0
    session.commit()
    assert client.fs.stat(uri).active_count == 1


def test_a_use_on_a_fork_is_counted_by_whichever_commit_covers_its_place(client: Client) -> None:
    uri = "viking://resources/guide.md"
    client.fs.write(uri, "How to tie a bowline")
    session = client.session("chat")
    talk(session, "shared")
    session.fork("main", name="fork")
    session.used(contexts=uri, branch="fork")
    session.commit("main")
    assert client.fs.stat(uri).active_count == 1
    session.add_message("user", "more", branches="fork")
    session.commit("fork")
    assert client.fs.stat(uri).active_count == 1


def test_a_skill_keeps_its_input_output_and_success(client: Client) -> None:
    uri = "viking://agent/skills/code-search"
    client.fs.write(uri, "Search the code.")
    session = client.session("chat")
    talk(session, "find it")
    skill = {"uri": uri, "input": "search config", "output": "found 3 files", "success": False}
    session.used(skill=skill)
    session.commit()
    diff = json.loads(client.fs.read("viking://session/chat/history/archive_001/memory_diff.json"))
    assert diff["skills"] == [skill]
    assert client.fs.stat(uri).active_count == 1


@pytest.mark.parametrize(
    "used",
    [
        {},
        {"contexts": []},
        {"contexts": ["profile.md"]},
        {"contexts": ["viking://user/../agent"]},
        {"contexts": 7},
        {"skill": {"input": "x"}},
        {"skill": {"uri": "viking://agent/skills/a", "colour": "red"}},
        {"skill": {"uri": "viking://user/memories/profile.md"}},
        {"skill": {"uri": "viking://agent/skills"}},
        {"skill": {"uri": "viking://agent/skills/a", "success": "yes"}},
        {"skill": 7},
    ],
)
def test_what_is_no_context_or_skill_is_refused(used: dict[str, object]) -> None:
    session = Client(MemoryStore()).session("chat")
    with pytest.raises(ValidationError):
        session.used(**used)  # pyright: ignore[reportArgumentType]


def test_a_commit_that_nobody_waits_for_is_finished_before_the_client_closes(
    tmp_path: Path,
) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("chat")
        talk(session, *TALK)
        result = session.commit(wait=False)
        assert result.task_id is not None
        assert result["archived"] is True
        assert session.current() == []
    with sennit.open(tmp_path / "a.db") as client:
        assert client.get_task(result.task_id).status == "committed"
        assert memories(client)


def test_an_unknown_task_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no commit"):
        client.get_task("01a1e228-52d6-7bc7-b95f-65443dd38117")
    with pytest.raises(ValidationError, match="task_id"):
        client.get_task("nothing")


def test_thinking_that_fails_leaves_the_archive_and_can_be_tried_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.session("chat")
    talk(session, *TALK)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no idea")

    with monkeypatch.context() as patched:
        patched.setattr("sennit.memory.memory.digest_by_rules", broken)
        result = session.commit()
    assert (result.status, result.reasons) == ("failed", ["RuntimeError: no idea"])
    assert memories(client) == {}
    assert session.current() == []
    assert session.commit()["archived"] is False
    again = client.retry_task(result.task_id or "")
    assert (again.status, again.reasons) == ("committed", [])
    assert memories(client)
    assert client.retry_task(result.task_id or "") == again


def test_what_was_learnt_in_one_session_is_known_in_the_next(client: Client) -> None:
    talk(client.session("one"), "I live in Lisbon.")
    client.session("one").commit()
    talk(client.session("two"), "I live in Lisbon.", "I moved to Berlin.")
    result = client.session("two").commit()
    profile = client.fs.read("viking://user/memories/profile.md")
    assert profile.count("Lisbon") == 1
    assert "~~" in profile
    assert "Berlin" in profile
    assert result["counts"]["updated"] == 1


def test_what_changes_twice_in_one_commit_holds_as_it_was_said_last(client: Client) -> None:
    talk(client.session("one"), "I live in Lisbon.", "I'm vegan.")
    client.session("one").commit()
    talk(client.session("two"), "I moved to Berlin.", "I'm not vegan.", "I'm vegan.")
    talk(client.session("two"), "I moved to Paris.", "My name is Ada.", "My name is Eve.")
    client.session("two").commit()
    lines = client.fs.read(PROFILE).splitlines()
    assert {line for line in lines[2:] if "~~" not in line} == {
        "- I moved to Paris.",
        "- I'm vegan.",
        "- My name is Eve.",
    }


def test_a_repeated_statement_is_no_new_memory_but_new_evidence(client: Client) -> None:
    for name in ("one", "two"):
        talk(client.session(name), "I prefer tea to coffee.")
        result = client.session(name).commit()
    assert result["memories_extracted"] == 0
    (uri,) = memories(client)
    assert len({one.session for one in client.memory.get(uri).evidence}) == 2


def test_every_memory_names_messages_that_are_there(client: Client) -> None:
    session = client.session("chat")
    talk(session, *TALK)
    result = session.commit()
    found = client.memory.all()
    assert found
    for memory in found:
        assert str(memory.commit_id) == result.task_id
        assert memory.evidence
        for source in memory.evidence:
            assert source.session == session.id
            assert source.message in session.messages


def test_injected_contexts_are_not_learnt_again(client: Client) -> None:
    uri = "viking://resources/ada.md"
    client.fs.write(uri, "I live in Lisbon.")
    session = client.session("chat")
    session.add_message("user", [TextPart("I live in Lisbon."), ContextPart(uri=uri)])
    assert session.commit()["memories_extracted"] == 0


def test_users_and_agents_do_not_share_what_they_remember(store: Store) -> None:
    ada, bob = (Client(store, user=name, agent="helper") for name in ("ada", "bob"))
    talk(ada.session("chat"), *TALK)
    result = ada.session("chat").commit()
    assert memories(ada)
    assert memories(bob) == {}
    with pytest.raises(NotFoundError):
        bob.get_task(result.task_id or "")
    with pytest.raises(NotFoundError):
        bob.undo_commit(result.task_id or "")
    with pytest.raises(NotFoundError):
        bob.fs.ls("viking://session/chat")


@contextmanager
def two_clients(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> Generator[tuple[Client, Client]]:
    """Clients of one user, each with a store of its own on the same data."""

    def opened() -> Client:
        if kind == "sqlite":
            return sennit.open(folder / "a.db", user="ada")
        return Client(PostgresStore(request.getfixturevalue("emptied")), user="ada")

    with opened() as one, opened() as two:
        yield one, two


def commit_at_once(*work: tuple[Client, str]) -> list[CommitResult]:
    """Commit sessions in as many threads, all at the same time."""
    start, results = Barrier(len(work)), list[CommitResult]()

    def commit(client: Client, name: str) -> None:
        session = client.session(name)
        start.wait()
        results.append(session.commit())

    threads = [Thread(target=commit, args=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_commits_at_once_archive_everything_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with two_clients(kind, tmp_path, request) as (one, two):
        talk(one.session("chat"), *TALK)
        results = commit_at_once((one, "chat"), (two, "chat"))
        assert {result.status for result in results} == {"committed"}
        history = one.fs.ls("viking://session/chat/history")
        assert [entry.name for entry in history] == ["archive_001"]
        assert [memory.version for memory in one.memory.all("profile")] == [1]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_commits_of_two_sessions_at_once_lose_no_fact(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with two_clients(kind, tmp_path, request) as (one, two):
        talk(one.session("one"), "My name is Ada.")
        talk(two.session("two"), "I live in Lisbon.")
        results = commit_at_once((one, "one"), (two, "two"))
        assert [result.status for result in results] == ["committed", "committed"]
        profile = one.fs.read("viking://user/memories/profile.md")
        assert "Ada" in profile
        assert "Lisbon" in profile


@pytest.mark.parametrize(("writes", "status"), [(10, "committed"), (30, "pending")])
def test_a_commit_goes_on_while_others_write_to_the_same_memories(
    client: Client, writes: int, status: str
) -> None:
    left = iter(range(writes))

    def write(_: str) -> None:
        if (number := next(left, None)) is not None:
            client.fs.write(PROFILE, f"- I have {number} cats.")

    talk(client.session("chat"), "My name is Ada.")
    with faults.arm("memory.commit: write", write, at=None):
        assert client.session("chat").commit()["status"] == status
    client.finish_commits()
    assert client.fs.read(PROFILE).splitlines()[-1] == "- My name is Ada."


def test_a_commit_on_an_event_loop_is_refused_and_names_its_async_twin(client: Client) -> None:
    async def commit() -> None:
        session = client.session("chat")
        await session.aadd_message("user", "My name is Ada.")
        with pytest.raises(UsageError, match=r"use await acommit\(\) instead"):
            session.commit()
        result = session.commit(wait=False)  # extracts in the background
        with pytest.raises(UsageError, match=r"use await aretry_task\(\) instead"):
            client.retry_task(result.task_id or "")

    asyncio.run(commit())
    assert [result.status for result in client.finish_commits()] in ([], ["committed"])
    assert client.session("chat").current() == []


def test_async_callers_commit_too(client: Client) -> None:
    async def commit() -> None:
        session = client.session("chat")
        await session.aadd_message("user", "My name is Ada.")
        await session.aused(contexts=["viking://resources/x.md"])
        result = await session.acommit()
        assert result.status == "committed"
        assert await session.acurrent() == []
        assert await client.aget_task(result.task_id or "") == result

    asyncio.run(commit())


def _steps_of_a_commit(path: Path, remembered: int) -> int:
    """How many hundreds of steps SQLite takes for a commit where so much is remembered."""
    store = SQLiteStore(path, durability="normal")
    client = Client(store, user="ada", agent="helper")
    store.change_files([_preference(number) for number in range(remembered)])
    session = client.session("chat")
    talk(session, *(f"I like {word}." for word in ("gouda", "brie", "sort7")))
    session.commit()  # opens what connections it needs
    talk(session, *(f"I like {word} now." for word in ("cheddar", "feta", "sort9")))
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    for connection in store._connections:
        connection.set_progress_handler(step, 100)
    assert session.commit()["status"] == "committed"
    for connection in store._connections:
        connection.set_progress_handler(None, 0)
    store.close()
    return steps


def _preference(number: int) -> PutFile:
    text, owner = f"I like sort{number}.", Owner(Client(MemoryStore()).tenant, "user", "ada")
    version = VersionRecord(number=1, written=1, valid_from=1, body=text.encode())
    path = f"memories/preferences/sort{number}.md"
    return PutFile(owner, new_id(), path, "preferences", version)


def test_a_commit_costs_what_its_matches_cost_not_what_is_remembered(tmp_path: Path) -> None:
    few = _steps_of_a_commit(tmp_path / "few.db", 100)
    many = _steps_of_a_commit(tmp_path / "many.db", 5_000)
    assert 0 < many < 3 * few


TEA = ("I like green tea.", "I like tea with honey.", "I like green tea with honey.")


def liked(client: Client) -> list[str]:
    return sorted(text.strip() for uri, text in memories(client).items() if "preferences" in uri)


def test_two_memories_become_one_with_history_and_come_back_with_undo(client: Client) -> None:
    for number, said in enumerate(TEA[:2]):
        talk(client.session(f"chat{number}"), said)
        client.session(f"chat{number}").commit()
    before = memories(client)
    talk(client.session("last"), TEA[2])
    commit = client.session("last").commit()
    assert liked(client) == [TEA[2]]
    assert len(client.fs.ls("viking://user/memories/preferences")) == 1
    hits = [hit for hit in client.find("honey") if hit.category == "preferences"]
    assert [hit.abstract for hit in hits] == [TEA[2]]
    [gone] = before.keys() - memories(client).keys()
    told = [one.text.strip() for one in client.memory.history(gone)]
    assert told[0] in TEA[:2]
    assert told[-1] == ""
    client.undo_commit(commit.task_id or "")
    assert memories(client) == before


@pytest.mark.parametrize("session", ["chat0", "chat1", "last"])
def test_forgetting_a_session_of_a_merged_memory_leaves_what_others_said(
    client: Client, session: str
) -> None:
    names = ("chat0", "chat1", "last")
    for name, said in zip(names, TEA, strict=True):
        talk(client.session(name), said)
        client.session(name).commit()
    client.forget(session=session)
    forgotten = TEA[names.index(session)]
    assert forgotten not in liked(client)
    if session == "last":
        assert liked(client) == sorted(TEA[:2])


def test_memories_of_one_batch_that_a_later_sentence_covers_become_one(client: Client) -> None:
    talk(client.session("chat"), *TEA)
    client.session("chat").commit()
    assert liked(client) == [TEA[2]]

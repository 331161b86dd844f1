"""What was removed is neither found nor told to a model, and is erased when its time is over."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    Branch,
    Client,
    Message,
    Session,
    SystemContent,
    ValidationError,
    clock,
)
from sennit.memory.retrieval.embedders import WordEmbedder
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.testing import ScriptedModel
from tests.memory.remembering import SPRING, client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

SECRET = "The plan is zebra."


def found(client: Client, word: str = "zebra") -> list[str]:
    """What any search finds that holds a word; all that is found stands where it is said to."""
    texts: set[str] = set()
    for one in client.find(word, limit=50):
        said = bare(one.abstract)
        assert said in client.fs.read(one.uri), one.uri
        texts |= {said} if word in said.lower() else set()
    assert {one.snippet for one in client.search_messages(word, limit=50)} <= texts
    searched = {one.abstract for one in client.search(f"What about {word}?").matches}
    assert {bare(one) for one in searched if word in one.lower()} <= texts
    return sorted(texts)


def bare(abstract: str) -> str:
    """What was said, without who said it."""
    return abstract.removeprefix("helper: ").removeprefix("scripted: ")


def told(client: Client, question: str, session: str = "later", **how: Any) -> str:
    """All that a model is sent for a question in another session."""
    model = ScriptedModel(["Well."])
    conversation = client.session(session).conversation(
        model=model, contexts=[MemoryContext(client.memory, **how)]
    )
    asyncio.run(conversation.asay(question))
    return str(model.requests[-1].messages)


def pop(session: Session) -> None:
    session.default_branch.pop()
    session.default_branch.pop()


def clear(session: Session) -> None:
    del session.default_branch[:]


def remove_branch(session: Session) -> None:
    session.remove_branch("main")


def rewrite(session: Session) -> None:
    for _ in range(2):
        session.default_branch.remove(session.default_branch[0])


@pytest.mark.parametrize("remove", [pop, clear, remove_branch, rewrite])
def test_what_was_taken_off_its_only_branch_is_neither_found_nor_told(
    client: Client, remove: Callable[[Session], None]
) -> None:
    session = client.session("chat")
    session.add_message("user", SECRET)
    session.add_message("assistant", f"You said: {SECRET}")
    assert len(found(client)) == 2
    remove(session)
    assert found(client) == []
    assert SECRET not in told(client, "What is the plan with the zebra?", other_sessions=True)
    assert SECRET not in client.session("later").context(query="zebra").text
    client.session("other").add_message("user", "And now a zebra.")
    assert "And now a zebra." in found(client)


@pytest.mark.parametrize("after", [None, "You are polite."])
def test_a_system_message_that_was_replaced_or_removed_is_not_found(
    client: Client, after: str | None
) -> None:
    session = client.session("chat", system="You are a zebra.")
    session.add_message("user", "Hello.")
    assert found(client) == ["You are a zebra."]
    system = None if after is None else Message(SystemContent(system_message=after))
    session.set_branch_system("main", system)
    assert found(client) == []


def test_what_another_branch_shares_is_found_on(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", SECRET)
    session.add_message("user", "Another zebra.")
    session.default_branch.fork(at=0, name="fork")
    session.remove_branch("main")
    assert found(client) == [SECRET]
    session.remove_branch("fork")
    assert found(client) == []


def test_the_old_version_of_an_edited_message_is_found_on_its_own_branch(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", SECRET)
    session.add_message("assistant", "A zebra, then.")
    edited = session.default_branch.edit(0, "The plan is a zebra crossing.")
    again = session.default_branch.regenerate(1)
    session.add_message("assistant", "Zebra it is.", branches=again)
    by_text = {one.abstract: one.uri for one in client.find("zebra", limit=50)}
    assert by_text["The plan is a zebra crossing."] == (
        f"viking://session/chat/branches/{edited.name}/messages.jsonl"
    )
    assert by_text[SECRET] == "viking://session/chat/messages.jsonl"
    assert len(found(client)) == 4
    session.remove_branch(edited)
    assert "The plan is a zebra crossing." not in found(client)


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 300, "Zoë"])
def test_a_hit_on_a_branch_of_any_name_leads_to_its_text(client: Client, name: str) -> None:
    session = client.session("chat")
    session.add_message("user", "Hello.")
    session.add_message("user", SECRET, branches=session.create_branch(name))
    assert found(client) == [SECRET]


def test_a_message_on_no_branch_is_kept_and_found_once_it_stands_on_one(client: Client) -> None:
    session = client.session("chat")
    loose = Message(SystemContent(system_message=SECRET))
    branch = session.create_branch("main")
    session.add_message(loose)
    assert loose.id in session.messages
    assert found(client) == []
    assert client.purge(SPRING + timedelta(days=100_000)) == 0
    branch.append(loose)
    assert found(client) == [SECRET]
    branch.pop()
    assert found(client) == []
    branch.append(loose)
    assert found(client) == [SECRET]


def test_tool_calls_that_were_taken_back_are_in_no_file(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Hello.")
    part = sennit.ToolPart("zebra", {"n": 1}, output="2", tool_id="c1")
    session.add_message("assistant", [part])
    assert [one.name for one in client.fs.ls("viking://session/chat/tools")] == ["c1"]
    del session.default_branch[1:]
    assert client.fs.ls("viking://session/chat/tools") == []
    assert client.fs.grep("zebra") == []


def test_what_is_in_an_archive_is_found_there_after_it_was_taken_back(client: Client) -> None:
    session = client.session("chat")
    talk(session, SECRET)
    session.commit()
    pop(session)
    (match,) = [one for one in client.find("zebra") if SECRET in one.abstract]
    assert match.uri == "viking://session/chat/history/archive_001/messages.jsonl"
    assert found(client)
    assert client.purge(SPRING + timedelta(days=100_000)) == 0
    session.remove_messages(list(session.messages))
    assert found(client) == []


def test_what_was_removed_is_not_embedded_and_not_found_by_meaning(store: Store) -> None:
    with Client(store, user="ada", embedder=WordEmbedder()) as client:
        session = client.session("chat")
        talk(session, SECRET, "The plan is a giraffe.")
        client.embed()
        assert len(client.find("zebra plan", category="message")) > 1
        del session.default_branch[0:2]
        assert all("zebra" not in one.abstract for one in client.find("zebra plan", limit=50))
        session.add_message("user", "Another zebra.")
        pop(session)
        assert client.embed() == 0


def test_messages_of_other_sessions_come_into_a_prompt_only_if_asked_for(client: Client) -> None:
    client.session("chat").add_message("user", SECRET)
    question = "What is the plan with the zebra?"
    assert SECRET not in told(client, question)
    assert SECRET not in client.session("later").context(query=question).text
    assert SECRET in told(client, question, "third", other_sessions=True)
    context = client.session("fourth").context(query=question, other_sessions=True)
    assert SECRET in context.text


def test_archived_messages_of_other_sessions_do_not_come_but_memories_do(client: Client) -> None:
    session = client.session("chat")
    talk(session, "I prefer green tea to coffee.", SECRET)
    session.commit()
    sent = told(client, "Do I prefer tea, coffee or a zebra?")
    assert "green tea" in sent
    assert SECRET not in sent


def test_archived_messages_of_the_branch_itself_do_come(client: Client) -> None:
    session = client.session("chat")
    talk(session, SECRET, "Hello there.")
    session.commit()
    assert SECRET in told(client, "What was the plan with the zebra?", "chat")


def test_a_forgotten_memory_is_not_told_and_not_shown_as_used(client: Client) -> None:
    session = client.session("chat")
    talk(session, "I prefer zebra tea to coffee.")
    session.commit()
    question = "Which tea or coffee do I prefer?"
    assert "zebra" in told(client, question)
    for uri in [uri for uri, text in memories(client).items() if "zebra" in text]:
        client.forget(uri=uri)
    client.delete_session("chat")
    assert "zebra" not in told(client, question, "last")
    assert found(client) == []


def removed_at(client: Client, moment: int, remove: Callable[[Branch], Any]) -> None:
    with clock.wall_clock_from(lambda: moment):
        remove(client.session("chat").default_branch)


def test_removed_messages_are_erased_when_their_time_is_over(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Hello.")
    session.add_message("user", SECRET)
    spring = clock.from_datetime(SPRING) * 1000
    removed_at(client, spring, Branch.pop)
    updated = client.session_info("chat").updated_at
    assert client.purge(SPRING) == 0
    assert len(client.session("chat").messages) == 2
    assert client.purge(SPRING + timedelta(seconds=1)) == 1
    assert client.session_info("chat").updated_at == updated
    fresh = Client(client._store, user="ada").session("chat")
    assert [one.content.words for one in fresh.messages] == ["Hello."]
    assert len(fresh.default_branch) == 1
    assert client.purge() == 0


@pytest.mark.parametrize("how", ["purge", "remove_message"])
def test_whoever_erases_an_old_system_message_knows_the_new_one_of_somebody_else(
    client: Client, how: str
) -> None:
    session = client.session("chat")
    session.add_message("user", "Hello.")
    session.set_branch_system("main", "Speak Latin.")
    other = Client(client._store, user="ada").session("chat")
    other.set_branch_system("main", "Speak Greek.")
    old = session.get_branch("main").system_id
    assert old is not None
    if how == "purge":
        assert client.purge(datetime.now(UTC) + timedelta(days=1)) == 1
    else:
        session.remove_message(old)
    session.refresh()
    for branch in (session.get_branch("main"), session.fork("main", system=True)):
        assert [session.messages[one].content.words for one in branch] == ["Speak Greek.", "Hello."]


def test_events_about_removed_messages_go_with_them(client: Client) -> None:
    session = client.session("chat")
    conversation = session.conversation(model=ScriptedModel(["A zebra.", "A horse."]))
    for question in ("Which animal?", "Another one?"):
        asyncio.run(conversation.asay(question))
    noted = b"".join(one.body for one in events(client, session))
    assert b"zebra" in noted or len(events(client, session)) > 4
    spring = clock.from_datetime(SPRING) * 1000
    removed_at(client, spring, lambda branch: branch.__delitem__(slice(0, 2)))
    about = {one.message for one in events(client, session)}
    assert client.purge(SPRING + timedelta(seconds=1)) == 2
    left = {one.message for one in events(client, session)}
    assert left < about
    assert left - {None} <= set(session.default_branch)
    assert b"zebra" not in b"".join(one.body for one in events(client, session))


def events(client: Client, session: Session) -> list[Any]:
    main = session.default_branch.id
    return client._store.events(client._owner, session.id, main, 0, 1000)


def test_with_no_retention_they_are_erased_at_once(store: Store) -> None:
    with Client(store, user="ada", retention=timedelta(0)) as client:
        session = client.session("chat", system="You are a zebra.")
        session.add_message("user", "Hello.")
        session.add_message("user", SECRET)
        session.default_branch.pop()
        session.set_branch_system("main", None)
        session.add_message("user", "Goodbye.")
        fresh = Client(store, user="ada").session("chat")
        assert [one.content.words for one in fresh.messages] == ["Hello.", "Goodbye."]
        session.refresh()
        assert list(session.default_branch) == list(fresh.default_branch)


@pytest.mark.parametrize("days", ["0", "30"])
def test_closing_a_client_erases_what_is_due_and_leaves_no_trace_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: str
) -> None:
    monkeypatch.setenv("SENNIT_RETENTION_DAYS", "30")
    path = tmp_path / "s.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        session.add_message("user", "Hello.")
        session.add_message("user", SECRET)
        client.find("zebra")
        session.default_branch.pop()
    monkeypatch.setenv("SENNIT_RETENTION_DAYS", days)
    with sennit.open(path) as client:
        assert found(client) == []
    with closing(sqlite3.connect(path)) as file:
        count = file.execute("SELECT count(*) FROM messages").fetchone()[0]
    kept = b"zebra" in path.read_bytes()
    assert (count, kept) == ((1, False) if days == "0" else (2, True))


@pytest.mark.parametrize("given", ["soon", "-1", "nan"])
def test_a_retention_that_is_no_number_of_days_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("SENNIT_RETENTION_DAYS", given)
    with pytest.raises(ValidationError, match="SENNIT_RETENTION_DAYS is a number of days"):
        sennit.open(":memory:")
    monkeypatch.delenv("SENNIT_RETENTION_DAYS")
    with pytest.raises(ValidationError, match="must not be negative"):
        sennit.open(":memory:", retention=timedelta(days=-1))


def test_an_export_leaves_out_what_was_removed(client: Client, tmp_path: Path) -> None:
    session = client.session("chat", system="You are a zebra.")
    talk(session, "Hello.", SECRET)
    session.default_branch.fork(at=3, name="fork")
    session.set_branch_system("main", None)
    del session.default_branch[2:]
    session.remove_branch("fork")
    client.export(tmp_path / "archive")
    text = b"".join(one.read_bytes() for one in (tmp_path / "archive").rglob("*.jsonl"))
    assert b"Hello." in text
    assert b"zebra" not in text
    with Client(MemoryStore()) as other:
        other.import_sessions(tmp_path / "archive")
        assert len(other.session("chat", create=False).messages) == 2
    assert client.import_sessions(tmp_path / "archive").new_messages == 0


def test_a_backup_keeps_what_was_removed_and_when(client: Client, tmp_path: Path) -> None:
    session = client.session("chat")
    talk(session, "Hello.", SECRET)
    session.commit()
    session.add_message("user", "A late zebra.")
    removed_at(
        client, clock.from_datetime(SPRING) * 1000, lambda branch: branch.__delitem__(slice(2, 5))
    )
    client.backup(tmp_path / "copy.db")
    with sennit.open(tmp_path / "copy.db", user="ada", retention=timedelta(36500)) as copy:
        assert found(copy) == found(client)
        assert copy.doctor() == []
        assert copy.purge(SPRING + timedelta(seconds=1)) == 1

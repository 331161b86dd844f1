"""Forgetting for good: what rests on it goes too, and no trace of it is left anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import sennit
from sennit import AccessError, Client, NotFoundError, ValidationError
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.records.files import VersionRecord
from sennit.stores.records.sessions import Owner
from sennit.testing import ScriptedModel, faults
from tests.memory.history.test_removal import that_said
from tests.memory.remembering import (
    DAY,
    PROFILE,
    SPRING,
    TALK,
    client,
    memories,
    said_on,
    store,
    talk,
)
from tests.memory.test_crashes import CutOffError

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

TABLES = """
    SELECT schemaname, tablename FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"""


@dataclass(frozen=True)
class Place:
    """A new store, and a look at all it holds."""

    address: str
    traces: Callable[[], list[str]]
    """The files or tables in which the word is found."""


def _files_with_it(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if b"ylophon" in file.read_bytes().lower()]


def _tables_with_it(address: str) -> list[str]:
    """Bytes are shown as hexadecimal digits; the queue's own tables are among all others."""
    wanted = f"ylophon|{b'ylophon'.hex()}"
    with psycopg.connect(address) as connection:
        names = connection.execute(TABLES).fetchall()
        assert ("sennit", "procrastinate_jobs") in names
        return [name for schema, name in names if _holds(connection, schema, name, wanted)]


def _holds(connection: Any, schema: str, name: str, wanted: str) -> bool:
    asked = SQL("SELECT 1 FROM {} t WHERE t::text ~* %s LIMIT 1").format(Identifier(schema, name))
    return connection.execute(asked, [wanted]).fetchone() is not None


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(str(tmp_path / "chat.db"), lambda: _files_with_it(tmp_path))
    address: str = request.getfixturevalue("emptied")
    return Place(address, lambda: _tables_with_it(address))


def test_a_forgotten_session_takes_along_what_came_from_it_alone(client: Client) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.", "I prefer tea to coffee.")
    said_on(client, SPRING + DAY, "two", "I prefer tea to coffee.", "My name is Ada.")
    forgotten = client.forget(session="one")
    assert forgotten.sessions == 1
    assert forgotten.files >= 2
    left = "".join(memories(client).values())
    assert "tea" in left
    assert "Ada" in left
    assert "Lisbon" not in left
    two = client.session("two").id
    for memory in client.memory.all():
        assert {source.session for source in memory.evidence} == {two}
        for version in client.memory.history(memory.uri):
            assert "Lisbon" not in version.text
    with pytest.raises(NotFoundError):
        client.forget(session="one")


def test_forgetting_by_address(client: Client) -> None:
    said_on(client, SPRING, "one", *TALK)
    uri = next(one.uri for one in client.memory.all("preferences"))
    client.forget(uri=uri)
    assert uri not in memories(client)
    diff = client.fs.read("viking://session/one/history/archive_001/memory_diff.json")
    assert uri not in {one["uri"] for one in json.loads(diff)["memories"]}
    client.forget(uri="viking://user/memories")
    assert memories(client) == {}
    client.forget(uri="viking://session/one")
    assert client.sessions() == []
    with pytest.raises(NotFoundError):
        client.forget(uri="viking://user/memories/nothing.md")
    with pytest.raises(ValidationError, match="whole session"):
        client.forget(uri="viking://session/one/history")


@pytest.mark.parametrize("how", ["forget", "rm", "rm the folder"])
def test_what_was_merged_into_an_erased_memory_does_not_come_back(place: Place, how: str) -> None:
    with sennit.open(place.address, user="ada") as client:
        said_on(client, SPRING, "one", "I like xylophone tea.")
        said_on(client, SPRING + DAY, "two", "I like tea with honey.")
        commit = said_on(client, SPRING + 2 * DAY, "three", "I like xylophone tea with honey.")
        [uri] = memories(client)
        for key in ("one", "two"):  # what they said is remembered all the same
            client.delete_session(key)
        if how == "forget":
            client.fs.mv(uri, "viking://user/memories/preferences/drink.md")
            client.forget(uri="viking://user/memories/preferences/drink.md")
        else:
            erased = uri if how == "rm" else "viking://user/memories/preferences"
            client.fs.rm(erased, recursive=True)
        client.undo_commit(commit)
        assert memories(client) == {}
        client.delete_session("three")
        assert place.traces() == []


def test_one_thing_is_forgotten_at_a_time_and_ones_own_alone(client: Client) -> None:
    for wrong in ({}, {"user": "ada", "session": "chat"}):
        with pytest.raises(ValidationError, match="one of"):
            client.forget(**wrong)
    with pytest.raises(AccessError, match="'bob'"):
        client.forget(user="bob")


def test_a_forgotten_user_leaves_others_alone(store: Store) -> None:
    ada, bob = (Client(store, user=name, agent="helper") for name in ("ada", "bob"))
    for one in (ada, bob):
        said_on(one, SPRING, "chat", *TALK)
    ada.fs.write("viking://user/notes.md", "mine")
    ada.forget(user="ada")
    assert (memories(ada), ada.sessions()) == ({}, [])
    assert not ada.fs.exists("viking://user/notes.md")
    assert "Ada" in bob.fs.read(PROFILE)


def test_a_deleted_session_leaves_its_memories(client: Client) -> None:
    said_on(client, SPRING, "one", "My name is Ada.")
    client.delete_session("one")
    assert "Ada" in client.fs.read(PROFILE)
    client.forget(session="one")
    assert memories(client) == {}


def _turn(client: Client, key: str, say: str, *, echoes: bool) -> None:
    """A turn with memory, journalled, and committed."""
    session = client.session(key)
    model = ScriptedModel([lambda asked: str(asked.messages) if echoes else "I see."])
    session.add_message("user", say)
    session.default_branch.grant(resources={model.name})
    contexts = [MemoryContext(client.memory)]
    session.conversation(session.default_branch, model=model, contexts=contexts).run()
    session.commit()


@pytest.mark.parametrize("how", ["session", "user", "uri", "folder"])
def test_forgetting_leaves_no_trace_in_the_database(place: Place, how: str) -> None:
    """Not of what was said, learnt, used, journalled, archived, indexed or written by hand."""
    with sennit.open(place.address, user="ada") as client:
        talk(client.session("other"), "I like knots.", *(f"Knot number {n}" for n in range(50)))
        client.session("other").commit()
        notes = "viking://user/notes/xylophone.md"
        if how in ("session", "user"):
            secret = client.session("secret")
            talk(secret, "My name is Xylophonia.", "I prefer xylophones to trumpets.")
            secret.used(skill={"uri": "viking://agent/skills/xylophone", "input": "xylophone"})
            _turn(client, "secret", "Which xylophone do I prefer?", echoes=True)
            secret.default_branch.edit(0, "My name is Xylophonius.")
            secret.label(secret.default_branch[0], 1.0, by="xylophonist")
        else:
            client.fs.write(notes, "a xylophone")
            client.session("other").used(contexts=[notes])
            client.fs.mv(notes, f"{notes[:-3]}s.md")
            client.fs.mv(f"{notes[:-3]}s.md", notes)
            talk(client.session("other"), "Noted.")
            client.session("other").commit()
        client.search_messages("xylophone")
        client.find("xylophone")
        assert place.traces()
        match how:
            case "user":
                client.forget(user="ada")
            case "session":
                client.forget(session="secret")
            case "uri":
                client.forget(uri=notes)
            case _:
                client.forget(uri="viking://user/notes")
        assert place.traces() == []  # while it is open, with the log beside it
    assert place.traces() == []


def test_a_forgotten_memory_is_named_nowhere_by_those_who_have_used_it(place: Place) -> None:
    with sennit.open(place.address, user="ada") as client:
        talk(client.session("secret"), "I prefer xylophones to trumpets.")
        client.session("secret").commit()
        uses = client.session("uses")
        uses.used(contexts=[one.uri for one in client.memory.all()])
        _turn(client, "uses", "What do I prefer to trumpets?", echoes=False)
        uses.used(contexts=[one.uri for one in client.memory.all()])  # by no commit yet
        client.forget(session="secret")
        assert client.memory.all() == []
        assert place.traces() == []
        uses.add_message("user", "Still there?")
        assert uses.commit()["status"] == "committed"


@pytest.mark.parametrize("how", ["forget", "delete_session"])
def test_the_key_of_a_session_goes_with_it_where_its_messages_were_recalled(
    place: Place, how: str
) -> None:
    with sennit.open(place.address, user="ada") as client:
        client.session("xylophones").add_message("user", "The rent is nine hundred a month.")
        uses, turns = client.session("uses"), client.session("turns")
        turns.add_message("user", "How much is the rent?")
        model = ScriptedModel(["Too much."])
        contexts = [MemoryContext(client.memory, other_sessions=True)]
        turns.conversation(turns.default_branch, model=model, contexts=contexts).run()
        assert "nine hundred" in str(model.requests[0].messages)
        uses.add_message("user", "How much is the rent of nine hundred a month?")
        assert "nine hundred" in uses.context(other_sessions=True).text
        uses.commit()
        if how == "forget":
            client.forget(session="xylophones")
        else:
            client.delete_session("xylophones")
        assert place.traces() == []


@pytest.mark.parametrize("first", ["undone", "removed", "moved"])
def test_a_memory_that_lost_its_name_before_is_forgotten_by_those_who_have_used_it(
    place: Place, first: str
) -> None:
    """Its name is made of what it says: it must not outlive the memory in another session."""
    with sennit.open(place.address, user="ada") as client:
        talk(client.session("secret"), "I prefer xylophones to trumpets.")
        task = client.session("secret").commit()["task_id"]
        [memory] = client.memory.all()
        uses = client.session("uses")
        _turn(client, "uses", "What do I prefer to trumpets?", echoes=False)
        uses.used(contexts=[memory.uri])  # by no commit yet
        match first:
            case "undone":
                client.undo_commit(task)
            case "removed":
                client.fs.rm(memory.uri)
            case _:
                client.fs.mv(memory.uri, "viking://user/memories/preferences/music.md")
        client.forget(session="secret")
        assert place.traces() == []


@pytest.mark.parametrize("how", ["undone", "removed", "moved", "forgotten", "session"])
def test_a_memory_that_is_removed_by_a_program_that_dies_is_forgotten_all_the_same(
    tmp_path: Path, how: str
) -> None:
    """At whichever of its transactions it dies: what is done again then leaves nothing."""

    def take_away(client: Client, uri: str, task: str) -> None:
        match how:
            case "undone":
                client.undo_commit(task)
            case "removed":
                client.fs.rm(uri)
            case "moved":
                client.fs.mv(uri, "viking://user/memories/preferences/music.md")
            case "forgotten":
                client.forget(uri=uri)
            case _:
                client.forget(session="secret")

    for at in range(1, 50):
        folder = tmp_path / str(at)
        folder.mkdir()
        with faults.record(), sennit.open(folder / "chat.db") as client:
            talk(client.session("secret"), "I prefer xylophones to trumpets.")
            task = client.session("secret").commit()["task_id"]
            [memory] = client.memory.all()
            client.session("uses").used(contexts=[memory.uri])
            cut = faults.raising(CutOffError())
            with suppress(CutOffError), faults.arm("sqlite.after: COMMIT", cut, at=at) as armed:
                take_away(client, memory.uri, task)
        with sennit.open(folder / "chat.db") as client:
            with suppress(NotFoundError):
                take_away(client, memory.uri, task)
            with suppress(NotFoundError):
                client.forget(session="secret")
            assert _files_with_it(folder) == []
        if not armed.fired:
            assert at > 2
            return
    pytest.fail("It takes more transactions than were tried.")


@pytest.mark.parametrize("how", ["session", "message", "line"])
def test_what_others_have_changed_is_quoted_nowhere_though_forgetting_it_was_cut_off(
    tmp_path: Path, how: str
) -> None:
    """At whichever of its transactions: what is done again then leaves nothing."""
    said = "I live in Xylophone." if how == "line" else "My favourite instrument is the xylophone."
    changed = "I moved to Berlin." if how == "line" else "My favourite instrument is the drum now."

    def forget(client: Client, uri: str) -> None:
        secret = client.session("secret")
        if how == "line":
            client.forget(uri=uri)
        elif how == "session":
            client.forget(session="secret")
        elif left := [one for one in secret.messages if "xylophone" in one.content.words]:
            secret.remove_message(left[0])

    for at in range(1, 80):
        folder = tmp_path / str(at)
        folder.mkdir()
        with faults.record(), sennit.open(folder / "chat.db") as client:
            talk(client.session("secret"), said)
            first = client.session("secret").commit()
            talk(client.session("later"), changed)
            second = client.session("later").commit()
            uri = client.memory.committed(first["task_id"]).decisions[0]["uri"]
            assert "ylophone" in str(client.memory.committed(second["task_id"]).decisions)
            cut = faults.raising(CutOffError())
            with suppress(CutOffError), faults.arm("sqlite.after: COMMIT", cut, at=at) as armed:
                forget(client, uri)
        with sennit.open(folder / "chat.db") as client:
            with suppress(NotFoundError):
                forget(client, uri)
            for one in client.memory.commits(client.session("later")):
                assert "ylophone" not in str(one)
            if how == "message":
                history = "viking://session/secret/history/archive_001"
                assert "ylophone" not in client.fs.read(f"{history}/.overview.md")
        if not armed.fired:
            assert at > 2
            return
    pytest.fail("It takes more transactions than were tried.")


def test_a_removed_memory_is_named_by_no_commit(client: Client) -> None:
    talk(client.session("one"), "I prefer xylophones to trumpets.")
    client.session("one").commit()
    [memory] = client.memory.all()
    assert client.fs.grep(memory.uri, "viking://session")
    client.fs.rm(memory.uri)
    assert client.fs.grep(memory.uri, "viking://session") == []


def test_what_a_changed_memory_once_said_is_quoted_nowhere(place: Place) -> None:
    with sennit.open(place.address, user="ada") as client:
        talk(client.session("secret"), "My favourite instrument is the xylophone.")
        client.session("secret").commit()
        talk(client.session("later"), "My favourite instrument is the drum now.")
        assert client.session("later").commit()["counts"]["updated"] == 1
        client.forget(session="secret")
        assert "drum" in str(memories(client))
        assert place.traces() == []


def test_of_a_removed_message_no_trace_is_left_where_others_have_changed_what_it_said(
    place: Place,
) -> None:
    with sennit.open(place.address, user="ada") as client:
        secret = client.session("secret")
        talk(secret, "My favourite instrument is the xylophone.")
        secret.commit()
        talk(client.session("later"), "My favourite instrument is the drum now.")
        client.session("later").commit()
        secret.remove_message(that_said(secret, "xylophone"))
        assert "drum" in str(memories(client))
        assert place.traces() == []


@pytest.mark.parametrize(
    ("secret", "repeated"),
    [
        (("I live in Lisbon because of the xylophones.",), "I live in Lisbon."),
        (
            ("My sister is called Grace.", "My sister Grace plays the xylophone."),
            "My sister is called Grace.",
        ),
    ],
)
def test_whoever_repeats_a_part_does_not_keep_the_rest(
    place: Place, secret: tuple[str, ...], repeated: str
) -> None:
    with sennit.open(place.address, user="ada") as client:
        talk(client.session("secret"), *secret)
        client.session("secret").commit()
        talk(client.session("later"), repeated)
        assert client.session("later").commit()["counts"]["confirmed"] == 1
        client.forget(session="secret")
        assert place.traces() == []


def test_forgetting_whoever_repeats_a_part_leaves_the_whole(client: Client) -> None:
    said_on(client, SPRING, "one", "My sister is called Grace.", "My sister Grace plays chess.")
    said_on(client, SPRING, "one", "I live in Lisbon because of the sun.")
    before = memories(client)
    said_on(client, SPRING + DAY, "two", "My sister is called Grace.", "I live in Lisbon.")
    client.forget(session="two")
    assert memories(client) == before


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("My dog Rex is five.", "My dog Rex likes cheese."),
        ("I drink tea.", "I drink tea with milk."),
        ("I drink tea with milk.", "I drink tea without milk."),
        ("I work at Acme.", "I work at Acme as a nurse."),
        ("I like C.", "Well, I like C++, and my name is Ada."),
        ("I live in Lisbon.", "I moved to Berlin."),
        ("I live in Lisbon because of the sun.", "I live in Lisbon."),
        ("I live in Lisbon.", "I moved to Lisbon."),
        ("My sister Grace lives in Oslo.", "My sister is called Grace."),
        ("I no longer like coffee.", "I hate coffee."),
    ],
)
@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_forgetting_one_session_leaves_all_that_another_has_said(
    client: Client, one: str, two: str
) -> None:
    for forgotten, left in (("one", two), ("two", one)):
        said_on(client, SPRING, "alone", left)
        alone = sorted(memories(client).values())
        client.forget(user="ada")
        said_on(client, SPRING, "one", one)
        said_on(client, SPRING, "two", two)
        client.forget(session=forgotten)
        assert sorted(memories(client).values()) == alone
        client.forget(user="ada")


def test_a_sentence_that_was_replaced_stands_in_its_memory_again(client: Client) -> None:
    said_on(client, SPRING, "one", "I like tea with honey.", "I like tea.")
    before = memories(client)
    said_on(client, SPRING + DAY, "two", "I hate tea.")
    assert "I like tea." not in str(memories(client))
    client.forget(session="two")
    assert memories(client) == before


def test_what_was_true_before_holds_again_when_all_that_took_its_place_is_forgotten(
    client: Client,
) -> None:
    for number, home in enumerate(("Lisbon", "Berlin", "Paris")):
        said_on(client, SPRING + number * DAY, home, f"I live in {home}.")
    client.forget(session="Berlin")
    [said] = memories(client).values()
    assert "~~I live in Lisbon.~~" in said
    assert "- I live in Paris." in said
    client.forget(session="Paris")
    [said] = memories(client).values()
    assert said.splitlines()[2:] == ["- I live in Lisbon."]


def test_what_all_agents_of_a_forgotten_user_know_is_gone_and_nothing_of_others(
    store: Store,
) -> None:
    ada, bob = (Client(store, user=name, agent="helper") for name in ("ada", "bob"))
    coder = Client(store, user="ada", agent="coder")
    for one in (ada, bob, coder):
        said_on(one, SPRING, one.agent, "Before deploying, first run the xylophone tests.")
        one.fs.write("viking://agent/skills/deploy.md", "How to deploy.")
        one.fs.write("viking://resources/guide.md", "A guide.")
    ada.forget(user="ada")
    for one in (ada, coder):
        assert memories(one) == {}
        assert not one.fs.exists("viking://agent/skills/deploy.md")
        assert not one.fs.exists("viking://resources/guide.md")
    assert [kept.category for kept in bob.memory.all()] == ["patterns"]
    assert bob.fs.read("viking://agent/skills/deploy.md") == "How to deploy."
    assert bob.fs.read("viking://resources/guide.md") == "A guide."


def test_a_commit_of_another_agent_is_undone_with_its_memories(store: Store) -> None:
    ada, coder = (Client(store, user="ada", agent=name) for name in ("helper", "coder"))
    task = said_on(coder, SPRING, "chat", "Before deploying, first run the xylophone tests.")
    (uri,) = memories(coder)
    assert ada.undo_commit(task).removed == [uri]
    assert memories(coder) == {}


def test_uses_are_taken_back_from_the_agent_that_they_were_counted_for(store: Store) -> None:
    skill = "viking://agent/skills/search"
    ada, coder = agents = [Client(store, user="ada", agent=name) for name in ("helper", "coder")]
    tasks: list[str] = []
    for one, key in zip(agents, ("hers", "its"), strict=True):
        one.fs.write(skill, "How to search.")
        one.session(key).used(contexts=[skill])
        tasks.append(said_on(one, SPRING, key, "Where is it?"))
    ada.undo_commit(tasks[1])
    assert [one.fs.stat(skill).active_count for one in (ada, coder)] == [1, 0]


def test_what_a_model_was_about_to_write_goes_with_what_it_was_shown(place: Place) -> None:
    told = {"memories": [{"category": "preferences", "content": "I like tea.", "evidence": [1]}]}
    joined = {"candidate": 1, "action": "MERGE", "known": "A", "text": ""}
    with sennit.open(place.address, user="ada") as client:
        said_on(client, SPRING, "secret", "I like tea with xylophones.")
        client.memory.use(
            model=ScriptedModel(
                [json.dumps(told), json.dumps({"decisions": [joined]}), *repeat("No.", 3)]
            )
        )
        talk(client.session("chat"), "I like tea.")
        with (
            faults.arm("memory.commit: marked", faults.raising(CutOffError())),
            pytest.raises(CutOffError),
        ):
            client.session("chat").commit()
        client.forget(session="secret")
        assert place.traces() == []
        client.memory.use(model=None)
        assert [one.status for one in client.finish_commits()] == ["committed"]
        assert [one.text for one in client.memory.all()] == ["I like tea.\n"]


def test_one_line_of_the_profile_is_forgotten_alone(place: Place) -> None:
    with sennit.open(place.address, user="ada") as client:
        said_on(client, SPRING, "one", "My name is Ada.", "I live in Xylophonia.")
        said_on(client, SPRING + DAY, "two", "I am a vegetarian.")
        client.delete_session("one")  # what it said is remembered all the same
        facts = engine_of(client.memory).scope.store.find_file(
            engine_of(client.memory).scope.user, "memories/profile.md"
        )
        assert facts is not None
        uid = next(one["id"] for one in facts.latest.info["facts"] if "Xylo" in one["text"])
        assert client.forget(uri=f"{PROFILE}#{uid}").files == 1
        assert place.traces() == []
        assert client.fs.read(PROFILE).splitlines()[2:] == [
            "- My name is Ada.", "- I am a vegetarian.",
        ]  # fmt: skip
        for gone in (f"{PROFILE}#{uid}", "viking://user/nothing.md#fact"):
            with pytest.raises(NotFoundError, match="no line"):
                client.forget(uri=gone)


def test_what_a_forgotten_line_of_the_profile_had_replaced_holds_again(client: Client) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.", "I'm allergic to nuts.")
    said_on(client, SPRING + DAY, "two", "I moved to Berlin.", "I'm allergic to nuts and milk.")
    diff = json.loads(client.fs.read("viking://session/two/history/archive_001/memory_diff.json"))
    for one in diff["memories"]:
        client.forget(uri=one["uri"])
    assert client.fs.read(PROFILE).splitlines()[2:] == ["- I live in Lisbon."]
    assert "nuts" not in str(client.memory.history(PROFILE))


def test_what_was_forgotten_is_not_brought_back_by_whoever_had_read_it(client: Client) -> None:
    """The number of a version that is gone is no other's, or it could be taken for that."""
    said_on(client, SPRING, "one", "My name is Ada.")
    said_on(client, SPRING + DAY, "two", "I live in Lisbon.")

    def forget(_: str) -> None:
        client.forget(session="two")

    with faults.arm("memory.commit: write", forget):
        said_on(client, SPRING + 2 * DAY, "three", "I am a vegetarian.")
    assert client.fs.read(PROFILE).splitlines()[2:] == ["- My name is Ada.", "- I am a vegetarian."]


def test_forgetting_goes_on_where_others_write_at_the_same_time() -> None:
    class Busy(MemoryStore):
        """Lets a commit end between the look and the change, once."""

        def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
            found = super().file_versions(owner, file)
            if late:
                said_on(Client(self), SPRING + DAY, "late", late.pop())
            return found

    late: list[str] = []
    client = Client(Busy())
    said_on(client, SPRING, "zero", "I am a vegetarian.")
    said_on(client, SPRING, "one", "My name is Ada.")
    late.append("I live in Lisbon.")
    client.forget(session="one")
    profile = client.fs.read(PROFILE).splitlines()[2:]
    assert profile == ["- I am a vegetarian.", "- I live in Lisbon."]


def test_a_commit_that_was_forgotten_meanwhile_is_not_found() -> None:
    client = Client(MemoryStore())
    task = said_on(client, SPRING, "one", "My name is Ada.")
    client.forget(session="one")
    for ask in (client.get_task, client.undo_commit, client.retry_task):
        with pytest.raises(NotFoundError):
            ask(task)


def test_a_commit_that_ends_while_its_session_is_forgotten_leaves_nothing() -> None:
    class Late(MemoryStore):
        """Lets a commit end just before the session is deleted."""

        def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
            other.session("one").commit()
            return super().delete_session(owner, session, before)

    other = Client(Late())
    talk(other.session("one"), "My name is Ada.")
    other.forget(session="one")
    assert memories(other) == {}

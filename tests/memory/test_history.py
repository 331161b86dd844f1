"""What held when, where it came from, the way back, and forgetting for good."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

import sennit
from sennit import AccessError, Client, NotFoundError, ValidationError, clock
from sennit.memory.context import MemoryContext
from sennit.stores.base import Store
from sennit.stores.memory import MemoryStore
from sennit.stores.records import Owner
from sennit.testing import ScriptedModel
from tests.memory.remembering import TALK, client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

PROFILE = "viking://user/memories/profile.md"
DAY = timedelta(days=1)
SPRING = datetime(2026, 3, 1, tzinfo=UTC)


def said_on(client: Client, day: datetime, session: str, *said: str) -> str:
    """Say something on a day, and commit it; gives the commit's id."""
    moment = clock.from_datetime(day) * 1000
    ticks = iter(range(10**9))
    with clock.using(lambda: moment + next(ticks) * 1000):
        talk(client.session(session), *said)
        return client.session(session).commit().task_id or ""


def profile_at(client: Client, day: datetime) -> str:
    return "".join(one.text for one in client.memory.at(day, "profile"))


def test_a_changed_fact_closes_the_old_one(client: Client) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.")
    said_on(client, SPRING + 30 * DAY, "two", "I moved to Berlin.")
    assert profile_at(client, SPRING - DAY) == ""
    assert "Lisbon" in profile_at(client, SPRING + DAY)
    later = profile_at(client, SPRING + 31 * DAY)
    assert "Berlin" in later
    assert "Lisbon" not in later
    assert "~~I live in Lisbon.~~ (until 2026-03-31)" in client.fs.read(PROFILE)


def test_history_tells_each_version_and_what_it_rests_on(client: Client) -> None:
    first = said_on(client, SPRING, "one", "I live in Lisbon.")
    second = said_on(client, SPRING + DAY, "two", "I moved to Berlin.")
    versions = client.memory.history(PROFILE)
    assert [one.version for one in versions] == [1, 2]
    assert [str(one.commit_id) for one in versions] == [first, second]
    assert [len(one.evidence) for one in versions] == [1, 2]
    assert versions[0].learnt_at < versions[1].learnt_at
    assert client.memory.history(f"{PROFILE}#fact") == versions


def test_a_preference_has_its_time(client: Client) -> None:
    said_on(client, SPRING, "one", "My favourite drink is tea.")
    said_on(client, SPRING + 10 * DAY, "two", "My favourite drink is coffee now.")
    for day, drink in ((SPRING + DAY, "tea"), (SPRING + 11 * DAY, "coffee")):
        (held,) = client.memory.at(day, "preferences")
        assert drink in held.text
    first, second = client.memory.history(held.uri)
    assert first.valid_to == second.valid_from >= SPRING + 10 * DAY
    assert second.valid_to is None


def test_memories_are_listed_by_category(client: Client) -> None:
    talk(client.session("chat"), *TALK)
    client.session("chat").commit()
    assert {one.category for one in client.memory.all()} >= {"profile", "preferences"}
    assert {one.category for one in client.memory.all("profile")} == {"profile"}
    with pytest.raises(ValueError, match="colours"):
        client.memory.all("colours")


def test_an_undone_commit_leaves_what_was_before(client: Client) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.", "I prefer tea to coffee.")
    before = memories(client)
    second = said_on(
        client, SPRING + DAY, "two", "I moved to Berlin.", "My sister is called Grace."
    )
    assert memories(client) != before
    undone = client.undo_commit(second)
    assert memories(client) == before
    assert undone.removed
    assert undone.restored == [PROFILE]
    assert client.get_task(second).status == "undone"
    assert client.undo_commit(second).removed == []
    assert client.session("two").commit()["archived"] is False


def test_an_undone_commit_that_was_the_first_leaves_nothing(client: Client) -> None:
    only = said_on(client, SPRING, "one", *TALK)
    client.undo_commit(only)
    assert memories(client) == {}
    assert client.fs.ls("viking://user/memories/preferences") == []


def test_undoing_an_older_commit_keeps_what_came_later(client: Client) -> None:
    first = said_on(client, SPRING, "one", "My name is Ada.", "I live in Lisbon.")
    said_on(client, SPRING + DAY, "two", "I moved to Berlin.")
    client.undo_commit(first)
    profile = client.fs.read(PROFILE)
    assert "Berlin" in profile
    assert "Ada" not in profile
    assert "Lisbon" not in profile
    assert [one.did for one in client.memory.history(PROFILE)] == ["updated", "restored"]


def test_undoing_takes_counts_back(client: Client) -> None:
    client.fs.write("viking://resources/guide.md", "x")
    session = client.session("chat")
    talk(session, "one")
    session.used(contexts=["viking://resources/guide.md"])
    result = session.commit()
    assert client.fs.stat("viking://resources/guide.md").active_count == 1
    client.undo_commit(result.task_id or "")
    assert client.fs.stat("viking://resources/guide.md").active_count == 0


def test_a_memory_others_have_joined_to_is_kept_and_said_so(client: Client) -> None:
    first = said_on(client, SPRING, "one", "My sister is called Grace.")
    said_on(client, SPRING + DAY, "two", "My sister Grace lives in Porto.")
    joined = [one for one in client.memory.all("entities") if one.did == "merged"]
    assert joined, memories(client)
    assert client.undo_commit(first).kept == [joined[0].uri]
    assert joined[0].text == memories(client)[joined[0].uri]


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


def _traces(folder: Path) -> list[str]:
    """The files in which the word is found."""
    return [file.name for file in folder.iterdir() if b"ylophon" in file.read_bytes().lower()]


@pytest.mark.parametrize("how", ["session", "user", "uri", "folder"])
def test_forgetting_leaves_no_trace_in_the_file(tmp_path: Path, how: str) -> None:
    """Not of what was said, learnt, used, journalled, archived, indexed or written by hand."""
    with sennit.open(tmp_path / "chat.db", user="ada") as client:
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
        assert _traces(tmp_path)
        match how:
            case "user":
                client.forget(user="ada")
            case "session":
                client.forget(session="secret")
            case "uri":
                client.forget(uri=notes)
            case _:
                client.forget(uri="viking://user/notes")
        assert _traces(tmp_path) == []  # while it is open, with the log beside it
    assert _traces(tmp_path) == []


def test_a_forgotten_memory_is_named_nowhere_by_those_who_have_used_it(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db", user="ada") as client:
        talk(client.session("secret"), "I prefer xylophones to trumpets.")
        client.session("secret").commit()
        uses = client.session("uses")
        uses.used(contexts=[one.uri for one in client.memory.all()])
        _turn(client, "uses", "What do I prefer to trumpets?", echoes=False)
        uses.used(contexts=[one.uri for one in client.memory.all()])  # by no commit yet
        client.forget(session="secret")
        assert client.memory.all() == []
        assert _traces(tmp_path) == []
        uses.add_message("user", "Still there?")
        assert uses.commit()["status"] == "committed"


def test_what_a_changed_memory_once_said_is_quoted_nowhere(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db", user="ada") as client:
        talk(client.session("secret"), "My favourite instrument is the xylophone.")
        client.session("secret").commit()
        talk(client.session("later"), "My favourite instrument is the drum now.")
        assert client.session("later").commit()["counts"]["updated"] == 1
        client.forget(session="secret")
        assert "drum" in str(memories(client))
        assert _traces(tmp_path) == []


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

        def delete_session(self, owner: Owner, session: UUID) -> bool:
            other.session("one").commit()
            return super().delete_session(owner, session)

    other = Client(Late())
    talk(other.session("one"), "My name is Ada.")
    other.forget(session="one")
    assert memories(other) == {}

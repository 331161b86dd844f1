"""What held when, where it came from, and the way back."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from sennit import Client, InvalidTypeError, ValidationError
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

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)


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


def test_a_merged_memory_held_since_the_first_of_what_it_joins(client: Client) -> None:
    texts = ("I like green tea.", "I like tea with honey.", "I like green tea with honey.")
    for day, text in enumerate(texts):
        said_on(client, SPRING + day * DAY, f"day {day}", text)
    assert [one.text.strip() for one in client.memory.at(SPRING + DAY / 2)] == [texts[-1]]


def test_memories_are_listed_by_category(client: Client) -> None:
    talk(client.session("chat"), *TALK)
    client.session("chat").commit()
    assert {one.category for one in client.memory.all()} >= {"profile", "preferences"}
    assert {one.category for one in client.memory.all("profile")} == {"profile"}
    with pytest.raises(ValidationError, match=r"one of 'profile'.*got 'colours'"):
        client.memory.all("colours")


def test_what_is_no_memory_has_no_evidence(client: Client) -> None:
    given: Any = "viking://user/memories/profile.md"
    with pytest.raises(InvalidTypeError, match="takes memories"):
        client.memory.evidence(given)


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


def test_what_an_undone_commit_has_confirmed_rests_on_what_others_have_said(
    client: Client,
) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.", "I prefer tea to coffee.")
    before = {one.uri: one.evidence for one in client.memory.all()}
    second = said_on(client, SPRING + DAY, "two", "I live in Lisbon.", "I prefer tea to coffee.")
    assert before != {one.uri: one.evidence for one in client.memory.all()}
    client.undo_commit(second)
    assert before == {one.uri: one.evidence for one in client.memory.all()}


def test_what_others_have_said_too_stays_when_the_first_who_said_it_is_undone(
    client: Client,
) -> None:
    first = said_on(client, SPRING, "one", "I live in Lisbon.", "I prefer tea to coffee.")
    second = said_on(client, SPRING + DAY, "two", "I live in Lisbon.", "I prefer tea to coffee.")
    before = memories(client)
    client.undo_commit(first)
    assert memories(client) == before
    client.undo_commit(second)
    assert memories(client) == {}


def test_what_others_have_said_in_part_stays_when_the_whole_is_undone(client: Client) -> None:
    first = said_on(client, SPRING, "one", "I live in Lisbon because of the sun.")
    second = said_on(client, SPRING + DAY, "two", "I live in Lisbon.")
    client.undo_commit(first)
    assert client.fs.read(PROFILE).splitlines()[2:] == ["- I live in Lisbon."]
    client.undo_commit(second)
    assert memories(client) == {}


def test_undoing_a_change_in_the_middle_leaves_the_last_one(client: Client) -> None:
    said_on(client, SPRING, "one", "I live in Lisbon.")
    second = said_on(client, SPRING + DAY, "two", "I moved to Berlin.")
    third = said_on(client, SPRING + 2 * DAY, "three", "I moved to Paris.")
    client.undo_commit(second)
    assert client.fs.read(PROFILE).splitlines()[2:] == [
        "- ~~I live in Lisbon.~~ (until 2026-03-03)",
        "- I moved to Paris.",
    ]
    client.undo_commit(third)
    assert client.fs.read(PROFILE).splitlines()[2:] == ["- I live in Lisbon."]


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


def test_async_callers_read_the_same(client: Client) -> None:
    done = said_on(client, SPRING, "one", "My name is Ada.", "I live in Lisbon.")
    memory, session = client.memory, client.session("one")

    async def read() -> list[object]:
        found = await memory.aall()
        return [
            found,
            await memory.aget(PROFILE),
            await memory.ahistory(PROFILE),
            await memory.aat(SPRING + DAY),
            await memory.aevidence(found),
            await memory.acommits(session),
            await memory.acommitted(done),
            await client.fs.aexists(PROFILE),
            [one async for one in client.fs.awalk()],
        ]

    found = memory.all()
    assert asyncio.run(read()) == [
        found,
        memory.get(PROFILE),
        memory.history(PROFILE),
        memory.at(SPRING + DAY),
        memory.evidence(found),
        memory.commits(session),
        memory.committed(done),
        True,
        list(client.fs.walk()),
    ]
    assert found

"""A session that is committed late: the time of its statements decides, not that of the commit."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from sennit import Client, clock
from sennit.testing import ScriptedModel
from tests.memory.remembering import DAY, PROFILE, SPRING, client, memories, said_on, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.durable",)

TEA = "I prefer tea to coffee."
COFFEE = "I prefer coffee to tea."


def say(client: Client, day: datetime, session: str, *said: str) -> None:
    """Say something on a day, and leave it uncommitted."""
    moment = clock.from_datetime(day) * 1000
    with clock.wall_clock_from(lambda: moment):
        talk(client.session(session), *said)


def commit_on(client: Client, day: datetime, session: str) -> str:
    moment = clock.from_datetime(day) * 1000
    with clock.wall_clock_from(lambda: moment):
        result = client.session(session).commit()
        assert result.status == "committed"
        return result.task_id or ""


def homes_at(client: Client, day: datetime) -> list[str]:
    return [
        line.removeprefix("- ")
        for memory in client.memory.at(day, "profile")
        for line in memory.text.splitlines()[2:]
    ]


def test_an_older_line_of_the_profile_becomes_history_of_the_newer_one(client: Client) -> None:
    say(client, SPRING, "old", "I live in Lisbon.")
    said_on(client, SPRING + 10 * DAY, "new", "I live in Berlin.")
    commit_on(client, SPRING + 20 * DAY, "old")
    assert client.fs.read(PROFILE).splitlines()[2:] == [
        "- ~~I live in Lisbon.~~ (until 2026-03-11)",
        "- I live in Berlin.",
    ]
    assert homes_at(client, SPRING + 5 * DAY) == ["I live in Lisbon."]
    assert homes_at(client, SPRING + 15 * DAY) == ["I live in Berlin."]
    assert homes_at(client, SPRING + 25 * DAY) == ["I live in Berlin."]
    context = client.session("next").context(query="Where do I live?")
    assert "Berlin" in context.text
    assert "Lisbon" not in context.of("profile")[0].text


def test_an_older_preference_becomes_a_version_before_the_newer_one(client: Client) -> None:
    say(client, SPRING, "old", TEA)
    said_on(client, SPRING + 10 * DAY, "new", COFFEE)
    (uri,) = memories(client)
    evidence = client.memory.get(uri).evidence
    commit_on(client, SPRING + 20 * DAY, "old")
    assert memories(client) == {uri: f"{COFFEE}\n"}
    now = client.memory.get(uri)
    assert (now.valid_to, now.evidence) == (None, evidence)
    assert [one.text.strip() for one in client.memory.history(uri)] == [TEA, COFFEE, COFFEE]
    old, *_ = client.memory.history(uri)
    assert (old.valid_from, old.valid_to) == (SPRING, now.valid_from)
    for days, text in ((5, TEA), (15, COFFEE), (25, COFFEE)):
        day = SPRING + days * DAY
        assert [one.text.strip() for one in client.memory.at(day)] == [text]
        assert [
            match.abstract for match in client.find("tea coffee", category="preferences", at=day)
        ] == [text]
    assert [match.abstract for match in client.find("tea", category="preferences")] == [COFFEE]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_any_order_of_commits_leads_to_the_same_history(
    client: Client, order: tuple[int, ...]
) -> None:
    cities = ("Lisbon", "Porto", "Berlin")
    drinks = ("tea", "coffee", "milk")
    for number in range(3):
        said = f"I live in {cities[number]}. My favourite drink is {drinks[number]}."
        say(client, SPRING + 10 * number * DAY, str(number), said)
    for place, number in enumerate(order):
        commit_on(client, SPRING + (40 + place) * DAY, str(number))
    for number in range(3):
        day = SPRING + (10 * number + 5) * DAY
        assert homes_at(client, day) == [f"I live in {cities[number]}."]
        (drink,) = client.memory.at(day, "preferences")
        assert drinks[number] in drink.text
        (found,) = client.find("favourite drink", category="preferences", at=day)
        assert drinks[number] in found.abstract
    assert [line.count("~~") for line in client.fs.read(PROFILE).splitlines()[2:]] == [2, 2, 0]


def test_of_statements_made_at_the_same_time_the_last_committed_holds(client: Client) -> None:
    say(client, SPRING, "one", "I live in Lisbon.")
    say(client, SPRING, "two", "I live in Berlin.")
    for session in ("two", "one"):
        commit_on(client, SPRING + DAY, session)
    assert homes_at(client, SPRING + 2 * DAY) == ["I live in Lisbon."]


def test_the_newer_statement_wins_even_if_it_is_about_an_earlier_time(client: Client) -> None:
    said_on(client, SPRING, "known", "I live in Lisbon.")
    say(client, SPRING + DAY, "late", "I live in Porto.")
    said_on(client, SPRING + 2 * DAY, "new", "I am living in Berlin since 2024.")
    commit_on(client, SPRING + 3 * DAY, "late")
    assert homes_at(client, SPRING + 4 * DAY) == ["I am living in Berlin since 2024."]


def test_an_older_statement_about_a_later_time_replaces_the_known_one(client: Client) -> None:
    say(client, SPRING, "old", "I live in Porto since April 2026.")
    said_on(client, SPRING + DAY, "new", "I live in Lisbon.")
    commit_on(client, SPRING + 2 * DAY, "old")
    assert homes_at(client, SPRING + 3 * DAY) == ["I live in Lisbon."]
    assert homes_at(client, SPRING + 60 * DAY) == ["I live in Porto since April 2026."]


def test_a_statement_that_was_repeated_since_is_not_replaced(client: Client) -> None:
    said_on(client, SPRING, "first", "I live in Lisbon.", TEA)
    say(client, SPRING + 10 * DAY, "late", "I live in Berlin.", COFFEE)
    said_on(client, SPRING + 20 * DAY, "again", "I live in Lisbon.", TEA)
    commit_on(client, SPRING + 30 * DAY, "late")
    assert client.fs.read(PROFILE).splitlines()[-1] == "- I live in Lisbon."
    assert [one.text.strip() for one in client.memory.all("preferences")] == [TEA]
    assert len(client.memory.all("preferences")[0].evidence) == 2


def test_a_repetition_of_what_held_then_adds_evidence_only(client: Client) -> None:
    said_on(client, SPRING, "first", "I live in Lisbon.")
    say(client, SPRING + 5 * DAY, "late", "I live in Lisbon.")
    said_on(client, SPRING + 10 * DAY, "new", "I live in Berlin.")
    before = client.fs.read(PROFILE)
    commit_on(client, SPRING + 20 * DAY, "late")
    assert client.fs.read(PROFILE) == before


def test_another_sentence_of_a_memory_keeps_its_own_time(client: Client) -> None:
    said_on(client, SPRING, "first", "My sister Anna lives in Porto.")
    say(client, SPRING + 10 * DAY, "late", "My sister Anna lives in Berlin.")
    said_on(client, SPRING + 20 * DAY, "cheese", "My sister Anna loves cheese.")
    commit_on(client, SPRING + 30 * DAY, "late")
    (anna,) = client.memory.all("entities")
    assert "Berlin" in anna.text
    assert "cheese" in anna.text
    assert "Porto" not in anna.text


def test_a_model_cannot_replace_a_newer_statement_either(client: Client) -> None:
    say(client, SPRING, "old", TEA, "I live in Lisbon.")
    said_on(client, SPRING + 10 * DAY, "new", COFFEE, "I live in Berlin.")
    memories_ = (
        '{"memories": [{"category": "preferences", "content": "I prefer tea to coffee.",'
        ' "evidence": [1]}, {"category": "profile", "content": "I live in Lisbon.",'
        ' "evidence": [3]}]}'
    )
    decisions = (
        '{"decisions": [{"candidate": 1, "action": "UPDATE", "known": "A", "text":'
        ' "I prefer tea to coffee."}, {"candidate": 2, "action": "UPDATE", "known": "A",'
        ' "text": "I live in Lisbon."}]}'
    )
    client.memory.use(model=ScriptedModel([memories_, decisions, "no summary"]))
    commit_on(client, SPRING + 20 * DAY, "old")
    assert homes_at(client, SPRING + 21 * DAY) == ["I live in Berlin."]
    assert homes_at(client, SPRING + 5 * DAY) == ["I live in Lisbon."]
    assert [one.text.strip() for one in client.memory.all("preferences")] == [COFFEE]
    assert [one.text.strip() for one in client.memory.at(SPRING + 5 * DAY, "preferences")] == [TEA]


def test_undo_and_forget_of_either_leave_the_other(client: Client) -> None:
    def late(name: str) -> tuple[str, str]:
        say(client, SPRING, f"old {name}", TEA, "I live in Lisbon.")
        new = said_on(client, SPRING + 10 * DAY, f"new {name}", COFFEE, "I live in Berlin.")
        return commit_on(client, SPRING + 20 * DAY, f"old {name}"), new

    def known() -> tuple[list[str], list[str]]:
        now = SPRING + timedelta(days=25)
        return homes_at(client, now), [
            one.text.strip() for one in client.memory.at(now, "preferences")
        ]

    berlin, lisbon = (["I live in Berlin."], [COFFEE]), (["I live in Lisbon."], [TEA])
    for remove_old, expected in ((True, berlin), (False, lisbon)):
        old, new = late("undone")
        client.undo_commit(old if remove_old else new)
        assert known() == expected
        client.forget(user="ada")
        late("forgotten")
        client.forget(session="old forgotten" if remove_old else "new forgotten")
        assert known() == expected
        text = str(memories(client)) + str(client.memory.history(next(iter(memories(client)))))
        assert ("Lisbon" if remove_old else "Berlin") not in text
        client.forget(user="ada")


def test_the_newest_remains_current_when_its_confirmation_is_forgotten(client: Client) -> None:
    said_on(client, SPRING + 10 * DAY, "first", COFFEE)
    confirmed = said_on(client, SPRING + 11 * DAY, "again", COFFEE)
    say(client, SPRING, "late", TEA)
    commit_on(client, SPRING + 20 * DAY, "late")
    assert [one.text.strip() for one in client.memory.all("preferences")] == [COFFEE]
    client.undo_commit(confirmed)
    assert [one.text.strip() for one in client.memory.all("preferences")] == [COFFEE]
    client.forget(session="first")
    client.forget(session="again")
    (left,) = client.memory.all("preferences")
    assert (left.text.strip(), left.valid_to) == (TEA, None)

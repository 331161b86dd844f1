"""Finding: memories and messages alike, ranked by what stands around them, never anyone else's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import (
    AssistantResponseContent,
    Client,
    InstructionContent,
    Message,
    Session,
    ValidationError,
    clock,
)
from sennit.ids import new_id
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.find import Match
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.records.files import PutFile, VersionRecord
from sennit.stores.sqlite.store import SQLiteStore
from tests.memory.remembering import client, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

JUNE = datetime(2025, 6, 3, 12, tzinfo=UTC)


def say(session: Session, *texts: str, by: str = "Nora", at: datetime = JUNE) -> list[Message]:
    """Put messages on the main branch."""
    made = [
        Message(
            InstructionContent(instruction=text), sender=by, created_at=at + timedelta(minutes=n)
        )
        for n, text in enumerate(texts)
    ]
    for message in made:
        session.add_message(message, branches=session.default_branch)
    return made


def ids(found: list[Match]) -> list[str]:
    return [str(one.evidence[0].message) for one in found if one.category == "message"]


def test_messages_are_found_whether_they_were_archived_or_not(client: Client) -> None:
    session = client.session("chat")
    talk(session, "The kiln is standing in the yard.")
    session.commit()
    talk(session, "A second kiln would be too much.")
    found = client.find("kiln", category="message", limit=2)
    assert {one.uri for one in found} == {
        "viking://session/chat/history/archive_001/messages.jsonl",
        "viking://session/chat/messages.jsonl",
    }


def test_memories_are_found_with_their_category_and_the_messages_they_rest_on(
    client: Client,
) -> None:
    session = client.session("chat")
    talk(session, "My parrot is called Kiki.")
    session.commit()
    found = [one for one in client.find("the name of my parrot") if one.category == "entities"]
    assert len(found) == 1
    assert "Kiki" in found[0].abstract
    assert found[0].uri.startswith("viking://user/memories/entities/")
    said = next(one for one in session.messages if "Kiki" in str(one.rendered))
    assert [one.message for one in found[0].evidence] == [said.id]


def test_other_forms_of_a_word_are_found(client: Client) -> None:
    (said,) = say(client.session("chat"), "We were painting the shutters")
    assert ids(client.find("Who paints shutters?")) == [str(said.id)]


def test_an_answer_is_found_beside_the_words_of_its_question(client: Client) -> None:
    session = client.session("chat")
    said = say(
        session,
        "Nice weather today",
        "How much is the rent of the studio?",
        "Nine hundred a month.",
        "And is heating extra?",
        "I will have soup tonight",
    )
    found = ids(client.find("rent of the studio", limit=3))
    assert found[0] == str(said[1].id)
    assert found[1] == str(said[2].id), "what follows a hit comes before what leads to it"


def test_a_hit_is_never_shut_out_because_it_stands_alone(client: Client) -> None:
    crowd, alone = client.session("crowd"), client.session("alone")
    say(crowd, *(f"kiln number {n} was fired" for n in range(30)))
    (said,) = say(alone, "Gerald moulted")
    assert ids(client.find("gerald kiln", limit=1)) == [str(said.id)]


def test_who_said_it_and_when_are_words_too(client: Client) -> None:
    session = client.session("chat")
    say(session, "I like tea", by="Max")
    (nora,) = say(session, "I like tea", by="Nora", at=JUNE + timedelta(days=40))
    assert ids(client.find("Which tea does Nora like?", limit=1)) == [str(nora.id)]
    assert ids(client.find("tea in July", limit=1)) == [str(nora.id)]


def test_roles_are_not_taken_for_names(client: Client) -> None:
    talk(client.session("chat"), "The bowl broke")
    assert client.find("user assistant") == []


def test_a_search_says_what_its_scores_are_made_of(client: Client) -> None:
    session = client.session("chat")
    talk(session, "My parrot is called Kiki.", "Parrots sleep standing.")
    session.commit()
    for one in client.find("parrot", explain=True):
        assert sum(one.explained.values()) == pytest.approx(one.score)
        assert set(one.explained) <= {
            "words", "near", "together", "distilled", "recent", "used", "meaning"
        }  # fmt: skip
    assert all(not one.explained for one in client.find("parrot"))


def test_the_best_comes_first_and_scores_lie_between_0_and_1(client: Client) -> None:
    say(client.session("chat"), *(f"kiln {'yard ' * n}" for n in range(8)))
    scores = [one.score for one in client.find("kiln yard", limit=8)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_a_search_can_be_kept_to_a_session_or_an_archive(client: Client) -> None:
    here, there = client.session("here"), client.session("there")
    talk(here, "A kiln in the yard")
    here.commit()
    talk(here, "The kiln again")
    talk(there, "Their kiln")
    within = client.find("kiln", "viking://session/here")
    assert {one.uri.split("/")[3] for one in within} == {"here"}
    archived = client.find("kiln", "viking://session/here/history/archive_001")
    assert {one.uri for one in archived} == {
        "viking://session/here/history/archive_001/messages.jsonl"
    }
    assert client.find("kiln", "viking://session/nobody") == []


def test_an_archive_is_searched_although_much_else_in_its_session_fits_better() -> None:
    client = Client(MemoryStore())
    session = client.session("here")
    talk(session, "The kiln is hot, and the clay is dry, and the glaze is blue.")
    session.commit()
    session.add_messages([Message({"instruction": f"kiln {n}"}) for n in range(200)])
    (found,) = client.find("kiln", "viking://session/here/history/archive_001", 1)
    assert "clay" in found.abstract


def test_a_search_can_be_kept_to_a_folder_a_file_or_a_kind(client: Client) -> None:
    client.fs.write("viking://resources/kiln/manual.md", "How to fire a kiln.")
    client.fs.write("viking://resources/kilns.md", "All kilns we have.")
    talk(client.session("chat"), "The kiln is hot")
    inside = client.find("kiln", "viking://resources/kiln")
    assert [one.uri for one in inside] == ["viking://resources/kiln/manual.md"]
    assert [one.uri for one in client.find("kiln", "viking://resources/kilns.md")] == [
        "viking://resources/kilns.md"
    ]
    assert {one.category for one in client.find("kiln", category="message")} == {"message"}
    assert client.find("kiln", category=["events", "profile"]) == []


def test_a_search_can_be_kept_to_a_time(client: Client) -> None:
    session = client.session("chat")
    old, new = say(session, "kiln one"), say(session, "kiln two", at=JUNE + timedelta(days=9))
    later = JUNE + timedelta(days=5)
    assert ids(client.find("kiln", since=later)) == [str(new[0].id)]
    assert ids(client.find("kiln", until=later)) == [str(old[0].id)]
    assert ids(client.find("kiln", at=later)) == [str(old[0].id)]


def test_an_earlier_time_shows_what_held_then(client: Client) -> None:
    realm, uid = engine_of(client.memory).scope, new_id()
    for number, (day, text) in enumerate([(1, "The kiln is small."), (9, "The kiln is large.")], 1):
        held = clock.from_datetime(datetime(2025, 3, day, tzinfo=UTC))
        version = VersionRecord(number=number, written=held, valid_from=held, body=text.encode())
        put = PutFile(realm.user, uid, "memories/entities/kiln.md", "entities", version)
        realm.store.change_files([put])
    assert [one.abstract for one in client.find("kiln")] == ["The kiln is large."]
    before = client.find("kiln", at=datetime(2025, 3, 5, tzinfo=UTC))
    assert [one.abstract for one in before] == ["The kiln is small."]
    assert client.find("kiln", at=datetime(2025, 2, 1, tzinfo=UTC)) == []


def test_what_was_used_often_comes_first_among_equals(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.fs.write(f"viking://resources/{name}.md", "The kiln manual.")
    session = client.session("chat")
    talk(session, "Let us read.")
    session.used(contexts=["viking://resources/b.md"])
    session.commit()
    assert client.find("kiln", "viking://resources", 1)[0].uri == "viking://resources/b.md"


def test_what_is_gone_is_not_found(client: Client) -> None:
    session = client.session("chat")
    say(session, "A canary in the kiln")
    client.fs.write("viking://resources/bird.md", "The canary sings.")
    assert len(client.find("canary")) == 2
    client.fs.rm("viking://resources/bird.md")
    client.delete_session("chat")
    assert client.find("canary") == []


@pytest.mark.parametrize("wrong", ["viking://elsewhere/x", "viking://user/../x", "file:///etc"])
def test_a_target_outside_is_refused(wrong: str, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client, pytest.raises(ValidationError):
        client.find("kiln", wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": True},
        {"category": "secrets"},
        {"category": 5},
        {"category": [{}]},
        {"since": datetime(2025, 1, 1)},
    ],
    ids=str,
)
def test_wrong_limits_kinds_and_times_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client, pytest.raises(ValidationError):
        client.find("kiln", **wrong)


HOSTILE = (
    "", "   ", '"', "'; DROP TABLE words; --", "kiln AND NOT (", "NEAR(kiln, 2)", "said : kiln",
    "kiln*", "^kiln", "{kiln}", "& | ! <->", "kiln\\", "%s %(query)s", "🔥 ḱíĺń",
    "a" * 1_000_000, "kiln " * 200_000, " ".join(f"w{n}" for n in range(50_000)),
)  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_breaks_a_search(client: Client, query: str) -> None:
    (said,) = say(client.session("chat"), "The kiln is hot")
    found = ids(client.find(query))
    assert found in ([], [str(said.id)])


@pytest.mark.parametrize("query", ["\x00kiln", "\ud800", None, 7])
def test_what_no_store_can_hold_is_refused_as_a_query(query: str, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client, pytest.raises(ValidationError):
        client.find(query)


WORDS = st.sampled_from(["kiln", "parrot", "canary", "yard", "tea"])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["ada", "bob", "eve"]),
        st.sampled_from(["say", "write", "share", "find", "delete"]),
        st.lists(WORDS, min_size=1, max_size=4).map(" ".join),
    ),
    max_size=15,
)


@given(CALLS)
def test_nobody_finds_what_is_someone_elses(calls: list[tuple[str, str, str]]) -> None:
    store = MemoryStore()
    _check_owners(store, calls)
    store.close()


@given(CALLS)
def test_nobody_finds_what_is_someone_elses_in_a_file(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str, str]]
) -> None:
    store = SQLiteStore(tmp_path_factory.mktemp("found") / "a.db", durability="normal")
    _check_owners(store, calls)
    store.close()


def _check_owners(store: Store, calls: list[tuple[str, str, str]]) -> None:
    """Each user's texts carry a mark that no other may ever see."""
    clients = {
        name: Client(store, tenant=f"tenant of {name}", user=name, agent=name)
        for name in ("ada", "bob", "eve")
    }
    for name, act, text in calls:
        client = clients[name]
        if act == "say":
            client.session("chat").add_message("user", f"{text} mark{name}")
        elif act == "write":
            client.fs.write("viking://user/notes.md", f"{text} mark{name}")
        elif act == "share":
            client.fs.write("viking://resources/notes.md", f"{text} mark{name}")
        elif act == "delete":
            client.delete_session("chat")
        for one in client.find(f"{text} markada markbob markeve", limit=50):
            assert f"mark{name}" in one.abstract


def test_a_twin_for_async_callers_finds_the_same(tmp_path: Path) -> None:
    import asyncio

    with sennit.open(tmp_path / "chat.db") as client:
        say(client.session("chat"), "The kiln is hot")
        twin, found = asyncio.run(client.afind("kiln")), client.find("kiln")
        assert ids(twin) == ids(found) != []


def test_answers_of_the_assistant_are_found_as_well(client: Client) -> None:
    session = client.session("chat")
    answer = Message(AssistantResponseContent("Use a cone six glaze."))
    session.add_message(answer, branches=session.default_branch)
    assert ids(client.find("glaze")) == [str(answer.id)]

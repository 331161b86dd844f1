"""Search: messages are found by their words at once, and never after erasure."""

from __future__ import annotations

from msgspec.structs import replace

from sennit.errors import ExistsError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.records.files import PutFile, RemoveFile, VersionRecord
from sennit.stores.records.search import FileQuery, TextQuery
from sennit.stores.records.sessions import AddMessages, Append, FoundMessage, MessageRecord
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    Scenario,
    empty,
    message,
    same,
)

_LONG = "的人在说话的时候" * 2_000

_SAID: dict[str, tuple[str, dict[str, str]]] = {
    "case and other forms of a word": (
        "The PARROT sleeps|some parrots|the cat hunts",
        {"01": "pArRoT|parrots", "2": "cat", "": "elephant|instruction content type"},
    ),
    "scripts beyond ASCII": (
        "привет попугай|καλημέρα παπαγάλε",
        {"0": "попугай|ПОПУГАЙ", "1": "καλημέρα"},
    ),
    "accents, together with their letter or apart": (
        "café naïve résumé Häuser|İstanbul",
        {"0": "cafe|CAFÉ|naive|resume|Hauser|häuser|cafe\u0301", "1": "istanbul"},
    ),
    "parts of a name with an underscore": (
        "call bird_song now|a bird",
        {"0": "song|bird_song", "01": "bird"},
    ),
    "any part of a text without spaces": (
        "我喜欢打结|この文章には猫が出てきます|ฉันชอบนกแก้วที่นี่",
        {
            "0": "打结|喜欢|我|我喜欢打结",
            "1": "猫|文章|には猫|出てきます",
            "2": "นกแก้ว|ที่นี่",
            "": "结打|欢我|猫章|鳥",
        },
    ),
    "words of a sentence without spaces": ("他每天打结|今天下雨", {"0": "我喜欢打结吗"}),
    "the end of a long text without spaces": (f"{_LONG}打结|的人", {"0": "打结"}),
    "signs and operators, which are only text": (
        "the parrot sleeps|a cat",
        {
            "0": "\"parrot|parrot*|parrot'; --|(parrot|-parrot|^parrot:|{parrot}|parrot AND"
            "|OR parrot|NOT parrot|NEAR parrot|said: parrot",
            "": "|   |?!|\n|%",
        },
    ),
}
"""What is searched for; the messages, and which of them each of several questions finds."""


def _search(s: Scenario, text: str, limit: int = 50) -> list[FoundMessage]:
    return s.store.search(OWNER, text, session=None, limit=limit)


def questions_find_the_messages_with_their_words(s: Scenario) -> None:
    for what, (said, questions) in _SAID.items():
        scene, texts = s.beside(), said.split("|")
        scene.branch("main", texts)
        for found, asked in questions.items():
            expected = {scene[texts[int(at)]] for at in found}
            for question in asked.split("|"):
                same(scene.found(question, here=True), expected, f"{what}: {question!r}")


def a_message_is_found_right_after_it_was_written(s: Scenario) -> None:
    s.branch()
    for n in range(20):
        word = chr(ord("a") + n) * 5
        s.append("main", [f"parrot {word}"]).finds(word, [f"parrot {word}"])
    (hit,) = _search(s, "bbbbb")
    same((hit.session, hit.message), (s.id, s["parrot bbbbb"]), "Session and message")
    same(len(_search(s, "parrot", limit=5)), 5, "Messages with limit=5")


def a_message_that_holds_more_of_the_words_comes_first(s: Scenario) -> None:
    s.branch("main", ["parrot", "parrot hat", "parrot hat shoe", "hat", "nothing of it"])
    hits = _search(s, "parrot hat shoe")
    same(hits[0].message, s["parrot hat shoe"], "The first message found")
    scores = [hit.score for hit in hits]
    same(scores, sorted(scores, reverse=True), "Scores of the messages found")


def a_snippet_is_short_and_shows_the_word(s: Scenario) -> None:
    words = " ".join(["before"] * 100 + ["parrot"] + ["after"] * 100)
    s.branch("main", [words, f"{'y' * 20_000} needle {'z' * 20_000}", f"{_LONG}打结{_LONG}"])
    for text in ("parrot", "needle", "打结"):
        (hit,) = _search(s, text)
        assert text in hit.snippet, f"The snippet does not show the word: {hit.snippet!r}"
        assert len(hit.snippet) < 500, f"The snippet is {len(hit.snippet)} long"


def a_search_can_be_kept_to_one_session(s: Scenario) -> None:
    s.branch("main", ["my parrot"])
    there = s.beside().branch("main", ["their parrot"])
    same(s.found("parrot", here=True), {s["my parrot"]}, "Messages of one session")
    same(s.found("parrot"), {s["my parrot"], there["their parrot"]}, "Messages of all sessions")
    s.store.delete_session(OWNER, there.id)
    s.finds("parrot", ["my parrot"])


def what_was_called_and_answered_is_searched_too(s: Scenario) -> None:
    content = {"function": "weather", "arguments": {"city": "Lisbon"}}
    body = dumps({"type": "action_request", "content": content})
    s.branch().named["call"] = call = MessageRecord(new_id(), NOON, body)
    s.write(AddMessages((call,)), Append(s.stored().id, (call.id,)))
    s.finds("weather", ["call"]).finds("lisbon", ["call"])


def an_erased_or_refused_message_is_not_found(s: Scenario) -> None:
    s.branch("main", ["gone parrot", "parrot"]).finds("parrot", ["gone parrot", "parrot"])
    old = s["gone parrot"]
    s.erase(["gone parrot"]).finds("parrot", ["parrot"]).finds("gone")
    anew = AddMessages((message("an elephant", old),)), Append(s.stored().id, (old,))
    s.write(*anew).finds("gone")
    same(s.found("elephant"), {old}, "The message added anew, by its new words")
    s.refuses(ExistsError, AddMessages((message("a hat"), message("a dog", old)))).finds("hat")


def a_message_on_many_branches_is_found_once(s: Scenario) -> None:
    s.branch("main", ["a parrot"]).fork("main", "one").fork("main", "two").finds(
        "parrot", ["a parrot"]
    )
    same(len(_search(s, "parrot")), 1, "Messages about a parrot")


def a_hit_names_the_messages_around_it(s: Scenario) -> None:
    s.beside().branch("main", ["elsewhere"])
    s.branch("main", ["one", "two", "a parrot", "four", "five", "six"])
    (hit,) = s.store.hits(OWNER, TextQuery(("parrot",)))
    around = s.store.at_places(OWNER, [*hit.before, *hit.after])
    expected = list(s.ids(["two", "one", "four", "five"]))
    same([one.message.id for one in around], expected, "Those before and after, nearest first")


def places_lead_to_messages_in_their_order(s: Scenario) -> None:
    s.branch("main", ["a parrot", "a parrot and a parrot"])
    places = [hit.place for hit in s.store.hits(OWNER, TextQuery(("parrot",)))]
    for wanted in (places, places[::-1], []):
        stored = s.store.at_places(OWNER, wanted)
        same([one.place for one in stored], wanted, "Places in the order they were asked for")
    s.erase(["a parrot"])
    same(len(s.store.at_places(OWNER, places)), 1, "Places after a message was erased")
    same(len(s.store.hits(OWNER, TextQuery(("parrot",)))), 1, "Hits after it was erased")


def hits_can_be_kept_to_a_time(s: Scenario) -> None:
    s.branch("main", ["a parrot"])
    for since, until, count in ((NOON, NOON + 1, 1), (None, NOON, 0), (NOON + 1, None, 0)):
        query = TextQuery(("parrot",), since=since, until=until)
        same(len(s.store.hits(OWNER, query)), count, f"Hits from {since} until {until}")


def a_file_is_found_by_what_it_says_now_or_said_then(s: Scenario) -> None:
    uid, store = new_id(), s.store
    for number, text in enumerate(("a green parrot", "a blue parrot 我喜欢打结"), 1):
        version = VersionRecord(
            number=number, written=NOON, valid_from=NOON + number, body=text.encode()
        )
        store.change_files([PutFile(OWNER, uid, "birds/parrot.md", None, version)])
    asked = FileQuery(("parrot", "green"), (OWNER,))
    then, part = replace(asked, at=NOON + 1), FileQuery(("打结",), (OWNER,))
    for query, number in ((asked, 2), (then, 1), (part, 2)):
        same([hit.file.latest.number for hit in store.file_hits(query)], [number], f"{query}")
    empty("Elsewhere", store.file_hits(replace(asked, under="fish/")))
    empty("Someone else", store.file_hits(replace(asked, owners=(STRANGER,))))
    store.change_files([RemoveFile(OWNER, uid)])
    empty("An erased file", *map(store.file_hits, (asked, then, part)))

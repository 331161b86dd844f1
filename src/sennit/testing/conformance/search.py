"""Search: messages are found by their words at once, and never after erasure."""

from __future__ import annotations

from uuid import UUID

import msgspec

from sennit.errors import ExistsError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.base import Store
from sennit.stores.records.files import PutFile, RemoveFile, VersionRecord
from sennit.stores.records.search import FileQuery, TextQuery
from sennit.stores.records.sessions import AddMessages, Append, FoundMessage, MessageRecord
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    StoreFixture,
    empty,
    message,
    raises,
    same,
)


def _search(
    store: Store, text: str, session: UUID | None = None, limit: int = 50
) -> list[FoundMessage]:
    return store.search(OWNER, text, session=session, limit=limit)


def _found(store: Store, text: str, session: UUID | None = None) -> set[UUID]:
    return {hit.message for hit in _search(store, text, session)}


def a_message_is_found_by_a_word(store: Store) -> None:
    scene = StoreFixture(store)
    parrot, _ = scene.speak("the parrot sleeps", "the cat hunts")
    same(_found(store, "parrot"), {parrot.id}, "Messages about a parrot")


def a_found_message_names_its_session(store: Store) -> None:
    scene = StoreFixture(store)
    parrot = scene.speak("the parrot sleeps")[0]
    hit = _search(store, "parrot")[0]
    same((hit.session, hit.message), (scene.id, parrot.id), "Session and message")


def a_message_is_found_right_after_it_was_written(store: Store) -> None:
    scene = StoreFixture(store)
    for n in range(20):
        word = chr(ord("a") + n) * 5
        one = scene.speak(f"parrot {word}")[0]
        same(_found(store, word), {one.id}, f"The message written last, of {n + 1}")


def a_search_ignores_case(store: Store) -> None:
    one = StoreFixture(store).speak("The PARROT sleeps")[0]
    same(_found(store, "pArRoT"), {one.id}, "Messages about a parrot, whatever its case")


def a_search_finds_other_forms_of_a_word(store: Store) -> None:
    one, many = StoreFixture(store).speak("a parrot", "some parrots")
    same(_found(store, "parrot"), {one.id, many.id}, "Messages about a parrot")
    same(_found(store, "parrots"), {one.id, many.id}, "Messages about parrots")


def a_search_finds_words_beyond_ascii(store: Store) -> None:
    russian, greek = StoreFixture(store).speak("привет попугай", "καλημέρα παπαγάλε")
    same(_found(store, "попугай"), {russian.id}, "A Russian word")
    same(_found(store, "καλημέρα"), {greek.id}, "A Greek word")


def accents_make_no_difference(store: Store) -> None:
    one, other = StoreFixture(store).speak("café naïve résumé Häuser", "İstanbul")
    for text in ("cafe", "CAFÉ", "naive", "resume", "Hauser", "häuser"):
        same(_found(store, text), {one.id}, f"Messages found for {text!r}")
    same(_found(store, "istanbul"), {other.id}, "A capital with a dot")
    same(_found(store, "cafe\u0301"), {one.id}, "An accent that stands apart")


def an_underscore_parts_words(store: Store) -> None:
    one = StoreFixture(store).speak("call bird_song now", "a bird")[0]
    same(_found(store, "song"), {one.id}, "A part of a name")
    same(_found(store, "bird_song"), {one.id}, "The whole name")


def any_part_of_a_text_without_spaces_is_found(store: Store) -> None:
    chinese, japanese, thai = StoreFixture(store).speak(
        "我喜欢打结", "この文章には猫が出てきます", "ฉันชอบนกแก้วที่นี่"
    )
    for text in ("打结", "喜欢", "我", "我喜欢打结"):
        same(_found(store, text), {chinese.id}, f"Messages found for {text!r}")
    for text in ("猫", "文章", "には猫", "出てきます"):
        same(_found(store, text), {japanese.id}, f"Messages found for {text!r}")
    for text in ("นกแก้ว", "ที่นี่"):
        same(_found(store, text), {thai.id}, f"Messages found for {text!r}")
    for text in ("结打", "欢我", "猫章", "鳥"):
        same(_found(store, text), set[UUID](), f"Messages found for {text!r}")


def a_sentence_without_spaces_asks_for_what_is_in_it(store: Store) -> None:
    knots, _ = StoreFixture(store).speak("他每天打结", "今天下雨")
    same(_found(store, "我喜欢打结吗"), {knots.id}, "Messages that share a word with a sentence")


def a_long_text_without_spaces_is_found_by_its_end(store: Store) -> None:
    long = "的人在说话的时候" * 2_000
    one = StoreFixture(store).speak(f"{long}打结", "的人")[0]
    same(_found(store, "打结"), {one.id}, "The end of a long text")


def a_message_that_holds_more_of_the_words_comes_first(store: Store) -> None:
    _, both, _ = StoreFixture(store).speak(
        "a parrot sleeps", "a parrot with a hat", "the hat is red"
    )
    same(_search(store, "parrot hat")[0].message, both.id, "The first message found")


def scores_go_downwards(store: Store) -> None:
    StoreFixture(store).speak("parrot", "parrot hat", "parrot hat shoe", "hat", "nothing of it")
    scores = [hit.score for hit in _search(store, "parrot hat shoe")]
    same(scores, sorted(scores, reverse=True), "Scores of the messages found")


def a_snippet_shows_the_word(store: Store) -> None:
    text = " ".join(["before"] * 100 + ["parrot"] + ["after"] * 100)
    StoreFixture(store).speak(text)
    snippet = _search(store, "parrot")[0].snippet
    assert "parrot" in snippet, f"The snippet does not show the word: {snippet!r}"
    assert len(snippet) < len(text) / 2, f"The snippet is no shorter than it should: {snippet!r}"


def a_snippet_is_short_whatever_it_is_cut_from(store: Store) -> None:
    StoreFixture(store).speak(
        f"{'y' * 20_000} needle {'z' * 20_000}", f"{'的' * 9_000}打结{'的' * 9_000}"
    )
    for text in ("needle", "打结"):
        (hit,) = _search(store, text)
        assert text in hit.snippet, f"The snippet does not show the word: {hit.snippet!r}"
        assert len(hit.snippet) < 500, f"The snippet is {len(hit.snippet)} long"


def a_search_for_nothing_finds_nothing(store: Store) -> None:
    StoreFixture(store).speak("the parrot sleeps")
    for text in ("", "   ", "?!", "\n"):
        same(_search(store, text), [], f"Messages found for {text!r}")


def a_search_for_an_unsaid_word_finds_nothing(store: Store) -> None:
    StoreFixture(store).speak("the parrot sleeps")
    same(_search(store, "elephant"), [], "Messages about an elephant")


def signs_in_a_question_are_only_text(store: Store) -> None:
    one = StoreFixture(store).speak("the parrot sleeps")[0]
    signs = ('"parrot', "parrot*", "parrot'; --", "(parrot", "-parrot", "^parrot:", "{parrot}", "%")
    for text in signs[:-1]:
        same(_found(store, text), {one.id}, f"Messages found for {text!r}")
    same(_search(store, signs[-1]), [], "Messages found for a sign")


def operators_in_a_question_are_only_words(store: Store) -> None:
    one = StoreFixture(store).speak("the parrot sleeps")[0]
    for text in ("parrot AND", "OR parrot", "NOT parrot", "NEAR parrot", "said: parrot", "a & b |"):
        actual = _found(store, text)
        assert actual <= {one.id}, f"Found something odd for {text!r}: {actual!r}"


def a_search_can_be_kept_to_one_session(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    mine, theirs = here.speak("my parrot")[0], there.speak("their parrot")[0]
    same(_found(store, "parrot", here.id), {mine.id}, "Messages of one session")
    same(_found(store, "parrot"), {mine.id, theirs.id}, "Messages of all sessions")
    empty("Messages of an unknown session", _found(store, "parrot", new_id()))


def a_search_keeps_its_limit(store: Store) -> None:
    StoreFixture(store).speak(*(f"parrot {n}" for n in range(20)))
    same(len(_search(store, "parrot", limit=5)), 5, "Messages with limit=5")


def what_was_called_and_answered_is_searched_too(store: Store) -> None:
    body = dumps(
        {
            "type": "action_request",
            "content": {"function": "weather", "arguments": {"city": "Lisbon"}},
        }
    )
    scene, call = StoreFixture(store), MessageRecord(new_id(), NOON, body)
    main = scene.branch()
    scene.write(AddMessages((call,)), Append(main.id, (call.id,)))
    same(_found(store, "weather"), {call.id}, "The call of a function")
    same(_found(store, "lisbon"), {call.id}, "An argument of a call")


def field_names_of_a_record_are_not_searched(store: Store) -> None:
    StoreFixture(store).speak("the parrot sleeps")
    same(_search(store, "instruction content type"), [], "Names of fields")


def an_erased_message_is_not_found(store: Store) -> None:
    scene = StoreFixture(store)
    gone, stays = scene.speak("gone parrot", "parrot that stays")
    same(len(_search(store, "parrot")), 2, "Messages found before")
    scene.forget(gone)
    same(_found(store, "parrot"), {stays.id}, "Messages found after one was erased")
    same(_search(store, "gone"), [], "The erased message")


def messages_of_a_deleted_session_are_not_found(store: Store) -> None:
    gone, stays = StoreFixture(store), StoreFixture(store)
    gone.speak("gone parrot")
    kept = stays.speak("parrot that stays")[0]
    same(len(_search(store, "parrot")), 2, "Messages found before")
    store.delete_session(OWNER, gone.id)
    same(_found(store, "parrot"), {kept.id}, "Messages found after a session was deleted")


def a_message_added_anew_is_found_by_its_new_words(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch()
    old = scene.append(main.id, "a parrot")[0]
    _search(store, "parrot")
    scene.forget(old)
    body = dumps({"type": "instruction", "content": {"instruction": "an elephant"}})
    scene.write(AddMessages((MessageRecord(old.id, NOON, body),)), Append(main.id, (old.id,)))
    same(_found(store, "elephant"), {old.id}, "The new words")
    same(_search(store, "parrot"), [], "The old words")


def a_message_on_many_branches_is_found_once(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "the parrot sleeps")
    for n in range(5):
        scene.fork(main.id, f"fork {n}")
    same(len(_search(store, "parrot")), 1, "Messages about a parrot")


def a_refused_write_leaves_nothing_to_find(store: Store) -> None:
    scene = StoreFixture(store)
    kept = scene.speak("a cat")[0]
    bad = AddMessages((message("a parrot"), message("a dog", kept.id)))
    raises(ExistsError, lambda: scene.write(bad), "A taken message id")
    same(_search(store, "parrot"), [], "Messages of a refused write")


def a_hit_names_the_messages_around_it(store: Store) -> None:
    scene = StoreFixture(store)
    StoreFixture(store).speak("elsewhere")
    said = scene.speak("one", "two", "the parrot sleeps", "four", "five", "six")
    (hit,) = store.hits(OWNER, TextQuery(("parrot",)))
    around = store.at_places(OWNER, [*hit.before, *hit.after])
    same(
        [one.message.id for one in around],
        [said[at].id for at in (1, 0, 3, 4)],
        "The messages before and after, the nearest first",
    )


def places_lead_to_messages_in_their_order(store: Store) -> None:
    scene = StoreFixture(store)
    scene.speak("a parrot", "a parrot and a parrot")
    places = [hit.place for hit in store.hits(OWNER, TextQuery(("parrot",)))]
    for wanted in (places, places[::-1]):
        stored = store.at_places(OWNER, wanted)
        same(
            [message.place for message in stored], wanted, "Places in the order they were asked for"
        )
    same(store.at_places(OWNER, []), [], "Nothing asked for")


def a_place_is_nothing_to_someone_else(store: Store) -> None:
    StoreFixture(store).speak("my parrot")
    places = [hit.place for hit in store.hits(OWNER, TextQuery(("parrot",)))]
    same(len(places), 1, "Places of one's own")
    empty("Places of someone else", store.at_places(STRANGER, places))
    empty("Hits of someone else", store.hits(STRANGER, TextQuery(("parrot",))))


def hits_can_be_kept_to_a_time(store: Store) -> None:
    StoreFixture(store).speak("a parrot")
    same(len(store.hits(OWNER, TextQuery(("parrot",), since=NOON, until=NOON + 1))), 1, "Within")
    empty("Too early", store.hits(OWNER, TextQuery(("parrot",), until=NOON)))
    empty("Too late", store.hits(OWNER, TextQuery(("parrot",), since=NOON + 1)))


def an_erased_message_has_no_place(store: Store) -> None:
    scene = StoreFixture(store)
    gone = scene.speak("a parrot")[0]
    (hit,) = store.hits(OWNER, TextQuery(("parrot",)))
    scene.forget(gone)
    empty("An erased message", store.at_places(OWNER, [hit.place]))
    empty("Hits on it", store.hits(OWNER, TextQuery(("parrot",))))


def a_file_without_spaces_is_found_by_any_part_until_it_is_erased(store: Store) -> None:
    uid = new_id()
    version = VersionRecord(number=1, written=NOON, valid_from=NOON, body="我喜欢打结".encode())
    store.change_files([PutFile(OWNER, uid, "knots.md", None, version)])
    asked = FileQuery(("打结",), (OWNER,))
    same([hit.file.id for hit in store.file_hits(asked)], [uid], "The file")
    store.change_files([RemoveFile(OWNER, uid)])
    empty("An erased file", store.file_hits(asked))


def a_file_is_found_by_what_it_says_now_or_said_then(store: Store) -> None:
    uid = new_id()
    for number, text in enumerate((b"a green parrot", b"a blue parrot"), 1):
        version = VersionRecord(number=number, written=NOON, valid_from=NOON + number, body=text)
        store.change_files([PutFile(OWNER, uid, "birds/parrot.md", None, version)])
    asked = FileQuery(("parrot", "green"), (OWNER,))
    same([hit.file.latest.number for hit in store.file_hits(asked)], [2], "What it says now")
    then = msgspec.structs.replace(asked, at=NOON + 1)
    same([hit.file.latest.number for hit in store.file_hits(then)], [1], "What it said then")
    empty("Elsewhere", store.file_hits(msgspec.structs.replace(asked, under="fish/")))
    empty("Someone else", store.file_hits(msgspec.structs.replace(asked, owners=(STRANGER,))))
    store.change_files([RemoveFile(OWNER, uid)])
    empty("An erased file", store.file_hits(asked), store.file_hits(then))

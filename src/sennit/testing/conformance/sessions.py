"""Sessions: created once, found by id, listed in pages, deleted permanently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError, SennitError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddMessages, Append, DescribeSession, SessionRecord
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    FakeClock,
    StoreFixture,
    empty,
    message,
    raises,
    same,
    session,
)

_SQL = "x'); DROP TABLE sessions; --"


def _listed(
    store: Store,
    contains: str | None = None,
    before: tuple[int, UUID] | None = None,
    limit: int = 1000,
) -> list[SessionRecord]:
    return store.list_sessions(OWNER, contains=contains, before=before, limit=limit)


def _keys(store: Store, contains: str | None = None) -> set[str | None]:
    return {record.key for record in _listed(store, contains)}


def _create(store: Store, *keys: str | None) -> None:
    for key in keys:
        store.create_session(OWNER, session(key=key))


def a_created_session_is_found(store: Store) -> None:
    record = session(key="chat_001", user="grace", metadata={"topic": "parrots"})
    same(store.create_session(OWNER, record), record, "What creating gives back")
    same(store.find_session(OWNER, record.id), record, "The session found")


def a_created_session_loads_empty(store: Store) -> None:
    record = session(key="chat_001")
    store.create_session(OWNER, record)
    loaded = store.load(OWNER, record.id)
    same(loaded.session, record, "The session loaded")
    empty("Its contents", loaded.messages, loaded.segments, loaded.branches)


def a_session_may_be_described_otherwise(store: Store) -> None:
    scene = StoreFixture(store)
    before = store.load(OWNER, scene.id).session
    told = {"title": "Bö'b\n", "tags": [1, None, {"a": True}]}
    with clock.wall_clock_from(lambda: (before.updated + 5) * 1000):
        scene.write(DescribeSession(told))
    stored = store.find_session(OWNER, scene.id)
    same(stored, replace(before, metadata=told, updated=before.updated + 5), "The session found")
    same(store.load(OWNER, scene.id).session, stored, "The session loaded")
    same(store.changes(OWNER, scene.id, {}).session, stored, "The session with what is new")
    same(_listed(store), [stored], "The sessions listed")


def a_description_in_a_refused_write_changes_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    before = store.load(OWNER, scene.id).session
    wrong = Append(new_id(), (new_id(),))
    raises(NotFoundError, lambda: scene.write(DescribeSession({"a": 1}), wrong), "A wrong write")
    same(store.find_session(OWNER, scene.id), before, "The session found")


def a_session_nobody_created_is_not_there(store: Store) -> None:
    uid = new_id()
    same(store.find_session(OWNER, uid), None, "An unknown session")
    same(store.delete_session(OWNER, uid), False, "Deleting an unknown session")
    raises(NotFoundError, lambda: store.load(OWNER, uid), "Loading an unknown session")
    raises(NotFoundError, lambda: store.changes(OWNER, uid, {}), "Asking it for changes")
    raises(NotFoundError, lambda: store.write(OWNER, uid, []), "Writing to it")


def creating_a_session_twice_gives_back_the_first(store: Store) -> None:
    first = session(key="first", metadata={"n": 1})
    second = session(first.id, key="second", user="eve", metadata={"n": 2})
    store.create_session(OWNER, first)
    same(store.create_session(OWNER, second), first, "Creating the same id again")
    same(store.find_session(OWNER, first.id), first, "The session found")


def creating_a_session_twice_keeps_what_is_in_it(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "one", "two")
    StoreFixture(store, uid=scene.id)
    same(scene.texts(), ["one", "two"], "The branch after creating its session again")


def a_session_without_a_key_stays_without_one(store: Store) -> None:
    record = store.create_session(OWNER, session(key=None))
    same(_listed(store), [record], "The sessions listed")
    assert record.key is None, f"A key came out of nowhere: {record.key!r}"


def an_empty_key_is_not_the_same_as_none(store: Store) -> None:
    record = store.create_session(OWNER, session(key=""))
    stored = store.find_session(OWNER, record.id)
    assert stored is not None
    same(stored.key, "", "An empty key")


def metadata_of_a_session_comes_back_as_it_was(store: Store) -> None:
    metadata: dict[str, Any] = {
        "naïve key 🦜": [1, 2.5, -3, True, None, "ünïcödé"],
        "nested": {"a": {"b": {"c": []}}},
        "big": 2**53,
        "'; DROP TABLE sessions; --": "",
    }
    record = store.create_session(OWNER, session(metadata=metadata))
    stored = store.find_session(OWNER, record.id)
    assert stored is not None
    same(stored.metadata, metadata, "Metadata")


def metadata_that_is_no_json_is_refused_or_kept(store: Store) -> None:
    record = session(metadata={"huge": 10**30})
    try:
        store.create_session(OWNER, record)
    except SennitError:
        same(store.find_session(OWNER, record.id), None, "A session that was refused")
    else:
        same(store.find_session(OWNER, record.id), record, "A session that was accepted")
    _create(store, "still usable")
    assert "still usable" in _keys(store), "The store was unusable after odd metadata."


def a_key_that_is_no_unicode_is_refused_or_kept(store: Store) -> None:
    for key in ("lone \ud800 surrogate", "a NUL \x00 inside"):
        record = session(key=key)
        try:
            store.create_session(OWNER, record)
        except SennitError:
            same(store.find_session(OWNER, record.id), None, "A session that was refused")
        else:
            same(store.find_session(OWNER, record.id), record, "A session that was accepted")
    _create(store, "still usable")
    assert "still usable" in _keys(store), "The store was unusable after an odd key."


def changing_a_session_record_in_hand_changes_nothing_in_the_store(store: Store) -> None:
    original = session(metadata={"list": [1]})
    created = store.create_session(OWNER, original)
    stored = store.find_session(OWNER, original.id)
    assert stored is not None
    for record in (original, created, stored, *_listed(store)):
        record.metadata["list"].append(2)
        record.metadata["new"] = True
    again = store.find_session(OWNER, original.id)
    assert again is not None
    same(again.metadata, {"list": [1]}, "Metadata after records in hand were changed")


def without_sessions_the_list_is_empty(store: Store) -> None:
    same(_listed(store), [], "The list of sessions")
    same(_listed(store, "a", (NOON, new_id())), [], "The list of sessions, filtered")


def sessions_are_listed_the_last_changed_first(store: Store) -> None:
    for age in (3, 1, 2):
        store.create_session(OWNER, session(key=f"{age}", updated=NOON - age))
    same([record.key for record in _listed(store)], ["1", "2", "3"], "Order of the list")


def sessions_changed_at_one_moment_are_listed_by_id_downwards(store: Store) -> None:
    session_ids = [store.create_session(OWNER, session()).id for _ in range(5)]
    same(
        [record.id for record in _listed(store)],
        sorted(session_ids, reverse=True),
        "Order of the list",
    )


def a_limit_is_kept(store: Store) -> None:
    _create(store, *"abcdef")
    same(len(_listed(store, limit=4)), 4, "Sessions with limit=4")
    same(len(_listed(store, limit=100)), 6, "Sessions with limit=100")


def pages_put_together_are_the_whole_list(store: Store) -> None:
    for n in range(25):
        store.create_session(OWNER, session(updated=NOON + n // 4))
    pages, before = list[SessionRecord](), None
    while page := _listed(store, before=before, limit=3):
        pages += page
        before = (page[-1].updated, page[-1].id)
        assert len(pages) <= 25, "Paging gives sessions again and never ends."
    same(pages, _listed(store), "All pages of three")


def the_list_is_filtered_by_a_part_of_the_key(store: Store) -> None:
    _create(store, "chat_001", "chat_002", "report", None)
    same(_keys(store, "chat"), {"chat_001", "chat_002"}, "Keys with 'chat'")
    same(_keys(store, "_001"), {"chat_001"}, "Keys with '_001'")
    empty("Keys with 'nothing'", _keys(store, "nothing"))


def the_list_is_filtered_by_a_part_of_the_title(store: Store) -> None:
    titles = ("Knots for Ähnliche", 5, ["Knots"], {"Knots": "Knots"}, None, 'knot\'s 100% \\ "b"')
    for at, title in enumerate(titles):
        store.create_session(OWNER, session(key=f"{at}", metadata={"title": title}))
    store.create_session(OWNER, session(key=None, metadata={"title": "knots", "other": "x"}))
    store.create_session(OWNER, session(key="6", metadata={"other": "knots", "a": {"title": "k"}}))
    same(_keys(store, "KNOTS"), {"0", None}, "Titles with 'knots'")
    same(_keys(store, "ähn"), {"0"}, "Titles with 'ähn'")
    same(_keys(store, '100% \\ "B'), {"5"}, "Titles with signs")
    same(_keys(store, "5"), {"5"}, "Keys and titles with '5'")


def the_filter_ignores_case(store: Store) -> None:
    _create(store, "Chat About Parrots")
    same(_keys(store, "chat ABOUT p"), {"Chat About Parrots"}, "Keys, whatever their case")


def the_filter_ignores_case_beyond_ascii(store: Store) -> None:
    _create(store, "CAFÉ ПРИВЕТ")
    same(_keys(store, "café при"), {"CAFÉ ПРИВЕТ"}, "Keys, whatever their case")


def the_filter_takes_wildcards_literally(store: Store) -> None:
    _create(store, "100%", "100 percent", "a_b", "axb", "a*b", "back\\slash")
    for part, key in (("0%", "100%"), ("a_b", "a_b"), ("a*b", "a*b"), ("\\", "back\\slash")):
        same(_keys(store, part), {key}, f"Keys with {part!r}")


def the_filter_and_pages_work_together(store: Store) -> None:
    for n in range(10):
        store.create_session(OWNER, session(key=f"{'even' if n % 2 == 0 else 'odd'} {n}"))
    first = _listed(store, "even", limit=3)
    rest = _listed(store, "even", (first[-1].updated, first[-1].id), limit=3)
    stored = {record.key for record in [*first, *rest]}
    same(stored, {f"even {n}" for n in range(0, 10, 2)}, "Filtered keys on two pages")


def a_session_without_a_key_passes_no_filter(store: Store) -> None:
    _create(store, None)
    empty("Sessions without a key, filtered", _keys(store, "n"))


def sql_in_a_key_is_only_text(store: Store) -> None:
    _create(store, _SQL, "' OR '1'='1", "other")
    same(_keys(store, _SQL), {_SQL}, "Keys with SQL in them")
    same(_keys(store, "' OR '1'='1"), {"' OR '1'='1"}, "Keys with SQL in them")


def a_write_moves_its_session_to_the_top(store: Store) -> None:
    hands = FakeClock()
    with clock.wall_clock_from(hands):
        scenes = [StoreFixture(store) for _ in range(3)]
        hands.now += 5
        scenes[1].say("hello")
        same(_listed(store)[0].id, scenes[1].id, "The session listed first")


def a_write_sets_the_time_of_change(store: Store) -> None:
    hands = FakeClock()
    with clock.wall_clock_from(hands):
        scene = StoreFixture(store)
        hands.now += 1234
        scene.say("hello")
    same(scene.load().session.updated, NOON + 1234, "When the session changed")
    same(scene.load().session.created, NOON, "When the session was created")


def the_time_of_change_grows_with_each_write(store: Store) -> None:
    hands = FakeClock(NOON + 1000)
    with clock.wall_clock_from(hands):
        scene = StoreFixture(store)
        scene.say("hello")
        before = scene.load().session.updated
        hands.now = NOON - 1000
        scene.say("again")
    after = scene.load().session.updated
    assert after > before >= NOON + 1000, f"The session changed at {before}, then at {after}"


def a_refused_write_does_not_count_as_a_change(store: Store) -> None:
    scene = StoreFixture(store)
    kept = scene.say("hello")[0]
    before = scene.load().session
    other = message("another", kept.id)
    raises(SennitError, lambda: scene.write(AddMessages((other,))), "A taken message id")
    same(scene.load().session, before, "The session after a refused write")


def a_deleted_session_is_gone(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "hello")
    same(store.delete_session(OWNER, scene.id), True, "Deleting a session")
    same(store.find_session(OWNER, scene.id), None, "A deleted session")
    same(_listed(store), [], "The list after deleting")
    raises(NotFoundError, scene.load, "Loading a deleted session")
    raises(NotFoundError, lambda: scene.say("more"), "Writing to a deleted session")


def a_session_changed_since_is_not_deleted_for_its_age(store: Store) -> None:
    scene = StoreFixture(store)
    changed = scene.load().session.updated
    same(store.delete_session(OWNER, scene.id, changed), False, "Deleting what is younger")
    same(store.delete_session(OWNER, scene.id, changed + 1), True, "Deleting what is older")
    same(store.find_session(OWNER, scene.id), None, "A deleted session")


def deleting_a_session_twice_says_it_was_gone(store: Store) -> None:
    scene = StoreFixture(store)
    store.delete_session(OWNER, scene.id)
    same(store.delete_session(OWNER, scene.id), False, "Deleting a session again")


def deleting_a_session_leaves_the_others(store: Store) -> None:
    gone, stays = StoreFixture(store), StoreFixture(store)
    for scene in (gone, stays):
        scene.branch("main", "hello")
    store.delete_session(OWNER, gone.id)
    same(stays.texts(), ["hello"], "The other session")


def a_session_created_anew_after_deletion_is_empty(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "hello")
    store.delete_session(OWNER, scene.id)
    view = StoreFixture(store, uid=scene.id).load()
    empty("What a session created anew holds", view.messages, view.branches)

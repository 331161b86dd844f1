"""Sessions: created once, found by id, listed in pages, deleted permanently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import ExistsError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    Append,
    DescribeSession,
    SessionRecord,
    Write,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    FakeClock,
    Scenario,
    branch,
    empty,
    raises,
    same,
    segment,
    session,
)


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


_ODD: dict[str, Any] = {
    "naïve key 🦜": [1, 2.5, -3, True, None, "ünïcödé"],
    "nested": {"a": {"b": {"c": []}}},
    "big": 2**53,
    "'; DROP TABLE sessions; --": "",
}


def a_created_session_is_found_and_loads_empty(store: Store) -> None:
    for record in (
        session(key="chat_001", user="grace", metadata=_ODD),
        session(key=""),
        session(key=None),
    ):
        same(store.create_session(OWNER, record), record, "What creating gives back")
        same(store.find_session(OWNER, record.id), record, "The session found")
        loaded = store.load(OWNER, record.id)
        same(loaded.session, record, "The session loaded")
        empty("Its contents", loaded.messages, loaded.segments, loaded.branches)
    same(len(_listed(store)), 3, "Sessions")


def a_session_may_be_described_otherwise(store: Store) -> None:
    s, told = Scenario(store), {"title": "Bö'b\n", "tags": [1, None, {"a": True}]}
    before = s.load().session
    s.refuses(NotFoundError, DescribeSession({"a": 1}), Append(new_id(), (new_id(),)))
    with clock.wall_clock_from(lambda: (before.updated + 5) * 1000):
        s.write(DescribeSession(told))
    stored = replace(before, metadata=told, updated=before.updated + 5)
    same(store.find_session(OWNER, s.id), stored, "The session found")
    same((s.load().session, s.changes({}).session), (stored, stored), "The session loaded")
    same(_listed(store), [stored], "The sessions listed")


def creating_a_session_twice_gives_back_the_first(store: Store) -> None:
    first = session(key="first", metadata={"n": 1})
    store.create_session(OWNER, first)
    s = Scenario(store, uid=first.id).branch("main", "ab")
    before = s.load().session
    other = session(first.id, key="second", user="eve", metadata={"n": 2})
    same(store.create_session(OWNER, other), before, "Creating the same id again")
    same(s.shows(main="ab").load().session, before, "The session")
    theirs = replace(other, key="theirs")
    same(store.create_session(STRANGER, theirs), theirs, "What another owner got")
    same(store.find_session(OWNER, first.id), before, "My session")


def a_session_may_be_made_with_its_first_write(store: Store) -> None:
    record, on = session(metadata={"of": "ada"}), segment()
    write = Write(OWNER, record.id, (AddBranch(branch("main", on), on),), record)
    (made,), (again,) = store.write_many([write]), store.write_many([write])
    same(made, [], "The heads of the write")
    assert isinstance(again, ExistsError), f"Making it again gave {again!r}"
    loaded = store.load(OWNER, record.id)
    same((loaded.session.metadata, len(loaded.branches)), ({"of": "ada"}, 1), "The session")


def what_is_no_json_or_unicode_is_refused_or_kept(store: Store) -> None:
    for record in (
        session(metadata={"huge": 10**30}),
        session(key="lone \ud800 surrogate"),
        session(key="a NUL \x00 inside"),
    ):
        try:
            store.create_session(OWNER, record)
        except SennitError:
            same(store.find_session(OWNER, record.id), None, "A session that was refused")
        else:
            same(store.find_session(OWNER, record.id), record, "A session that was accepted")
        _create(store, "still usable")
        assert "still usable" in _keys(store), f"The store was unusable after {record!r:.200}"


def changing_a_session_record_in_hand_changes_nothing_in_the_store(store: Store) -> None:
    original = session(metadata={"list": [1]})
    created = store.create_session(OWNER, original)
    for record in (original, created, store.find_session(OWNER, original.id), *_listed(store)):
        assert record is not None
        record.metadata["list"].append(2)
        record.metadata["new"] = True
    again = store.find_session(OWNER, original.id)
    assert again is not None
    same(again.metadata, {"list": [1]}, "Metadata after records in hand were changed")


def sessions_are_listed_the_last_changed_first_then_by_id(store: Store) -> None:
    same(_listed(store, "a", (NOON, new_id())), [], "The list without sessions")
    for n in range(25):
        store.create_session(OWNER, session(updated=NOON + n // 4))
    whole = _listed(store)
    ordered = sorted(whole, key=lambda one: (one.updated, one.id), reverse=True)
    same((len(whole), whole), (25, ordered), "The list of sessions")
    pages, before = list[SessionRecord](), None
    while page := _listed(store, before=before, limit=3):
        pages += page
        before = (page[-1].updated, page[-1].id)
        assert len(page) <= 3, f"A page of three has {len(page)} sessions."
        assert len(pages) <= 25, "Paging gives sessions again and never ends."
    same(pages, whole, "All pages of three")


def the_list_is_filtered_by_a_part_of_the_key_or_title(store: Store) -> None:
    sql = "x'); DROP TABLE sessions; --"
    _create(store, "Chat_001", "chat_002", "report", None, "CAFÉ ПРИВЕТ", "100%", "100 percent")
    _create(store, "a_b", "axb", "a*b", "back\\slash", sql, "' OR '1'='1")
    titles = ("Knots for Ähnliche", 5, ["Knots"], {"Knots": "Knots"}, None, 'knot\'s 200% \\ "b"')
    for at, title in enumerate(titles):
        store.create_session(OWNER, session(key=f"<{at}>", metadata={"title": title}))
    store.create_session(OWNER, session(key=None, metadata={"title": "knots", "other": "x"}))
    nested = {"other": "knots", "a": {"title": "knots"}}
    store.create_session(OWNER, session(key="<6>", metadata=nested))
    for part, keys in {
        "chat": {"Chat_001", "chat_002"},
        "CHAT_001": {"Chat_001"},
        "nothing": set[str](),
        "café при": {"CAFÉ ПРИВЕТ"},
        "0%": {"100%", "<5>"},
        "a_b": {"a_b"},
        "a*b": {"a*b"},
        "k\\": {"back\\slash"},
        sql: {sql},
        "' OR '1'='1": {"' OR '1'='1"},
        "KNOTS": {"<0>", None},
        "ähn": {"<0>"},
        '200% \\ "B': {"<5>"},
        "<5": {"<5>"},
    }.items():
        same(_keys(store, part), keys, f"Keys of sessions with {part!r}")


def the_filter_and_pages_work_together(store: Store) -> None:
    _create(store, *(f"{'even' if n % 2 == 0 else 'odd'} {n}" for n in range(10)))
    first = _listed(store, "even", limit=3)
    rest = _listed(store, "even", (first[-1].updated, first[-1].id), limit=3)
    keys = [record.key for record in [*first, *rest]]
    same(sorted(map(str, keys)), [f"even {n}" for n in range(0, 10, 2)], "Keys on two pages")


def a_write_sets_the_time_of_change_which_only_grows(store: Store) -> None:
    hands = FakeClock()
    with clock.wall_clock_from(hands):
        scenes = [Scenario(store) for _ in range(3)]
        hands.now += 1234
        times = [scenes[1].add("a").load().session.updated]
        same(_listed(store)[0].id, scenes[1].id, "The session listed first")
        hands.now = NOON - 1000
        times.append(scenes[1].add("b").load().session.updated)
    same(times[0], NOON + 1234, "When the session changed")
    assert times[1] > times[0], f"The session changed at {times[0]}, then at {times[1]}"
    same(scenes[1].load().session.created, NOON, "When the session was created")
    scenes[1].refuses(SennitError, AddBranch(branch("x", segment()), segment()))


def a_session_changed_since_is_not_deleted_for_its_age(store: Store) -> None:
    changed = Scenario(store).add("a")
    updated = changed.load().session.updated
    for before, deleted in ((updated, False), (updated + 1, True), (None, False)):
        same(store.delete_session(OWNER, changed.id, before), deleted, f"Deleting before {before}")
    same(_listed(store), [], "The list after deleting")


def a_deleted_session_created_anew_is_empty(store: Store) -> None:
    s = Scenario(store).branch("main", ["a parrot"])
    store.delete_session(OWNER, s.id)
    raises(NotFoundError, lambda: s.add("b"), "Writing to a deleted session")
    view = s.beside(uid=s.id).load()
    empty("What it holds", view.messages, view.branches, s.found("parrot"))

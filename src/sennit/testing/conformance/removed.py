"""Removed messages: kept but not searchable, restorable, purged after their retention."""

from __future__ import annotations

from collections.abc import Iterable

from sennit import clock
from sennit.ids import new_id
from sennit.stores.records.commits import AddCommit, CommitRecord
from sennit.stores.records.search import TextQuery
from sennit.stores.records.sessions import AddBranch
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    LeaseFixture,
    Scenario,
    branch,
    deltas,
    empty,
    same,
    segment,
)

_LATE = 2**62
_P, _Q, _CAT = "a parrot", "another parrot", "a cat"


def _gone(s: Scenario, texts: Iterable[str] = ()) -> Scenario:
    """Assert which messages were removed."""
    removed = {one.message for one in s.store.removed(OWNER, s.id, _LATE, 50)}
    same(removed, set(s.ids(texts)), "What was removed")
    return s


def _cut(s: Scenario, name: str, length: int) -> Scenario:
    """Truncate a branch as a session does: by a new segment on the remaining entries."""
    return s.rewrite(name, "", keep=length)


def a_message_is_found_while_a_branch_shows_it(s: Scenario) -> None:
    for indexed in (False, True):
        s = s.beside().branch("main", [_CAT, _P])
        if indexed:
            s.finds("parrot", [_P])
        _gone(_cut(s, "main", 1), [_P]).finds("parrot").finds("cat", [_CAT]).holds([_CAT, _P])
        s.append("main", ["a dog"]).finds("dog", ["a dog"])
        _gone(s.append("main", [_P])).finds("parrot", [_P])
        _gone(s.remove("main"), [_P, _CAT, "a dog"]).finds("parrot")
        s.store.delete_session(OWNER, s.id)


def what_another_branch_shows_is_found_on(s: Scenario) -> None:
    s.branch("main", [_P, _Q]).fork("main", "fork", 1).remove("main").finds("parrot", [_P])
    _gone(s, [_Q]).branch("other", [_Q, _CAT]).finds("parrot", [_P, _Q])
    _gone(s.remove("fork").rewrite("other", [_CAT]), [_P, _Q]).finds("parrot")


def a_replaced_system_message_is_not_found(s: Scenario) -> None:
    s.branch("main", [_CAT]).add([_P]).change("main", system=s[_P]).finds("parrot", [_P])
    s.fork("main", "fork").change("fork", system=s[_P]).change("main", system=None)
    _gone(s.finds("parrot", [_P]).remove("fork"), [_P]).finds("parrot")


def a_message_that_was_never_on_a_branch_is_kept_and_not_found(s: Scenario) -> None:
    _gone(s.branch("main", [_CAT]).add([_P])).finds("parrot").holds([_CAT, _P])
    empty("What was erased", s.store.erase_removed(OWNER, s.id, _LATE))
    s.append("main", ["a dog"]).finds("parrot").append("main", [_P]).finds("parrot", [_P])
    empty("What was erased", s.store.erase_removed(OWNER, s.id, _LATE))


def a_new_branch_makes_what_it_shows_found_again(s: Scenario) -> None:
    below = s.branch("main", [_CAT, _P, _Q]).stored().segment
    s.fork("main", "keeping", 1).remove("main").finds("parrot")
    on = segment((), below, 2)
    s.write(AddBranch(branch("again", on, system=s[_Q]), on)).finds("parrot", [_P, _Q])
    _gone(s.remove("keeping", "again"), [_CAT, _P, _Q])
    s.branch("named", [_Q, _P]).finds("parrot", [_P, _Q])


def what_is_in_an_archive_is_found_without_a_branch(s: Scenario) -> None:
    main = s.branch("main", [_P, _Q]).stored().id
    for number, text in enumerate((_P, _Q), 1):
        s.write(AddCommit(CommitRecord(new_id(), number, main, NOON, "open", s.ids([text]), b"{}")))
        _gone(_cut(s, "main", 0), [_Q][number - 1 :]).finds("parrot", [_P, _Q][:number])


def a_removed_message_has_no_place(s: Scenario) -> None:
    s.branch("main", [_P, _Q])
    places = [hit.place for hit in s.store.hits(OWNER, TextQuery(("parrot",)))]
    stored = _cut(s, "main", 1).store.at_places(OWNER, places)
    same([one.message.id for one in stored], [s[_P]], "What stands at the places")


def removed_messages_are_erased_when_their_time_is_over(s: Scenario) -> None:
    store = s.branch("main", "abc").store
    for texts, time in (("bc", NOON), ("c", NOON + 5_000)):
        with clock.wall_clock_from(lambda time=time: time * 1000):
            s.rewrite("main", texts)
    entries = store.removed(OWNER, s.id, _LATE, 50)
    removed = [(entry.owner, entry.session, entry.message, entry.since) for entry in entries]
    expected = [(OWNER, s.id, s["a"], NOON), (OWNER, s.id, s["b"], NOON + 5_000)]
    same(removed, expected, "When they were removed")
    empty("Removed before that time", store.removed(OWNER, s.id, NOON, 50))
    before = store.find_session(OWNER, s.id)
    same(store.erase_removed(OWNER, s.id, NOON + 1), [s["a"]], "What was erased")
    same(store.find_session(OWNER, s.id), before, "The session, whose age stays the same")
    s.holds("bc")
    same(store.erase_removed(OWNER, s.id, _LATE), [s["b"]], "What was erased then")
    _gone(s).shows(main="c").holds("c")


def erasing_a_removed_message_erases_its_events(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run = notes.run()
    s.append("main", [_P])
    events = [*deltas(run, 1), *deltas(run, 2, 3, about=s[_P]), *deltas(run, 4)]
    notes.add(*events)
    _cut(s, "main", 1)
    notes.shows([run], events)
    s.store.erase_removed(OWNER, s.id, _LATE)
    notes.shows([run], [events[0], events[-1]])


def removed_messages_of_all_owners_can_be_listed(s: Scenario) -> None:
    theirs = s.beside(STRANGER)
    for scene in (s, theirs):
        scene.branch("main", "a").remove("main")
    everyone = {one.message for one in s.store.removed(None, None, _LATE, 50)}
    same(everyone, {s["a"], theirs["a"]}, "Of all owners")
    same(len(s.store.removed(None, None, _LATE, 1)), 1, "No more than asked for")


def the_branch_of_a_message_is_the_main_one_or_else_the_oldest(s: Scenario) -> None:
    s.branch("old", "a").fork("old", "main").append("old", "b").fork("old", "new").add("rn")
    asked = [*s.change("old", system=s["r"]).ids("abrn"), new_id()]
    wanted = {s["a"]: "main", s["b"]: "old", s["r"]: "old"}
    same(s.store.branches_holding(OWNER, s.id, asked), wanted, "Branches")

"""Incremental loads: exactly the rows beyond the known segment lengths."""

from __future__ import annotations

from uuid import UUID

from sennit.ids import new_id
from sennit.testing.conformance.fixtures import Scenario, View, empty, same


def _known(s: Scenario) -> dict[UUID, int]:
    """Return the length of each segment of a session."""
    return {uid: len(part.entries) for uid, part in s.load().segments.items()}


def _news(s: Scenario, known: dict[UUID, int], messages: str, **entries: str) -> View:
    """Assert the messages that are new, and the new entries of the branches' own segments."""
    new, full = s.changes(known), s.load()
    same(new.messages, {s[text]: s.named[text] for text in messages}, "The messages given")
    expected = {full.named(name).segment: s.ids(texts) for name, texts in entries.items()}
    given = {uid: part.entries for uid, part in new.segments.items()}
    same(given, expected, "The segments given, from where they were known")
    for uid, part in new.segments.items():
        stored = full.segments[uid]
        same((part.base, part.offset), (stored.base, stored.offset), "Base and offset")
    same((new.branches, new.session), (full.branches, full.session), "The branches, all of them")
    return new


def to_someone_who_knows_nothing_all_that_branches_show_is_new(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "fork", 2).append("fork", "x").add("loose")
    before = s.load()
    for _ in range(3):
        _news(s, {}, "abcx", main="abc", fork="x")
    same(vars(s.load()), vars(before), "The session, which asking does not change")


def to_someone_who_knows_all_nothing_is_new(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "fork")
    _news(s, _known(s), "")
    _news(s, {**_known(s), new_id(): 3, s.stored().segment: 99}, "")


def of_a_segment_that_has_grown_only_the_new_entries_are_given(s: Scenario) -> None:
    known = _known(s.branch("main", "abc").fork("main", "fork", 2))
    _news(s.append("main", "de"), known, "de", main="de")
    known = _known(s)
    _news(s.append("fork", "x"), known, "x", fork="x")
    for length in range(5):
        known[s.stored().segment] = length
        _news(s, known, "abcde"[length:] + "x", main="abcde"[length:], fork="x")


def an_empty_segment_is_given_once(s: Scenario) -> None:
    _news(s.branch("main"), {}, "", main="")
    _news(s, _known(s), "")


def a_new_fork_is_given_without_its_known_base(s: Scenario) -> None:
    known = _known(s.branch("main", "abc"))
    _news(s.fork("main", "fork"), known, "", fork="")


def a_new_branch_is_given_with_all_it_stands_on(s: Scenario) -> None:
    known = _known(s.branch("first", "a"))
    base = s.branch("main", "bc").stored().segment
    new = s.fork("main", "fork").remove("main", "first").changes(known)
    same(set(new.segments), {base, s.stored("fork").segment}, "The segments given")
    same(new.texts("fork"), ["b", "c"], "The fork")


def a_rewritten_history_is_given_whole(s: Scenario) -> None:
    known = _known(s.branch("main", "abc"))
    new = _news(s.rewrite("main", "bc"), known, "bc", main="bc")
    same(new.texts("main"), ["b", "c"], "The branch")


def a_removed_branch_is_missing_from_the_branches(s: Scenario) -> None:
    known = _known(s.branch("main", "a").branch("gone", "b"))
    new = _news(s.remove("gone"), known, "")
    same([record.name for record in new.branches.values()], ["main"], "The branches")


def what_no_branch_shows_of_a_known_base_is_not_given(s: Scenario) -> None:
    known = _known(s.branch("main", "abc").fork("main", "fork", 2))
    s.append("main", "x").remove("main")
    empty("Messages that no branch shows", s.changes(known).messages)
    empty("Segments that are known", s.changes(known).segments)


def system_messages_are_always_given(s: Scenario) -> None:
    known = _known(s.branch("main", "a").add("r"))
    s.change("main", system=s["r"])
    for _ in range(2):
        same(_news(s, known, "r").named("main").system, s["r"], "The system message")


def a_message_on_two_grown_branches_is_given_once(s: Scenario) -> None:
    known = _known(s.branch("one").branch("two"))
    _news(s.append("one", "a").append("two", "a"), known, "a", one="a", two="a")
    empty("Messages on no branch", s.add("x").changes(_known(s)).messages)

"""Runs, events and tool call starts: stored in order, once, only for the holder of the lease."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from sennit.errors import ConflictError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.records.sessions import (
    AddEvents,
    Append,
    CallStart,
    EventRecord,
    PutRun,
    PutStarts,
    RunRecord,
    Write,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    LeaseFixture,
    Scenario,
    deltas,
    empty,
    raises,
    same,
)


def a_branch_without_runs_has_no_runs_and_no_events(s: Scenario) -> None:
    notes = LeaseFixture(s)
    notes.add()
    for uid in (notes.branch, new_id()):
        notes.branch = uid
        notes.shows([], [])
        same(notes.last(), (0, None), "The last event and run")


def runs_are_kept_as_given_and_listed_with_the_newest_first(s: Scenario) -> None:
    notes = LeaseFixture(s)
    runs = [notes.run(created=NOON - n) for n in range(12)]
    odd = notes.run(state="suspended", updated=NOON + 7, body=dumps({"said": "naïve 🦜\x00"}))
    notes.shows([odd, *runs[::-1]], [])
    ended = notes.putting(runs[3], state="ended", updated=NOON + 5, body=b"{}")
    s.write(ended).again()
    runs[3] = ended.run
    notes.shows([odd, *runs[::-1]], [])
    same(notes.last(), (0, odd), "The last event and run")


def runs_of_two_branches_are_kept_apart(s: Scenario) -> None:
    main, quiet = LeaseFixture(s), LeaseFixture(s, "quiet")
    same(s.store.last_runs(OWNER, s.id), {}, "Last runs where nothing ran")
    here, side = main.run(), main.beside()
    there = side.run(id=here.id, state="ended")
    main.add(*deltas(here, 1, 2))
    side.add(*deltas(there, 1))
    LeaseFixture(s.beside()).run()
    main.shows([here], deltas(here, 1, 2))
    side.shows([there], deltas(there, 1))
    same((main.last(), side.last(), quiet.last()), ((2, here), (1, there), (0, None)), "The last")
    last = main.run()
    expected = {main.branch: last, side.branch: there}
    same(s.store.last_runs(OWNER, s.id), expected, "Last runs of all branches")


def a_run_may_give_its_lease_back_with_its_last_words(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run = notes.run()
    ended = replace(run, state="ended")
    s.write(PutRun(ended, notes.token, release=True), notes.adding(*deltas(run, 1))).again()
    notes.shows([ended], deltas(run, 1))
    same(notes.acquire("somebody else").token, notes.token + 1, "The token of who comes next")
    raises(ConflictError, s.again, "Saying it again after that")


def events_are_kept_as_they_were_given_and_read_in_pages(s: Scenario) -> None:
    notes = LeaseFixture(s)
    first, second = notes.run(), notes.run()
    events = [
        EventRecord(1, first.id, None, b"[]"),
        EventRecord(2, first.id, new_id(), dumps(["text", "naïve 🦜\x00"])),
        EventRecord(3, second.id, None, dumps(["text", "x" * 100_000])),
        *deltas(first, 4),
        *deltas(second, *range(5, 2001)),
    ]
    for at in range(0, 2000, 500):
        notes.add(*events[at : at + 500])
    same((notes.events(), notes.last()[0]), (events, 2000), "Events")
    pages: list[EventRecord] = []
    while page := notes.events(pages[-1].seq if pages else 0, 700):
        pages += page
    same(pages, events, "Events, page by page")
    same(notes.events(10, 10), events[10:20], "A page")
    empty("Pages past the end, and of no size", notes.events(2000, 10), notes.events(0, 0))


def events_repeated_change_nothing_and_are_completed(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run = notes.run()
    for seqs in ((1, 2), (1, 2), (2, 3, 4), (1,)):
        notes.add(*deltas(run, *seqs))
    notes.shows([run], deltas(run, 1, 2, 3, 4))


def an_event_may_come_with_its_run_and_with_messages(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run = RunRecord(new_id(), notes.branch, "running", NOON, NOON, b"{}")
    added = s.adding("bc")
    events = [*deltas(run, 1, about=s["b"]), *deltas(run, 2, about=s["c"])]
    appended = added, Append(notes.branch, s.ids("bc"))
    s.write(*appended, PutRun(run, notes.token), notes.adding(*events)).again().shows(main="abc")
    notes.shows([run], events)


def who_lost_the_lease_writes_nothing(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run = notes.run()
    notes.release(notes.lease)
    notes.add(*deltas(run, 1))  # until somebody else takes it
    notes.acquire("bob")
    new = s.adding("b"), Append(notes.branch, s.ids("b"))
    for late in (notes.adding(*deltas(run, 2)), notes.putting(run, state="ended")):
        for changes in ((*new, late), (late, *new)):
            s.refuses(ConflictError, *changes)
            (refused,) = s.store.write_many([Write(OWNER, s.id, changes)])
            assert isinstance(refused, ConflictError), f"A lost lease, in a group: {refused!r}"
    s.shows(main="a")
    notes.shows([run], deltas(run, 1))


def a_renewed_lease_writes_on(s: Scenario) -> None:
    notes = LeaseFixture(s)
    run, before = notes.run(), s.load()
    for n in range(1, 4):
        notes.add(*deltas(run, n))
        notes.renew(notes.lease)
    notes.shows([run], deltas(run, 1, 2, 3))
    same((s.load().branches, s.load().messages), (before.branches, before.messages), "The session")
    s.append("main", "b")
    notes.add(*deltas(run, 4))
    same((notes.last()[0], s.texts()), (4, ["a", "b"]), "The last event and the branch")


def writes_of_a_group_add_events_or_are_refused_alone(s: Scenario) -> None:
    notes, other = LeaseFixture(s), LeaseFixture(s.beside())
    run, another = notes.run(), other.run()
    writes = [
        Write(OWNER, s.id, (notes.adding(*deltas(run, 1)),)),
        Write(OWNER, s.id, (notes.adding(*deltas(run, 2), token=99),)),
        Write(OWNER, other.scene.id, (other.adding(*deltas(another, 1)),)),
        Write(OWNER, s.id, (notes.adding(*deltas(run, 2, 3)),)),
    ]
    refused = [isinstance(one, SennitError) for one in s.store.write_many(writes)]
    same(refused, [False, True, False, False], "Refused")
    same((notes.last()[0], other.last()[0]), (3, 1), "The last events")


def events_are_erased_with_their_message_and_do_not_come_back(s: Scenario) -> None:
    notes = LeaseFixture(s)
    side = notes.beside()
    run, beside, draft = notes.run(), side.run(), s.adding("d")
    s.append("main", "bc")
    events = [*deltas(run, 1), *deltas(run, 2, 3, about=s["b"]), *deltas(run, 4, about=s["c"])]
    notes.add(*events, *deltas(run, 5, about=s["d"]), *deltas(run, 6))
    s.write(draft, Append(notes.branch, s.ids("d")))
    side.add(*deltas(beside, 1, about=s["b"]), *deltas(beside, 2))
    s.erase("bd")
    for _ in range(2):
        notes.shows([run], [events[0], events[3], *deltas(run, 6)])
        notes.add(*events)
    same(notes.events(1, 1), [events[3]], "A page past the erased ones")
    same((side.events(), notes.last()), (deltas(beside, 2), (6, run)), "What is left")


def a_branch_is_removed_with_its_runs_and_events(s: Scenario) -> None:
    notes = LeaseFixture(s)
    side = notes.beside()
    run, beside = notes.run(), side.run()
    notes.add(*deltas(run, 1))
    side.add(*deltas(beside, 1))
    s.remove("main").refuses(ConflictError, notes.adding(*deltas(run, 2)))
    notes.shows([], [])
    side.shows([beside], deltas(beside, 1))


class _Calls:
    """Two leased branches in a session with two tool call requests, "b" and "c"."""

    def __init__(self, s: Scenario) -> None:
        self.s, self.main, self.side = s, LeaseFixture(s), LeaseFixture(s, "side")
        self.runs = {self.main: self.main.run(), self.side: self.side.run()}
        s.append("main", "bc")

    def starting(self, on: LeaseFixture, seq: int, known: int | None, text: str = "b") -> AddEvents:
        call = CallStart(self.s[text], known)
        return replace(on.adding(*deltas(self.runs[on], seq, about=call.message)), starts=(call,))

    def count(self, **expected: int) -> None:
        """Assert the starts of all calls, and of each alone."""
        key, counts = (OWNER, self.s.id), {self.s[text]: n for text, n in expected.items()}
        same(self.s.store.starts(*key, None), counts, "All starts")
        for text in "bc":
            uid: UUID | None = self.s.named[text].id if text in self.s.named else None
            if uid is not None:
                alone = {uid: counts[uid]} if uid in counts else {}
                same(self.s.store.starts(*key, [uid]), alone, f"Starts of {text!r} alone")


def starts_are_counted_once_for_all_branches_together(s: Scenario) -> None:
    calls = _Calls(s)
    calls.count()
    s.write(calls.starting(calls.main, 1, 0)).again().again()
    calls.count(b=1)
    s.write(calls.starting(calls.side, 1, 1)).write(calls.starting(calls.main, 2, None))
    calls.count(b=3)
    s.remove("side")
    calls.count(b=3)


def a_start_that_another_branch_was_faster_with_is_refused_with_its_write(s: Scenario) -> None:
    calls = _Calls(s)
    s.write(calls.starting(calls.main, 1, 0))
    late = calls.starting(calls.side, 1, 0)
    error = raises(ConflictError, lambda: s.write(late), "Starting it there too")
    same(error.call, s["b"], "The call that the error names")
    empty("Events of the other branch", calls.side.events())
    calls.count(b=1)


def a_start_may_be_written_with_the_message_that_asks_for_it(s: Scenario) -> None:
    calls = _Calls(s)
    added = s.adding("d"), Append(calls.main.branch, s.ids("d"))
    s.write(*added, calls.starting(calls.main, 1, 0, "d"))
    calls.count(d=1)


def starts_are_erased_with_their_message(s: Scenario) -> None:
    calls = _Calls(s)
    s.write(calls.starting(calls.main, 1, 0))
    late = calls.starting(calls.main, 2, 0)
    s.erase("b")
    calls.count()
    s.write(late)
    calls.count()


def starts_taken_over_never_make_fewer(s: Scenario) -> None:
    calls = _Calls(s)
    s.write(calls.starting(calls.main, 1, 0))
    s.write(PutStarts(((s["b"], 3), (s["c"], 1)))).write(PutStarts(((s["b"], 2),)))
    calls.count(b=3, c=1)

"""Refusals: a change that is refused takes the whole write back, wherever it stands in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from msgspec.structs import replace as alter

from sennit.errors import ConflictError, ExistsError, NotFoundError, SennitError, ValidationError
from sennit.ids import new_id
from sennit.stores.records.commits import AddCommit, AddUses, CommitRecord, PutCommit, UseRecord
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchRecord,
    CallStart,
    Change,
    ChangeBranch,
    DescribeSession,
    EventRecord,
    LabelRecord,
    PutLabels,
    PutRun,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    TakeLease,
    Write,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    STRANGER,
    TTL,
    LeaseFixture,
    Scenario,
    branch,
    deltas,
    message,
    raises,
    same,
    segment,
)


class _Sample:
    """A session with one of each kind of record; no valid change touches the branch "calm"."""

    def __init__(self, s: Scenario) -> None:
        self.s, self.store = s, s.store
        s.branch("main", "abc").branch("side", "x").fork("main", "fork", 2).append("fork", "y")
        s.fork("main", "spare").branch("calm", "z").add("lmno")
        self.main, self.side, self.fork, self.spare, self.calm = (
            s.stored(name) for name in ("main", "side", "fork", "spare", "calm")
        )
        self.leased, self.beside = LeaseFixture(s, "leased"), LeaseFixture(s, "beside")
        self.run, self.other_run = self.leased.run(), self.beside.run()
        self.leased.add(*deltas(self.run, 1, 2))
        self.use = UseRecord(new_id(), self.main.id, NOON, None, b"{}")
        self.counted = alter(self.use, id=new_id())
        self.commit = self.committing(1, "x")
        s.write(AddUses((self.use, self.counted)), AddCommit(self.commit, (self.counted.id,)))
        s.write(PutStarts(((s["a"], 1),)))
        self.foreign = s.beside().branch("foreign", "f")

    def committing(self, number: int, texts: str) -> CommitRecord:
        return CommitRecord(new_id(), number, self.main.id, NOON, "open", self.s.ids(texts))

    def everything(self) -> tuple[object, ...]:
        """Return everything the store gives of the session."""
        store, key = self.store, (self.s.owner, self.s.id)
        notes = [(one.runs(), one.events(), one.last()) for one in (self.leased, self.beside)]
        told = store.commits(*key), store.labels(*key), store.starts(*key, None)
        removed = store.removed(*key, 2**62, 99), self.s.found("new")
        return store.load(*key), notes, told, removed, store.is_leased(*key, self.main.id)

    def good(self) -> list[Change]:
        """Return a valid change of each kind."""
        s, on, new = self.s, segment(), segment()
        added = AddMessages((message("new 1"), message("new 2")))
        appended = tuple(record.id for record in added.messages)
        rewritten = replace(self.side, segment=new.id, length=2, version=1)
        return [
            DescribeSession({"title": "new"}),
            RemoveMessages(s.ids("b")),
            added,
            Append(self.main.id, appended),
            AddBranch(branch("new", on), on),
            Append(self.side.id, s.ids("l")),
            ChangeBranch(replace(self.side, resources=frozenset({"gpt"}))),
            ChangeBranch(rewritten, new),
            RenameBranch(self.side.id, "spare too"),
            RemoveBranch(self.spare.id),
            RenameBranch(self.side.id, "spare"),
            PutLabels((LabelRecord(s["a"], "ann", 1.0, NOON),)),
            PutStarts(((s["a"], 2),)),
            AddCommit(self.committing(2, "y"), (self.use.id,)),
            PutCommit(self.commit.id, "committed", b"{}", 0),
            AddUses((alter(self.use, id=new_id()),)),
            PutRun(alter(self.run, state="ended"), self.leased.token),
            self.leased.adding(*deltas(self.run, 3, 4)),
            RemoveBranch(self.beside.branch),
            TakeLease(self.main.id, "ada", TTL),
            RemoveMessages(s.ids("ml")),
        ]

    def try_write(self, kind: type[SennitError], *changes: Change) -> None:
        """Assert that a write is refused."""
        key = self.s.owner, self.s.id
        raises(kind, lambda: self.store.write(*key, changes), f"{changes!r:.200}")


def _adding(
    name: str, *entries: UUID, base: UUID | None = None, offset: int = 0, **fields: Any
) -> AddBranch:
    """Return the change that adds a branch with a segment."""
    on = segment(entries, base, offset)
    return AddBranch(branch(name, on, **fields), on)


def _rewriting(record: BranchRecord, *entries: UUID, base: UUID | None = None) -> ChangeBranch:
    on = segment(entries, base)
    return ChangeBranch(replace(record, segment=on.id), on)


def _on_its_segment(t: _Sample, **fields: Any) -> AddBranch:
    """Return the change that adds the branch "calm" again with other fields."""
    record = replace(t.calm, **fields)  # pyright: ignore[reportArgumentType]
    return AddBranch(record, t.s.load().segments[t.calm.segment])


def _event(t: _Sample, **fields: Any) -> AddEvents:
    """Return the change that adds another event with a number that is taken, and a new one."""
    return t.leased.adding(alter(deltas(t.run, 2)[0], **fields), *deltas(t.run, 9))


_REFUSED: dict[type[SennitError], dict[str, Callable[[_Sample], Change]]] = {
    ExistsError: {
        "another_body_under_a_known_id": lambda t: AddMessages(
            (message("fine"), message("other", t.s["a"]))
        ),
        "another_time_under_a_known_id": lambda t: AddMessages((alter(t.s.named["a"], created=1),)),
        "an_append_that_names_a_message_twice": lambda t: Append(t.calm.id, t.s.ids("nn")),
        "an_append_that_begins_with_what_is_there": lambda t: Append(t.calm.id, t.s.ids("zn")),
        "an_append_that_ends_with_what_is_there": lambda t: Append(t.calm.id, t.s.ids("nz")),
        "a_branch_with_a_taken_name": lambda _: _adding("calm"),
        "a_branch_with_a_taken_id": lambda t: _adding("other", id=t.calm.id),
        "a_branch_with_a_taken_id_and_name": lambda t: _adding("calm", id=t.calm.id),
        "a_branch_added_again_with_another_name": lambda t: _on_its_segment(t, name="other"),
        "a_branch_on_the_segment_of_another": lambda t: _on_its_segment(
            t, name="other", id=new_id()
        ),
        "a_new_name_that_another_branch_has": lambda t: RenameBranch(t.calm.id, "main"),
    },
    NotFoundError: {
        "an_append_to_an_unknown_branch": lambda t: Append(new_id(), t.s.ids("n")),
        "an_empty_append_to_an_unknown_branch": lambda _: Append(new_id(), ()),
        "an_append_to_a_branch_of_another_session": lambda t: Append(
            t.foreign.stored("foreign").id, t.s.ids("n")
        ),
        "an_append_of_an_unknown_message": lambda t: Append(t.calm.id, (t.s["n"], new_id())),
        "an_append_of_a_message_of_another_session": lambda t: Append(
            t.calm.id, t.foreign.ids("f")
        ),
        "a_branch_on_an_unknown_base": lambda _: _adding("other", base=new_id()),
        "a_branch_on_a_base_of_another_session": lambda t: _adding(
            "other", base=t.foreign.stored("foreign").segment, offset=1
        ),
        "a_branch_with_an_unknown_message": lambda t: _adding("other", t.s["n"], new_id()),
        "a_branch_with_an_unknown_system_message": lambda _: _adding("other", system=new_id()),
        "a_change_of_an_unknown_branch": lambda _: ChangeBranch(branch("calm", segment())),
        "a_change_to_an_unknown_system_message": lambda t: ChangeBranch(
            replace(t.calm, system=new_id())
        ),
        "a_rewrite_with_an_unknown_message": lambda t: _rewriting(t.calm, new_id()),
        "a_rewrite_on_an_unknown_base": lambda t: _rewriting(t.calm, base=new_id()),
        "a_new_name_of_an_unknown_branch": lambda _: RenameBranch(new_id(), "calm"),
        "a_new_name_of_a_branch_of_another_session": lambda t: RenameBranch(
            t.foreign.stored("foreign").id, "calm"
        ),
        "removing_an_unknown_branch": lambda _: RemoveBranch(new_id()),
        "a_label_of_an_unknown_message": lambda t: PutLabels(
            tuple(LabelRecord(m, "a", 1.0, NOON) for m in (t.s["a"], new_id()))
        ),
        "a_count_of_starts_of_an_unknown_message": lambda _: PutStarts(((new_id(), 1),)),
        "the_end_of_an_unknown_commit": lambda _: PutCommit(new_id(), "failed", b"{}", 0),
        "an_event_of_an_unknown_run": lambda t: t.leased.adding(
            *deltas(t.run, 9), EventRecord(10, new_id(), None, b"[]")
        ),
        "an_event_of_a_run_of_another_branch": lambda t: t.leased.adding(*deltas(t.other_run, 9)),
        "taking_a_lease_of_an_unknown_branch": lambda _: TakeLease(new_id(), "bob", TTL),
    },
    ValidationError: {
        "a_branch_that_begins_past_the_end_of_its_base": lambda t: _adding(
            "other", base=t.calm.segment, offset=2
        ),
        "a_branch_that_begins_before_the_start": lambda t: _adding(
            "other", base=t.calm.segment, offset=-1
        ),
        "a_branch_that_begins_later_without_a_base": lambda _: _adding("other", offset=1),
        "a_branch_that_begins_below_its_base": lambda t: _adding(
            "other", base=t.fork.segment, offset=0
        ),
        "a_branch_of_another_length_than_its_segment": lambda _: _adding("other", length=7),
        "a_branch_that_names_another_segment": lambda _: _adding("other", segment=new_id()),
    },
    ConflictError: {
        "a_change_from_another_version": lambda t: ChangeBranch(replace(t.calm, version=9)),
        "a_rewrite_from_another_length": lambda t: _rewriting(replace(t.calm, length=99)),
        "a_start_that_was_made_elsewhere": lambda t: alter(
            t.leased.adding(*deltas(t.run, 9)), starts=(CallStart(t.s["a"], 0),)
        ),
        "a_commit_numbered_too_low": lambda t: AddCommit(t.committing(1, "z")),
        "a_commit_numbered_too_high": lambda t: AddCommit(t.committing(9, "z")),
        "a_commit_of_what_is_archived": lambda t: AddCommit(t.committing(2, "zx")),
        "a_commit_of_a_use_that_another_counts": lambda t: AddCommit(
            t.committing(2, "z"), (t.counted.id,)
        ),
        "a_commit_of_an_unknown_use": lambda t: AddCommit(t.committing(2, "z"), (new_id(),)),
        "the_end_of_a_commit_of_another_version": lambda t: PutCommit(
            t.commit.id, "failed", b"{}", 7
        ),
        "a_run_with_an_older_token": lambda t: PutRun(t.run, t.leased.token - 1),
        "a_run_with_a_token_never_given": lambda t: PutRun(t.run, t.leased.token + 1),
        "a_run_on_a_branch_never_leased": lambda t: PutRun(alter(t.run, branch=t.calm.id), 0),
        "events_with_an_older_token": lambda t: t.leased.adding(*deltas(t.run, 9), token=0),
        "events_with_a_token_never_given": lambda t: t.leased.adding(
            *deltas(t.run, 9), token=t.leased.token + 1
        ),
        "another_event_body_under_a_number": lambda t: _event(t, body=b"[]"),
        "another_event_message_under_a_number": lambda t: _event(t, message=new_id()),
        "another_event_run_under_a_number": lambda t: _event(t, run=t.other_run.id),
        "two_events_with_one_number": lambda t: t.leased.adding(
            *deltas(t.run, 9), EventRecord(9, t.run.id, None, b"[]")
        ),
        "taking_a_lease_that_another_holds": lambda t: TakeLease(t.leased.branch, "bob", TTL),
    },
    SennitError: {
        "a_commit_of_an_unknown_message": lambda t: AddCommit(
            alter(t.committing(2, ""), entries=(new_id(),))
        ),
    },
}
"""The refused changes by their error, each with a name for its check."""


def _named(
    name: str, kind: type[SennitError], failing: Callable[[_Sample], Change]
) -> Callable[[Scenario], None]:
    def check(s: Scenario) -> None:
        sample = _Sample(s)
        bad, before = failing(sample), sample.everything()
        for changes in ((bad,), (*sample.good(), bad)):
            sample.try_write(kind, *changes)
            (refused,) = s.store.write_many([Write(s.owner, s.id, changes)])
            assert isinstance(refused, kind), f"{changes!r:.200} in a group gave {refused!r:.200}"
            same(sample.everything(), before, "The session after refused writes")

    check.__name__ = f"{name}_is_refused_with_its_write"
    return check


REFUSALS = tuple(
    _named(name, kind, failing)
    for kind, changes in _REFUSED.items()
    for name, failing in changes.items()
)
"""A check for each refused change."""


def a_write_that_fails_anywhere_changes_nothing(s: Scenario) -> None:
    sample = _Sample(s)
    good, before = sample.good(), sample.everything()
    for at in range(len(good) + 1):
        sample.try_write(NotFoundError, *good[:at], RemoveBranch(new_id()), *good[at:])
        same(sample.everything(), before, f"The session after a write that failed at change {at}")
    s.write(*good).load()
    for old, new in zip(before, sample.everything(), strict=True):
        assert old != new, f"The valid changes were not made: {new!r:.200}"


def several_writes_give_their_results_in_order(s: Scenario) -> None:
    scenes = [s, s.beside(), s.beside(STRANGER, s.id)]
    for n, scene in enumerate(scenes):
        scene.branch("main", "abc"[:n]).add("x")
    writes = [Write(one.owner, one.id, (Append(one.stored().id, one.ids("x")),)) for one in scenes]
    results = s.store.write_many([*writes, alter(writes[1], owner=STRANGER)])
    heads = [result[0].length for result in results[:3] if not isinstance(result, SennitError)]
    same(heads, [0, 1, 2], "Lengths of the heads")
    assert isinstance(results[3], NotFoundError), "A write to another owner's session was made."
    same(s.store.write_many([]), [], "Results of no writes")


def of_several_writes_each_fails_alone_and_the_later_see_the_earlier(s: Scenario) -> None:
    main = s.branch().stored().id
    lost, unknown = message("lost"), RemoveBranch(new_id())
    at_end = AddMessages((lost,)), Append(main, (lost.id,)), Append(new_id(), (lost.id,))
    writes: list[tuple[Change, ...]] = [
        (AddMessages((lost,)), unknown),
        (s.adding("a"),),
        (Append(main, s.ids("a")),),
        at_end,
        (s.adding("b"), Append(main, s.ids("b"))),
        (DescribeSession({}), unknown),
    ]
    results = s.store.write_many([Write(s.owner, s.id, changes) for changes in writes])
    failed = [isinstance(result, NotFoundError) for result in results]
    same(failed, [True, False, False, True, False, True], "Which writes failed")
    s.shows(main="ab").holds("ab")

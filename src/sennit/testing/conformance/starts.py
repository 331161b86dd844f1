"""Tool call starts: counted across branches, each recorded by exactly one writer."""

from __future__ import annotations

from uuid import UUID

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddEvents,
    AddMessages,
    Append,
    CallStart,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RunRecord,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    STRANGER,
    LeaseFixture,
    StoreFixture,
    deltas,
    empty,
    ids,
    message,
    raises,
    same,
)


class _Called:
    """Two leased branches in a session with two tool call requests."""

    def __init__(self, store: Store) -> None:
        self.scene, self.store = StoreFixture(store), store
        self.main, self.side = LeaseFixture(self.scene), LeaseFixture(self.scene, "side")
        self.here, self.there = self.main.run(), self.side.run()
        self.first, self.second = ids(self.scene.append(self.main.branch, "pay ada", "pay bob"))

    def starting(
        self, notes: LeaseFixture, run: RunRecord, seq: int, message: UUID, known: int | None
    ) -> AddEvents:
        events = tuple(deltas(run, seq, about=message))
        return AddEvents(notes.branch, events, notes.token, (CallStart(message, known),))

    def start(self, seq: int, known: int | None = 0) -> None:
        self.scene.write(self.starting(self.main, self.here, seq, self.first, known))

    def start_beside(self, seq: int, known: int | None = 0) -> None:
        self.scene.write(self.starting(self.side, self.there, seq, self.first, known))

    def starts(self, *messages: UUID) -> dict[UUID, int]:
        return self.store.starts(OWNER, self.scene.id, messages or None)


def a_session_without_tool_calls_has_no_starts(store: Store) -> None:
    empty("Starts", _Called(store).starts())


def starts_of_an_unknown_session_are_not_found(store: Store) -> None:
    called = _Called(store)
    called.scene.id = new_id()
    raises(NotFoundError, called.starts, "Asking in an unknown session")
    called = _Called(store)
    raises(NotFoundError, lambda: store.starts(STRANGER, called.scene.id, None), "Another's starts")


def starts_are_counted_for_all_branches_together(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    called.start_beside(1, known=1)
    same(called.starts(), {called.first: 2}, "All starts")
    same(called.starts(called.second, called.first), {called.first: 2}, "Those asked for")
    empty("Starts of the other", called.starts(called.second))


def a_start_that_another_branch_was_faster_with_is_refused_with_its_write(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    error = raises(ConflictError, lambda: called.start_beside(1), "Starting it there too")
    same(error.call, called.first, "The call the error names")
    empty("Events of the other branch", called.side.events())
    same(called.starts(), {called.first: 1}, "Starts")


def a_start_that_need_not_be_the_only_one_is_not_refused(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    called.start_beside(1, known=None)
    same(called.starts(), {called.first: 2}, "Starts")


def a_start_repeated_counts_once(store: Store) -> None:
    called = _Called(store)
    for _ in range(3):
        called.start(1)
    same(called.starts(), {called.first: 1}, "Starts")


def a_start_may_be_written_with_the_message_that_asks_for_it(store: Store) -> None:
    called = _Called(store)
    request, branch = message("pay eve"), called.main.branch
    starting = called.starting(called.main, called.here, 1, request.id, 0)
    called.scene.write(AddMessages((request,)), Append(branch, (request.id,)), starting)
    same(called.starts(), {request.id: 1}, "Starts")


def starts_stay_when_the_branch_goes_on_which_they_were_made(store: Store) -> None:
    called = _Called(store)
    called.start_beside(1)
    called.scene.write(RemoveBranch(called.side.branch))
    same(called.starts(), {called.first: 1}, "Starts")


def starts_are_erased_with_their_message(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    called.scene.write(RemoveMessages((called.first,)))
    empty("Starts", called.starts())
    called.start(2)
    empty("Starts of a call that was erased", called.starts())


def starts_are_erased_with_their_session(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    store.delete_session(OWNER, called.scene.id)
    raises(NotFoundError, called.starts, "A deleted session")


def starts_taken_over_never_make_fewer(store: Store) -> None:
    called = _Called(store)
    called.start(1)
    both = ((called.first, 3), (called.second, 1))
    called.scene.write(PutStarts(both))
    called.scene.write(PutStarts(((called.first, 2),)))
    same(called.starts(), dict(both), "Starts")
    unknown = PutStarts(((new_id(), 1),))
    raises(NotFoundError, lambda: called.scene.write(unknown), "An unknown message")

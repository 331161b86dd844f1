"""Rules for runs and events, the same for every store, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from sennit.errors import ConflictError, NotFoundError
from sennit.stores.records.sessions import AddEvents, EventRecord


def new_events(
    change: AddEvents, last: int, read_stored: Callable[[], Iterable[EventRecord]]
) -> list[EventRecord]:
    """Return the events of a change after the branch's `last` event, in order.

    `read_stored` returns the stored events from the first of them on. An earlier event must equal
    the stored one, or was erased and stays so. Raises ConflictError if it differs.
    """
    numbers = [event.seq for event in change.events]
    if numbers == list(range(last + 1, last + 1 + len(numbers))):
        return list(change.events)  # the usual case
    if any(event.seq <= last for event in change.events):
        stored = {event.seq: event for event in read_stored()}
        for event in change.events:
            if stored.get(event.seq, event) != event:
                raise other_event(change.branch, event.seq)
    new: dict[int, EventRecord] = {}
    for event in change.events:
        if event.seq > last and new.setdefault(event.seq, event) != event:
            raise other_event(change.branch, event.seq)
    return [new[seq] for seq in sorted(new)]


def lost_lease() -> ConflictError:
    """Return the error for a writer that has lost its lease."""
    return ConflictError(
        "Another run has taken over this branch, so nothing was written. Refresh the session, and "
        "try again once that run has ended."
    )


def started_elsewhere(message: UUID) -> ConflictError:
    """Return the error for a tool call that was started more often than the writer knows."""
    return ConflictError(
        f"Another process has started the tool call of message {message}, on this branch or "
        f"another one. Nothing was written; read its starts and decide again.",
        call=message,
    )


def other_event(branch: UUID, seq: int) -> ConflictError:
    """Return the error for an event whose number another event has."""
    return ConflictError(f"Event {seq} of branch {branch} already exists with a different content.")


def no_run(run: UUID) -> NotFoundError:
    """Return the error for an event of a run that is not stored on its branch."""
    return NotFoundError(f"There is no run {run} on this branch; store it first with PutRun.")

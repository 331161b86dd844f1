"""The outcome of a special turn, and how it is applied to the branch.

It goes to the head of the branch as that is by then, in one write: through the run under way in
this conversation, if there is one, else with the branch held for a moment. A run that waits for a
person, or was interrupted, is left as it is.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import RunRecord
from sennit.turns.branch_lease import hold_lease, new_holder
from sennit.turns.events import AnyEvent, HistoryReplaced, MessageInterjected
from sennit.turns.journal import Journal, Publish
from sennit.turns.result import Notice, Return
from sennit.turns.run import Run

_BUSY_TIMEOUT_SECONDS = (
    60.0  # seconds that what was said waits for a run of someone else on the branch
)
_POLL_SECONDS = 0.02  # seconds between two looks


class EventRecorder(Protocol):
    """Notes an event, with the message it appends to the branch, or how it rewrites that."""

    def __call__(
        self,
        kind: Callable[..., AnyEvent],
        *,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        **fields: Any,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class SpecialOutcome:
    """The result of a special turn, and the messages for the branch."""

    result: Return
    appended: tuple[Message, ...] = ()
    """What is appended."""
    rewrite: Rewrite | None = None
    """What replaces what is above, instead."""
    replaced: int = 0

    @property
    def changes_branch(self) -> bool:
        """True if anything is to be put on the branch."""
        return bool(self.appended) or self.rewrite is not None

    def fits(self, branch: Branch) -> bool:
        """Return whether what it replaces, if anything, is still on the branch."""
        plan = self.rewrite
        return plan is None or plan.through is None or plan.through in branch

    def check(self, branch: Branch) -> None:
        """Raise ConflictError unless it fits."""
        if not self.fits(branch):
            raise ConflictError(
                f"The messages to replace are no longer on branch {branch.name!r}; nothing changed."
            )

    def put_on_branch(self, emit: EventRecorder, *, to_make_room: bool = False) -> None:
        """Tell what is put on the branch; `to_make_room` is for what a run does by itself."""
        plan = self.rewrite
        if plan is not None:
            (message,) = plan.put
            emit(
                HistoryReplaced,
                message=message,
                branch_id=plan.aside,
                count=self.replaced,
                to_make_room=to_make_room,
                rewrite=plan,
            )
        for message in self.appended:
            emit(MessageInterjected, message=message, put=message)


async def apply_outcome(
    outcome: SpecialOutcome, branch: Branch, active_run: Callable[[], Run | None], publish: Publish
) -> Return:
    """Put on the branch what a special turn leaves, through the run under way if there is one."""
    deadline = clock.monotonic() + _BUSY_TIMEOUT_SECONDS
    try:
        while True:
            run = active_run()
            if run is not None:
                await run.flush()  # what others replace is checked against, and cannot fail it
                if not run.is_active:
                    continue
                outcome.check(branch)
                outcome.put_on_branch(run.emit)
                await run.flush()
                return outcome.result
            try:
                await _apply_with_lease(outcome, branch, publish)
                return outcome.result
            except ConflictError as error:
                if not error.holder or clock.monotonic() > deadline:
                    raise
            await sleep(_POLL_SECONDS)
    except SennitError as error:
        code = "conflict" if isinstance(error, ConflictError) else type(error).__name__
        return outcome.result.worse(Notice("error", code, str(error)))


async def _apply_with_lease(outcome: SpecialOutcome, branch: Branch, publish: Publish) -> None:
    runs = RunRepository(branch)
    async with hold_lease(runs, new_holder(brief=True)) as branch_lease:
        outcome.check(branch)
        journal = Journal(runs, branch_lease, publish)
        if (
            branch_lease.unfinished_run is None
        ):  # a run that waits, or was interrupted, stays the last one
            run_id = outcome.result.run_id or new_id()
            now, body = clock.now_us(), dumps({"after": branch_lease.seq})
            journal.put_run(RunRecord(run_id, branch.id, "ended", now, now, body))
        else:
            run_id = branch_lease.unfinished_run.record.id
        outcome.put_on_branch(_EventNumberer(journal, run_id, branch_lease.seq).emit)
        await journal.flush()


@dataclass(slots=True)
class _EventNumberer:
    """Numbers events, one after another."""

    journal: Journal
    run_id: UUID
    seq: int

    def emit(
        self,
        kind: Callable[..., AnyEvent],
        *,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        **fields: Any,
    ) -> None:
        """Note an event."""
        self.seq += 1
        self.journal.add(kind(seq=self.seq, run_id=self.run_id, **fields), put, rewrite)

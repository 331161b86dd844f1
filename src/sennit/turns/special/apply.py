"""The outcome of a special turn, and how it is applied to the branch.

It is written at the current head of the branch: through the active run of this conversation, if
there is one, and otherwise under a brief lease. A run that is suspended or was interrupted is left
as it is.
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

_BUSY_TIMEOUT_SECONDS = 60.0  # for the end of another process's run on the branch
_POLL_SECONDS = 0.02


class EventRecorder(Protocol):
    """Records an event, with the message it appends to the branch or the rewrite of the branch."""

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
    """The messages to append."""
    rewrite: Rewrite | None = None
    """The rewrite that replaces earlier messages, instead."""
    replaced: int = 0

    @property
    def changes_branch(self) -> bool:
        """True if there is anything to write."""
        return bool(self.appended) or self.rewrite is not None

    def fits(self, branch: Branch) -> bool:
        """Return whether the messages to replace, if any, are still on the branch."""
        plan = self.rewrite
        return plan is None or plan.through is None or plan.through in branch

    def check(self, branch: Branch) -> None:
        """Raise ConflictError unless it fits."""
        if not self.fits(branch):
            raise ConflictError(
                f"The messages to replace are no longer on branch {branch.name!r}; nothing changed."
            )

    def put_on_branch(self, emit: EventRecorder, *, to_make_room: bool = False) -> None:
        """Emit the events that change the branch; `to_make_room` is True if the run itself asked
        for it.
        """
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
    """Apply the outcome of a special turn to the branch, through the active run if there is one."""
    deadline = clock.monotonic() + _BUSY_TIMEOUT_SECONDS
    try:
        while True:
            run = active_run()
            if run is not None:
                await run.flush()  # so that the check sees what other turns have replaced
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
        if branch_lease.unfinished_run is None:  # an unfinished run stays the last one
            run_id = outcome.result.run_id or new_id()
            now = clock.now_us()
            body: dict[str, Any] = {"after": branch_lease.seq}
            if (prompt := branch_lease.last_prompt) is not None:
                body["prompt"] = prompt
            journal.put_run(RunRecord(run_id, branch.id, "ended", now, now, dumps(body)))
        else:
            run_id = branch_lease.unfinished_run.record.id
        outcome.put_on_branch(_EventNumberer(journal, run_id, branch_lease.seq).emit)
        await journal.flush()


@dataclass(slots=True)
class _EventNumberer:
    """An emitter that numbers events."""

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
        """Record an event."""
        self.seq += 1
        self.journal.add(kind(seq=self.seq, run_id=self.run_id, **fields), put, rewrite)

"""The active run of a conversation, to cancel, suspend or steer it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task, get_running_loop, run_coroutine_threadsafe
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sennit.messages.message import Message
from sennit.turns.result import Return
from sennit.turns.run import CancelMode, Run


@dataclass(slots=True)
class ActiveRun:
    """The run under way, and where it runs."""

    run: Run
    loop: AbstractEventLoop
    task: Task[Return]
    started_by: Task[Any] | None
    """The task that waits for it."""

    def cancel(self, mode: CancelMode) -> None:
        """Stop it, once; being told again changes nothing."""
        if mode == "after_turn":
            self.run.progress.stopping = True
        elif not self.run.cancel_requested:
            self.run.cancel_requested = True
            if self.loop is running_loop():
                self.task.cancel()
                return
            with suppress(RuntimeError):  # its loop has ended, and the run with it
                self.loop.call_soon_threadsafe(self.task.cancel)

    def steer(self, message: Message) -> bool:
        """Say something to it; False if it is too late. Another thread waits until it is kept."""
        if self.loop is running_loop():
            return self.run.steer(message)
        try:
            return run_coroutine_threadsafe(self._steer(message), self.loop).result()
        except RuntimeError:  # its loop has ended, and the run with it
            return False

    async def _steer(self, message: Message) -> bool:
        accepted = self.run.steer(message)
        if accepted:
            await self.run.flush()
        return accepted


def running_loop() -> AbstractEventLoop | None:
    """This thread's event loop, if it runs one."""
    try:
        return get_running_loop()
    except RuntimeError:
        return None

"""One run under way: what it knows of itself, and the one way it tells what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID

from msgspec.structs import replace as replace_struct

from sennit import clock
from sennit.errors import ModelError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.content import ActionRequestContent, AssistantResponseContent
from sennit.messages.message import Message
from sennit.messages.native import call_ids
from sennit.messages.unset import Unset
from sennit.services.request import ModelRequest
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import RunRecord
from sennit.turns.coalesce import Coalescer
from sennit.turns.draft import Draft
from sennit.turns.events import (
    AnyEvent,
    ApprovalGiven,
    DraftDropped,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    Warned,
)
from sennit.turns.hold import Held, new_holder
from sennit.turns.journal import Journal
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.recovery import Unfinished
from sennit.turns.request import Request
from sennit.turns.returns import Body, Metrics, Notice, Return
from sennit.turns.step import Progress, Step, Stop, next_step

CancelMode: TypeAlias = Literal["now", "after_turn"]


class Run:
    """A run of turns on a branch; the loop drives it, and everyone else reads its events."""

    def __init__(
        self,
        request: Request,
        options: SessionOptions,
        streaming: StreamingOptions | None,
        publish: Callable[[list[AnyEvent]], None],
        *,
        id: UUID | None = None,
    ) -> None:
        self.id = new_id() if id is None else id
        self.request, self.options, self.streaming = request, options, streaming
        self.runs = BranchRuns(request.branch)
        self.holder = new_holder()
        """Who holds the branch; a run that is resumed has another one each time."""
        self.progress = Progress()
        self.error: Exception | None = None
        """What the run failed with."""
        self.draft: Draft | None = None
        """What the model is saying."""
        self.steered: deque[Message] = deque()
        """What people have said meanwhile."""
        self.cancelled_here = False
        """Whether the run was told to stop, rather than whoever waits for it."""
        self.publish = publish
        """Shows events that are durable."""
        self.started: set[UUID] = set()
        """Requests whose tools were under way when an earlier run broke off."""
        self.decided: dict[UUID, ApprovalGiven] = {}
        """What people have decided about requests."""
        self._began = clock.monotonic()
        self._created = clock.now_us()
        self._said: list[Message] = []
        self._notices: list[Notice] = []
        self.ended = False
        """Whether its end was told."""
        self._result: Return | None = None
        self._after = 0
        self._coalescer = None if streaming is None else Coalescer(streaming, self._show)

    def begin(self, held: Held) -> None:
        """Start telling, with the branch held.

        What an unfinished run has left is gone on with if it is this very run. If it is another
        one, that one is over: what it was saying is kept as far as it came.
        """
        left, self._held = held.left, held
        self.journal = Journal(self.runs, held.lease.token, self.publish)
        self._seq = self._after = held.seq
        resumed = left is not None and left.record.id == self.id
        if left is not None:
            self.started, self.decided = left.started, left.decided
            if resumed:
                self._go_on_with(left)
            else:
                self.journal.put(replace_struct(left.record, state="ended"))
        self.put("running")
        self.tell(RunStarted, model=self.request.model_name, resumed=resumed)
        if left is not None:
            self._drop_drafts(left) if resumed else self._keep_drafts(left)
        self.progress.pending = self.request.pending()

    def _go_on_with(self, left: Unfinished) -> None:
        progress = self.progress
        progress.turns, progress.passes = left.turns, left.passes
        progress.tool_calls, progress.usage = left.tool_calls, left.usage
        progress.finish = left.finish
        self._created, self._after = left.record.created, left.notes.get("after", 0)
        self._said = list(left.said)
        last = self._said[-1].content if self._said else None
        progress.answered = isinstance(last, AssistantResponseContent) and not left.drafts
        for message in self._said:
            self._count_repeats(message)

    def _drop_drafts(self, left: Unfinished) -> None:
        for message_id in left.drafts:
            self.tell(DraftDropped, message_id=message_id)

    def _keep_drafts(self, left: Unfinished) -> None:
        for message_id, drafted in left.drafts.items():
            content = AssistantResponseContent(
                assistant_response="".join(drafted.text) or Unset,
                reasoning="".join(drafted.thought) or Unset,
            )
            note = {"finish_reason": "interrupted"}
            message = Message(content, id=message_id, sender=self.request.model_name, metadata=note)
            if self.request.put_before_later(message):
                self._said.append(message)
                self.tell(MessageCompleted, message=message)
            else:
                self.tell(MessageCompleted, new=message)

    def put(self, state: Literal["running", "suspended", "ended"]) -> None:
        """Note where the run stands, for whoever goes on with it."""
        body = dumps(
            {
                "options": _plain(self.options),
                "model": self.request.model_name,
                "after": self._after,
                "holder": self.holder,
            }
        )
        now = clock.now_us()
        self.journal.put(
            RunRecord(self.id, self.request.branch.id, state, self._created, now, body),
            release=state != "running",
        )

    def tell(
        self, kind: Callable[..., AnyEvent], *, new: Message | None = None, **more: Any
    ) -> None:
        """Note an event; `new` is a message that it puts on the branch."""
        self._seq += 1
        if new is not None:
            self._said.append(new)
            more["message"] = new
        self.journal.add(kind(seq=self._seq, run_id=self.id, **more), new)

    async def settle(self) -> None:
        """Wait until all that was told is durable and shown."""
        await self.journal.settle()

    def next(self) -> Step:
        """What comes next, with what people have said meanwhile taken in first."""
        while self.steered and not self.progress.pending:
            self.tell(MessageCompleted, new=self.steered.popleft())
            self.progress.answered = False
        self.progress.seconds = clock.monotonic() - self._began
        return next_step(self.progress, self.options)

    def begin_draft(self, asked: ModelRequest) -> Draft:
        """A new turn of the model, which is asked this."""
        self.draft = Draft(self, self.request.model_name, lambda: call_ids(asked.messages))
        return self.draft

    def take_end(self, draft: Draft) -> None:
        """The model's turn is over."""
        self._flush()
        end = draft.finished
        if end is None:
            raise ModelError("The model's stream ended without saying so.", kind="network")
        self.draft = None
        progress = self.progress
        progress.usage += end.usage
        progress.finish, progress.model = end.reason, end.model
        progress.answered = not draft.requests

    def show(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """More of a message that is being said; nobody sees it unless the run streams."""
        if self._coalescer is not None:
            self._coalescer.add(message_id, text, reasoning)

    def _show(self, message_id: UUID, text: str, reasoning: bool) -> None:
        kind = ReasoningAdded if reasoning else TextAdded
        self.tell(kind, message_id=message_id, text=text)

    def said(self, message: Message) -> None:
        """A text is complete."""
        self._flush()
        self.tell(MessageCompleted, new=message)

    def asked(self, message: Message) -> None:
        """A request for a tool is complete."""
        self._flush()
        self.tell(ToolCalled, new=message)
        self.progress.pending.append(message)
        self._count_repeats(message)

    def dropped(self, message_id: UUID) -> None:
        """A message that was being said will not be."""
        self._flush()
        self.tell(DraftDropped, message_id=message_id)

    def _flush(self) -> None:
        if self._coalescer is not None:
            self._coalescer.flush()

    def _count_repeats(self, message: Message) -> None:
        content = message.content
        if not isinstance(content, ActionRequestContent):
            return
        arguments = {} if content.arguments is Unset else content.arguments
        call = (content.function or "", dumps(arguments).decode())
        repeats = self.progress.repeated if call == self.progress.latest else 0
        self.progress.latest, self.progress.repeated = call, repeats + 1

    def warn(self, code: str, text: str) -> None:
        """Something went wrong that does not end the run."""
        notice = Notice("warning", code, text)
        self._notices.append(notice)
        self.tell(Warned, notice=notice)

    def warn_if_running(self, code: str, text: str) -> None:
        """The same, unless it is too late to tell."""
        if not self.ended:
            self.warn(code, text)

    def break_off(self) -> None:
        """Stop in the middle: what the model was saying is kept, or dropped, as the options say."""
        if self.draft is not None:
            self.draft.interrupt(keep=self.options.on_cancel == "keep_partial")
            self.draft = None

    async def end(self, stop: Stop) -> Return:
        """Tell the end, once: told again, it only waits until the first is durable and shown."""
        if self._result is None:
            self._result = self._told(stop)
        try:
            await self.settle()
            self._held.released = True
        except SennitError as error:  # such as a lost lease: nobody but us can know
            if self._result.stop_reason != "error" or self._result.error is not error:
                self._result = self._failed_at_last(self._result, error)
        return self._result

    def _told(self, stop: Stop) -> Return:
        result = Return(
            stop_reason=stop.reason,
            body=Body(tuple(self._said)),
            messages=(*self._notices, *stop.notices),
            metrics=self._metrics(),
            run_id=self.id,
            seq=self._seq + 1,
            error=self.error,
        )
        self.tell(RunEnded, result=result)
        self.ended = True
        self.put("suspended" if stop.reason == "suspended" else "ended")  # which gives it back
        return result

    def _failed_at_last(self, result: Return, error: SennitError) -> Return:
        told = Notice("error", type(error).__name__, str(error))
        failed = replace(
            result, stop_reason="error", messages=(*result.messages, told), error=error
        )
        self.publish([RunEnded(seq=self._seq, run_id=self.id, result=failed)])
        return failed

    def _metrics(self) -> Metrics:
        progress = self.progress
        return Metrics(
            usage=progress.usage,
            turns=progress.turns,
            tool_calls=progress.tool_calls,
            seconds=round(clock.monotonic() - self._began, 6),
            finish_reason=progress.finish,
            model=progress.model,
        )


@lru_cache(64)  # most runs have the same, and each notes them twice
def _plain(options: SessionOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if value is not None}

"""A run: its progress, its events and its end.

The loop drives a run; the run turns each step into events, which the journal makes durable before
they are published. Exactly one RunEnded is emitted, whatever happens.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID

from msgspec.structs import replace as replace_struct

from sennit import clock
from sennit.errors import ExistsError, ModelError, OutputError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
)
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import call_ids
from sennit.messages.provider_state import STATE_KEY
from sennit.messages.unset import Unset
from sennit.services.models.request import ModelRequest
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import CallStart, RunRecord
from sennit.turns.branch_lease import BranchLease, new_holder
from sennit.turns.coalesce import Coalescer
from sennit.turns.context import RunContexts, is_window_full
from sennit.turns.events import (
    AnyEvent,
    DraftDropped,
    MessageCompleted,
    MessageInterjected,
    MessageQueued,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    WarningIssued,
)
from sennit.turns.journal import Journal
from sennit.turns.options import NO_INPUT, RunInput, SessionOptions, StreamingOptions
from sennit.turns.output import OutputState
from sennit.turns.policies import has_reply_policies
from sennit.turns.prompt_changes import SentPrompt, note_prompt
from sennit.turns.recovery import UnfinishedRun
from sennit.turns.reply_builder import ReplyBuilder
from sennit.turns.request import Request
from sennit.turns.result import SPECIAL_TURN_KEY, Body, Metrics, Notice, Return, StopReason
from sennit.turns.step import (
    CallModel,
    MakeRoom,
    Progress,
    Step,
    Stop,
    exhausted_limit,
    next_step,
    single_step,
    stop_for_error,
)
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import call_id_of

_SELF_CANCELLED = (
    "Code that the run calls (the model, a policy or a context provider) raised CancelledError, "
    "though nobody has cancelled the run."
)

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
        run_input: RunInput = NO_INPUT,
        greets: bool = False,
    ) -> None:
        self.id = new_id() if id is None else id
        self.request, self.options, self.streaming = request, options, streaming
        self.input = run_input
        output = run_input.output
        self.output = None if output is None else OutputState(output, options.repairs)
        """What the answer must contain; None for any answer."""
        self._output_note = None if output is None else output.note()
        self.runs = RunRepository(request.branch)
        self.holder = new_holder()
        """The lease holder of this run; new each time the run is resumed."""
        self.progress = Progress(greets=greets)
        self.window: int | None = None
        """The context window of the model in tokens; None if unknown or not needed."""
        self.contexts: RunContexts | None = None
        """The id of the newest instruction, and the context items added to its prompt."""
        self.sends_state = True
        """Whether replies go back to their provider as it sent them."""
        self.error: Exception | None = None
        """The exception that ended the run."""
        self.draft: ReplyBuilder | None = None
        """The reply that the model is streaming."""
        self.steered: deque[Message] = deque()
        """Queued messages that the model has not been sent yet."""
        self._steered_ids: set[UUID] = set()  # also of those that are on the branch by now
        self.cancel_requested = False
        """True if the run itself was cancelled, rather than the task that awaits it."""
        self.stop: Callable[[], None] = stop_nothing
        """Cancels the run; thread-safe."""
        self.suspending = False
        """True if the run stops in order to be resumed."""
        self.publish = publish
        """Called with each batch of durable events."""
        self.calls = ToolCallStates()
        """The recorded state of the tool calls of this run, and of those pending when it began."""
        self._started_at = clock.monotonic()
        self._created_us = clock.now_us()
        self._messages: list[Message] = []
        self._notices: list[Notice] = []
        self.ended = False
        """True once RunEnded was emitted."""
        self._result: Return | None = None
        self.started = False
        """True once the run has held the branch."""
        self._resumed = False
        self._model_request: ModelRequest | None = None  # the last one
        self.is_first = False
        """True if the branch had no run before."""
        self.stored_prompt: list[Any] | None = None
        """The note of the last prompt in the record of the last run."""
        self.sent_prompt: SentPrompt | None = None
        """The last prompt of this run."""
        self._earlier_passes = 0  # before the run was resumed
        self._needs_review = has_reply_policies(request.policies)
        self._changed_options = _non_default_options(options)
        self._after_seq = 0
        self._coalescer = None if streaming is None else Coalescer(streaming, self._emit_delta)

    def begin(self, branch_lease: BranchLease) -> None:
        """Start the run under a lease, and emit its first events.

        If the last run of the branch is unfinished and is this run, it is resumed. If it is
        another run, that one is marked as ended, and its partial text is stored.
        """
        unfinished_run, self._branch_lease, self.started = (
            branch_lease.unfinished_run,
            branch_lease,
            True,
        )
        self._started_at = clock.monotonic()  # without the wait for the lease
        self.holder = branch_lease.lease.holder
        self.journal = Journal(self.runs, branch_lease, self.publish)
        self._seq = self._after_seq = branch_lease.seq
        self._messages = []
        self.is_first = branch_lease.last_run is None
        self.stored_prompt = branch_lease.last_prompt
        self._resumed = resumed = unfinished_run is not None and unfinished_run.record.id == self.id
        if unfinished_run is not None:
            self.calls = unfinished_run.calls
            if resumed:
                self._resume_from(unfinished_run)
            else:
                self.journal.put_run(replace_struct(unfinished_run.record, state="ended"))
        self.save_record("running")
        self.emit(RunStarted, model=self.request.model_name, resumed=resumed)
        if unfinished_run is not None:
            self._drop_drafts(unfinished_run) if resumed else self._keep_drafts(unfinished_run)
            self._restore_steered(unfinished_run)
        self.progress.pending = _pending_after(self.request, self.input.say)
        for message in self.input.say:
            answers = isinstance(message.content, ActionResponseContent)
            self.emit(ToolCompleted if answers else MessageCompleted, new=message)

    def nothing_to_answer(self) -> str | None:
        """Return the reason why this run has nothing to do, or None."""
        new = self.input.say
        if self.progress.greets or self.input.prompted or not all(map(_is_blank, new)):
            return None
        reason = self.request.nothing_to_answer()
        if reason is None and new:
            return f"The message for branch {self.request.branch.name!r} is empty; say something."
        return reason

    @property
    def is_active(self) -> bool:
        """True between the first event and RunEnded."""
        return self.started and not self.ended

    def _resume_from(self, unfinished_run: UnfinishedRun) -> None:
        progress = self.progress
        if self._output_note is None:
            self._output_note = unfinished_run.notes.get("output")
        progress.turns, progress.passes = unfinished_run.turns, unfinished_run.passes
        self._earlier_passes = unfinished_run.passes
        progress.tool_calls, progress.usage = unfinished_run.tool_calls, unfinished_run.usage
        progress.finish = unfinished_run.finish
        self._created_us, self._after_seq = (
            unfinished_run.record.created,
            unfinished_run.notes.get("after", 0),
        )
        self._messages = list(unfinished_run.said)
        if self._messages and not unfinished_run.drafts:
            # With a greeting alone nothing needs an answer; any other text is one.
            contents = [
                message.content
                for message in self._messages
                if SPECIAL_TURN_KEY not in message.metadata
            ]
            answered = not contents or contents[-1].from_assistant
            progress.answered = answered and not self.request.unanswered()
        for message in self._messages:
            self._count_repeats(message)

    def _drop_drafts(self, unfinished_run: UnfinishedRun) -> None:
        for message_id in unfinished_run.drafts:
            self.emit(DraftDropped, message_id=message_id)

    def _keep_drafts(self, unfinished_run: UnfinishedRun) -> None:
        for message_id, partial in unfinished_run.drafts.items():
            if unfinished_run.notes.get("judged"):  # no policy has seen the whole reply
                self.emit(DraftDropped, message_id=message_id)
                continue
            content = AssistantResponseContent(
                assistant_response="".join(partial.text) or Unset,
                reasoning="".join(partial.reasoning) or Unset,
            )
            metadata = {"finish_reason": "interrupted"}
            message = Message(
                content, id=message_id, sender=self.request.model_name, metadata=metadata
            )
            if self.request.insert_before_later(message):
                self._messages.append(message)
                self.emit(MessageCompleted, message=message)
            else:
                self.emit(MessageCompleted, new=message)

    def _restore_steered(self, unfinished_run: UnfinishedRun) -> None:
        """Queue the messages sent to the interrupted run ahead of later ones."""
        now = clock.now_us()
        messages = [
            Message.from_record(uid, now, event.record or self._plain_record(event.text))
            for uid, event in unfinished_run.steered.items()
        ]
        if unfinished_run.record.id != self.id:
            self._record_steered(messages)
        self._steered_ids.update(unfinished_run.steered)
        self.steered.extendleft(reversed(messages))

    def steer(self, message: Message) -> bool:
        """Queue a message for the next model call; return False if the run is not active.

        A run that still waits for its lease has no journal, so a crash would lose the message.
        Raises ExistsError if the message was steered before or is in the session.
        """
        if not self.is_active:
            return False
        if message.id in self._steered_ids or message.id in self.request.session.messages:
            raise ExistsError(f"Message {message.id} is already on the branch.")
        self._steered_ids.add(message.id)
        self.steered.append(message)
        self._record_steered([message])
        return True

    def _record_steered(self, messages: Iterable[Message]) -> None:
        for message in messages:
            text, record = message.content.words, message.to_record()
            custom_record = None if record == self._plain_record(text) else record
            self.emit(MessageQueued, message_id=message.id, text=text, record=custom_record)

    def _plain_record(self, text: str) -> dict[str, Any]:
        content = InstructionContent(instruction=text)
        return Message(content, sender=self.request.session.user).to_record()

    def save_record(self, state: Literal["running", "suspended", "ended"]) -> None:
        """Write the run record, from which the run can be resumed."""
        body: dict[str, Any] = {**self.request.notes}
        body |= {"model": self.request.model_name, "after": self._after_seq}
        if self._changed_options:
            body["options"] = self._changed_options
        if self.request.tools:
            body["tools"] = list(self.request.tools)
        if self._output_note is not None:
            body["output"] = self._output_note
        if state == "running":
            body["holder"] = self.holder
        if self.progress.greets:
            body["greets"] = True
        if self._needs_review:
            body["judged"] = True
        if (prompt := self.sent_prompt) is not None:
            body["prompt"] = prompt.note
        elif self.stored_prompt is not None:
            body["prompt"] = self.stored_prompt
        now, branch = clock.now_us(), self.request.branch.id
        self.journal.put_run(
            RunRecord(self.id, branch, state, self._created_us, now, dumps(body)),
            release=state != "running",
        )

    def emit(
        self,
        kind: Callable[..., AnyEvent],
        *,
        new: Message | None = None,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        start: CallStart | None = None,
        **fields: Any,
    ) -> None:
        """Append an event to the journal.

        `new` is a message of this run to add to the branch, `put` one that is not part of its
        result; `rewrite` says where it goes, if not to the end. `start` is the tool call that the
        event starts.
        """
        self._seq += 1
        if new is not None:
            self._messages.append(new)
            fields["message"] = put = new
        self.journal.add(kind(seq=self._seq, run_id=self.id, **fields), put, rewrite, start)

    async def flush(self) -> None:
        """Wait until all emitted events are durable and published."""
        await self.journal.flush()

    async def next(self) -> Step:
        """Return the next step, after moving queued messages to the branch."""
        while self.steered and not self.progress.pending:
            self.emit(MessageCompleted, new=self.steered.popleft())
            self.progress.answered = False
        progress = self.progress
        self._update_seconds()
        if self.input.only is not None:
            has_run = progress.passes > self._earlier_passes
            return single_step(progress, self.input.only, has_run=has_run, resumed=self._resumed)
        step = next_step(progress, self.options)
        if isinstance(step, Stop) and self._request_repair():
            return await self.next()
        return MakeRoom() if isinstance(step, CallModel) and await self._needs_summary() else step

    def is_over_budget(self) -> bool:
        """Return whether a limit of the budget is exhausted."""
        self._update_seconds()
        return exhausted_limit(self.progress, self.options.budget) is not None

    def _update_seconds(self) -> None:
        self.progress.seconds = clock.monotonic() - self._started_at

    async def _needs_summary(self) -> bool:
        if self.progress.summary_failed:
            return False
        if self.progress.window_error is not None:
            return True
        if self.window is None or self.options.summarize_at is None:
            return False
        await self.journal.flush_messages()  # so that every message is counted
        return is_window_full(self)

    def _request_repair(self) -> bool:
        """Queue what is wrong with the answer, if anything; return whether something is."""
        progress, check, output = self.progress, self.input.check, self.output
        if (check is None and output is None) or not progress.answered or progress.stopping:
            return False
        if not isinstance(next_step(replace(progress, answered=False), self.options), CallModel):
            return False
        answer = self._answer()
        objection = None if output is None else output.objection(answer, progress.finish)
        if objection is None and check is not None:
            objection = check(answer, progress.finish)
        if objection is not None:
            metadata = {"repair": True}
            self.steered.append(
                Message(InstructionContent(instruction=objection), metadata=metadata)
            )
        return objection is not None

    def _answer(self) -> str:
        return Return(body=Body(tuple(self._messages))).answer

    def begin_draft(self, request: ModelRequest) -> ReplyBuilder:
        """Return the builder for the reply to a model request."""
        self._model_request = request
        note_prompt(self, request)

        def used_call_ids() -> list[str]:
            # A policy may have removed calls from the request that are on the branch.
            full_request = self.request.model_request() if self.request.policies else request
            return call_ids(full_request.messages)

        self.draft = ReplyBuilder(
            self, self.request.model_name, used_call_ids, needs_review=self._needs_review
        )
        return self.draft

    def can_ask_again(self, error: ModelError) -> bool:
        """Return whether the model can be asked again after an error, in another way.

        If so, its reply is dropped and the turn does not count.
        """
        can = (
            self._window_exceeded(error)
            or self._state_refused(error)
            or self._schema_refused(error)
        )
        if can:
            self.interrupt_reply(keep=False)
            self.progress.turns -= 1
        return can

    def _window_exceeded(self, error: ModelError) -> bool:
        """Return whether a model error is a full context window that a summary may relieve."""
        progress = self.progress
        tried = progress.summary_failed or self.options.summarize_at is None
        if error.kind != "context" or tried:
            return False
        progress.window_error = error
        return True

    def _schema_refused(self, error: ModelError) -> bool:
        """Return whether a model error may be about the output schema, which is then left out.

        Providers reject different schemas, such as recursive ones. The instruction describes the
        schema as well, and the answer is validated in any case.
        """
        output = self.output
        if error.kind != "bad_request" or output is None or not output.is_native:
            return False
        output.is_native = False
        return True

    def _state_refused(self, error: ModelError) -> bool:
        """Return whether a provider may have refused the state of its earlier replies.

        Such as a signature of another model. The texts and calls of the replies are sent then.
        """
        request = self._model_request
        if error.kind != "bad_request" or request is None:
            return False
        if not any(STATE_KEY in message for message in request.messages):
            return False
        self.sends_state = False
        text = "The provider refused its earlier replies as it sent them; they are sent as text."
        self.warn("provider_state", f"{text} {error}")
        return True

    def finish_turn(self, draft: ReplyBuilder) -> None:
        """Add the usage and finish reason of a reply; raise ModelError if its stream broke off."""
        self._flush_deltas()
        finished = draft.finished
        if finished is None:
            raise ModelError("The model's stream ended without a finish reason.", kind="network")
        if draft.needs_review:  # it ended with an error before the policies saw it
            self.interrupt_reply()
        self.draft = None
        progress = self.progress
        progress.usage += finished.usage
        progress.finish, progress.model = finished.reason, finished.model
        progress.answered = not draft.requests
        progress.window_error, progress.summary_failed = None, False

    def on_delta(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """Emit more of a text, if the run streams."""
        if self._coalescer is not None:
            self._coalescer.add(message_id, text, reasoning)

    def _emit_delta(self, message_id: UUID, text: str, reasoning: bool) -> None:
        kind = ReasoningAdded if reasoning else TextAdded
        self.emit(kind, message_id=message_id, text=text)

    def on_text(self, message: Message) -> None:
        """Append a complete text to the branch."""
        self._flush_deltas()
        self.emit(MessageCompleted, new=message)

    def on_tool_call(self, message: Message) -> None:
        """Append a tool call to the branch and to the pending ones."""
        self._flush_deltas()
        self.emit(ToolCalled, new=message)
        self.calls.add_new(message.id)
        self.progress.pending.append(message)
        self._count_repeats(message)

    def on_dropped(self, message_id: UUID) -> None:
        """Retract the deltas of a message, if the run streams."""
        self._flush_deltas()
        if self._coalescer is not None:
            self.emit(DraftDropped, message_id=message_id)

    def _flush_deltas(self) -> None:
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
        """Emit a warning, which is also in the Return."""
        notice = Notice("warning", code, text)
        self._notices.append(notice)
        self.emit(WarningIssued, notice=notice)

    def refuse(self, reason: StopReason, notice: Notice) -> Return:
        """Publish and return the end of a run that never started; nothing is stored."""
        output = None if self.output is None else Unset
        result: Return = Return(
            stop_reason=reason,
            notices=(notice,),
            run_id=self.id,
            error=self.error,
            _output=output,
        )
        self.publish([RunEnded(seq=0, run_id=self.id, result=result)])
        return result

    def interrupt_reply(self, *, keep: bool = True) -> None:
        """Store the partial reply, or drop it if `keep` or `on_cancel` say so."""
        if self.draft is not None:
            self.draft.interrupt(keep=keep and self.options.on_cancel == "keep_partial")
            self.draft = None

    def fail(self, error: Exception | CancelledError) -> Stop:
        """Return the Stop of a run in which the model, the store or plugged-in code failed."""
        if isinstance(error, CancelledError):
            error = ModelError(_SELF_CANCELLED, kind="failed")
        self.interrupt_reply()
        self.error = error
        return stop_for_error(error)

    def interrupt(self) -> Stop:
        """Return the Stop of a cancelled or suspended run.

        A suspended run leaves its partial reply as a crash would.
        """
        if not self.suspending:
            self.interrupt_reply()
            return Stop("cancelled")
        self._flush_deltas()
        self.draft = None
        return Stop(
            "suspended", (Notice("info", "interrupted", ("Suspended; resume continues the run.")),)
        )

    async def end(self, stop: Stop) -> Return:
        """Emit RunEnded, once, and return the result when it is durable."""
        if self._result is None:
            self._result = self._record_end(stop)
        try:
            await self.flush()
            self._branch_lease.released = True
        except Exception as error:  # such as a lost lease
            self._result = self._publish_failure(self._result, error)
        return self._result

    def _record_end(self, stop: Stop) -> Return:
        if stop.reason != "suspended":  # a resumed run reads them from the journal
            self._append_steered()
        output, stop = self._settle_output(stop)
        result: Return = Return(
            stop_reason=stop.reason,
            body=Body(tuple(self._messages)),
            notices=(*self._notices, *stop.notices),
            metrics=self._metrics(),
            run_id=self.id,
            seq=self._seq + 1,
            error=self.error,
            _output=output,
        )
        self.emit(RunEnded, result=result)
        self.ended = True
        self.save_record(
            "suspended" if stop.reason == "suspended" else "ended"
        )  # releases the lease
        return result

    def _settle_output(self, stop: Stop) -> tuple[Any, Stop]:
        """Return the output, and the end of the run: an error if the answer does not fit."""
        if self.output is None:
            return None, stop
        if stop.reason not in ("stable", "length") or not self.progress.answered:
            return Unset, stop
        try:
            name, finish = self.request.model_name, self.progress.finish
            return self.output.value_in(self._answer(), finish, name), stop
        except OutputError as error:
            self.error = error
            return Unset, Stop("error", (*stop.notices, Notice("error", "output", str(error))))

    def _append_steered(self) -> None:
        """Append messages that were queued too late for this run."""
        while self.steered:
            message = self.steered.popleft()
            self.emit(MessageInterjected, message=message, put=message)

    def _publish_failure(self, result: Return, error: Exception) -> Return:
        """Publish the end of a run that lost its journal, without a sequence number."""
        if result.error is not error:
            notice = Notice("error", type(error).__name__, str(error))
            result = replace(result.worse(notice), error=error)
        result = replace(result, seq=0)
        self.publish([RunEnded(seq=0, run_id=self.id, result=result)])
        return result

    def _metrics(self) -> Metrics:
        progress = self.progress
        return Metrics(
            usage=progress.usage,
            turns=progress.turns,
            tool_calls=progress.tool_calls,
            seconds=round(clock.monotonic() - self._started_at, 6),
            finish_reason=progress.finish,
            model=progress.model,
        )


def _is_blank(message: Message) -> bool:
    """Return whether a message has nothing to answer, such as a text of spaces."""
    content = message.content
    if isinstance(content, InstructionContent) and not (content.instruction or "").strip():
        content = replace(content, instruction=Unset)
    return content.empty


def _pending_after(request: Request, new_messages: Sequence[Message]) -> list[Message]:
    """Return the pending calls after new messages; a new instruction abandons them all."""
    if any(message.content.from_user for message in new_messages):
        return []
    contents = (message.content for message in new_messages)
    answered = {
        content.request_id for content in contents if isinstance(content, ActionResponseContent)
    }
    return [
        request
        for request in request.pending()
        if not answered & {str(request.id), call_id_of(request)}
    ]


def stop_nothing() -> None:
    """Do nothing: the default `stop` of a run without a task to cancel."""


_DEFAULTS = asdict(SessionOptions())


@lru_cache(64)  # most runs have the same
def _non_default_options(options: SessionOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults, to be stored for a resumption."""
    values = asdict(options)
    del values["when_busy"]  # only matters at the start
    return {name: value for name, value in values.items() if value != _DEFAULTS[name]}

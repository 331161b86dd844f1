"""A run under way: its progress, and how it records events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID

from msgspec.structs import replace as replace_struct

from sennit import clock
from sennit.errors import ExistsError, ModelError
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
from sennit.messages.unset import Unset
from sennit.services.models.request import ModelRequest
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import CallStart, RunRecord
from sennit.turns.branch_lease import BranchLease, new_holder
from sennit.turns.coalesce import Coalescer
from sennit.turns.context import ContextItem, overfull
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
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.policies import judge_replies
from sennit.turns.recovery import UnfinishedRun
from sennit.turns.reply_builder import ReplyBuilder
from sennit.turns.request import Request
from sennit.turns.result import SPECIAL, Body, Metrics, Notice, Return, StopReason
from sennit.turns.run_input import NO_AIM, RunInput
from sennit.turns.step import (
    CallModel,
    MakeRoom,
    Progress,
    Step,
    Stop,
    next_step,
    overspent,
    single_step,
)
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import call_id_of

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
        aim: RunInput = NO_AIM,
        greets: bool = False,
    ) -> None:
        self.id = new_id() if id is None else id
        self.request, self.options, self.streaming = request, options, streaming
        self.aim = aim
        self.runs = RunRepository(request.branch)
        self.holder = new_holder()
        """Who holds the branch; a run that is resumed has another one each time."""
        self.progress = Progress(greets=greets)
        self.window: int | None = None
        """How many tokens the model takes in, if that matters to the run and is known."""
        self.context: tuple[UUID, list[ContextItem]] | None = None
        """What was added to the prompt for an instruction."""
        self.error: Exception | None = None
        """What the run failed with."""
        self.draft: ReplyBuilder | None = None
        """What the model is saying."""
        self.steered: deque[Message] = deque()
        self._heard: set[UUID] = set()  # what was steered, also after it was taken in
        """What people have said meanwhile."""
        self.cancelled_here = False
        """Whether the run was told to stop, rather than whoever waits for it."""
        self.stop: Callable[[], None] = nobody_stops
        """Cancels it, from any thread."""
        self.suspending = False
        """Whether it stops so that someone can go on with it."""
        self.publish = publish
        """Shows events that are durable."""
        self.calls = ToolCallStates()
        """The tool calls the journal records: those of this run, and those it has found pending."""
        self._began = clock.monotonic()
        self._created = clock.now_us()
        self._said: list[Message] = []
        self._notices: list[Notice] = []
        self.ended = False
        """Whether its end was told."""
        self._result: Return | None = None
        self.begun = False
        """Whether it has ever held the branch."""
        self._resumed = False
        self._passed = 0  # passes of an earlier program
        self._judged = judge_replies(request.policies)
        self._chosen = _chosen(options)
        self._after = 0
        self._coalescer = None if streaming is None else Coalescer(streaming, self._show)

    def begin(self, held: BranchLease) -> None:
        """Start telling, with the branch held.

        What an unfinished run has left is gone on with if it is this very run. If it is another
        one, that one is over: what it was saying is kept as far as it came.
        """
        left, self._held, self.begun = held.left, held, True
        self._began = clock.monotonic()  # not while it waited for the branch
        self.holder = held.lease.holder
        self.journal = Journal(self.runs, held, self.publish)
        self._seq = self._after = held.seq
        self._said = []
        self._resumed = resumed = left is not None and left.record.id == self.id
        if left is not None:
            self.calls = left.calls
            if resumed:
                self._go_on_with(left)
            else:
                self.journal.put(replace_struct(left.record, state="ended"))
        self.put("running")
        self.tell(RunStarted, model=self.request.model_name, resumed=resumed)
        if left is not None:
            self._drop_drafts(left) if resumed else self._keep_drafts(left)
            self._take_steered(left)
        self.progress.pending = _still_open(self.request, self.aim.say)
        for message in self.aim.say:
            answers = isinstance(message.content, ActionResponseContent)
            self.tell(ToolCompleted if answers else MessageCompleted, new=message)

    def nothing_to_answer(self) -> str | None:
        """Return the reason why this run has nothing to do, or None."""
        spoken = any(not one.content.empty for one in self.aim.say)
        return None if self.progress.greets or spoken else self.request.nothing_to_answer()

    @property
    def under_way(self) -> bool:
        """True if it has begun and not ended, so that events can be told."""
        return self.begun and not self.ended

    def _go_on_with(self, left: UnfinishedRun) -> None:
        progress = self.progress
        progress.turns, progress.passes = left.turns, left.passes
        self._passed = left.passes
        progress.tool_calls, progress.usage = left.tool_calls, left.usage
        progress.finish = left.finish
        self._created, self._after = left.record.created, left.notes.get("after", 0)
        self._said = list(left.said)
        if self._said and not left.drafts:
            # A greeting may be all there was to say; any other text is an answer.
            said = [one.content for one in self._said if SPECIAL not in one.metadata]
            answered = not said or said[-1].from_assistant
            progress.answered = answered and not self.request.unanswered()
        for message in self._said:
            self._count_repeats(message)

    def _drop_drafts(self, left: UnfinishedRun) -> None:
        for message_id in left.drafts:
            self.tell(DraftDropped, message_id=message_id)

    def _keep_drafts(self, left: UnfinishedRun) -> None:
        for message_id, drafted in left.drafts.items():
            if left.notes.get("judged"):  # nobody has judged it, so it does not count
                self.tell(DraftDropped, message_id=message_id)
                continue
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

    def _take_steered(self, left: UnfinishedRun) -> None:
        """Take over messages that people sent to the interrupted run, before anything later."""
        now = clock.now_us()
        said = [
            Message.from_record(uid, now, event.record or self._plain_record(event.text))
            for uid, event in left.steered.items()
        ]
        if left.record.id != self.id:
            self._note_steered(said)
        self._heard.update(left.steered)
        self.steered.extendleft(reversed(said))

    def steer(self, message: Message) -> bool:
        """Have something taken in before the model is asked again; False if it is not under way.

        One that still waits for its branch could only remember it, and a crash would lose it.
        """
        if not self.under_way:
            return False
        if message.id in self._heard or message.id in self.request.session.messages:
            raise ExistsError(f"Message {message.id} is already on the branch.")
        self._heard.add(message.id)
        self.steered.append(message)
        self._note_steered([message])
        return True

    def _note_steered(self, messages: Iterable[Message]) -> None:
        for message in messages:
            text, record = message.content.words, message.to_record()
            more = None if record == self._plain_record(text) else record
            self.tell(MessageQueued, message_id=message.id, text=text, record=more)

    def _plain_record(self, text: str) -> dict[str, Any]:
        content = InstructionContent(instruction=text)
        return Message(content, sender=self.request.session.user).to_record()

    def put(self, state: Literal["running", "suspended", "ended"]) -> None:
        """Note where the run stands, for whoever goes on with it."""
        body: dict[str, Any] = {**self.request.notes}
        body |= {"model": self.request.model_name, "after": self._after}
        if self._chosen:
            body["options"] = self._chosen
        if self.request.tools:
            body["tools"] = list(self.request.tools)
        if state == "running":
            body["holder"] = self.holder
        if self.progress.greets:
            body["greets"] = True
        if self._judged:
            body["judged"] = True
        now, branch = clock.now_us(), self.request.branch.id
        self.journal.put(
            RunRecord(self.id, branch, state, self._created, now, dumps(body)),
            release=state != "running",
        )

    def tell(
        self,
        kind: Callable[..., AnyEvent],
        *,
        new: Message | None = None,
        put: Message | None = None,
        rewrite: Rewrite | None = None,
        start: CallStart | None = None,
        **more: Any,
    ) -> None:
        """Note an event.

        `new` is a message of this run that it puts on the branch, `put` one of somebody else;
        `rewrite` says where they go, if not to the end. `start` is the call that the event starts.
        """
        self._seq += 1
        if new is not None:
            self._said.append(new)
            more["message"] = put = new
        self.journal.add(kind(seq=self._seq, run_id=self.id, **more), put, rewrite, start)

    async def settle(self) -> None:
        """Wait until all that was told is durable and shown."""
        await self.journal.settle()

    async def next(self) -> Step:
        """Return the next step, after taking in messages that were sent meanwhile."""
        while self.steered and not self.progress.pending:
            self.tell(MessageCompleted, new=self.steered.popleft())
            self.progress.answered = False
        progress = self.progress
        self._look_at_the_clock()
        if self.aim.only is not None:
            made = progress.passes > self._passed
            return single_step(progress, self.aim.only, made=made, resumed=self._resumed)
        step = next_step(progress, self.options)
        if isinstance(step, Stop) and self._objects():
            return await self.next()
        return MakeRoom() if isinstance(step, CallModel) and await self._lacks_room() else step

    def overspent(self) -> bool:
        """Return whether some of its budget is used up."""
        self._look_at_the_clock()
        return overspent(self.progress, self.options.budget) is not None

    def _look_at_the_clock(self) -> None:
        self.progress.seconds = clock.monotonic() - self._began

    async def _lacks_room(self) -> bool:
        if self.progress.crowded:
            return False
        if self.progress.exceeded is not None:
            return True
        if self.window is None or self.options.summarize_at is None:
            return False
        await self.journal.placed()  # so that all that was said is counted
        return overfull(self)

    def _objects(self) -> bool:
        """Return whether the answer may not stand; if so, the model is told, and may answer
        again.
        """
        progress, check = self.progress, self.aim.check
        if check is None or not progress.answered or progress.stopping:
            return False
        if not isinstance(next_step(replace(progress, answered=False), self.options), CallModel):
            return False
        told = check(Return(body=Body(tuple(self._said))).answer, progress.finish)
        if told is not None:
            note = {"repair": True}
            self.steered.append(Message(InstructionContent(instruction=told), metadata=note))
        return told is not None

    def begin_draft(self, asked: ModelRequest) -> ReplyBuilder:
        """A new turn of the model, which is asked this."""

        def used() -> list[str]:
            # A policy may keep calls from the model that stand on the branch all the same.
            whole = self.request.model_request() if self.request.policies else asked
            return call_ids(whole.messages)

        self.draft = ReplyBuilder(self, self.request.model_name, used, judged=self._judged)
        return self.draft

    def exceeded(self, error: ModelError) -> bool:
        """Return whether a failure of the model means that room has to be made, and that can be
        tried.

        The turn then does not count: the model is asked again.
        """
        progress = self.progress
        tried = progress.crowded or self.options.summarize_at is None
        if error.kind != "context" or tried:
            return False
        self.break_off(keep=False)
        progress.exceeded = error
        progress.turns -= 1
        return True

    def take_end(self, draft: ReplyBuilder) -> None:
        """The model's turn is over."""
        self._flush()
        end = draft.finished
        if end is None:
            raise ModelError("The model's stream ended without a finish reason.", kind="network")
        if draft.judged:  # it broke off with an error before anyone could judge it
            self.break_off()
        self.draft = None
        progress = self.progress
        progress.usage += end.usage
        progress.finish, progress.model = end.reason, end.model
        progress.answered = not draft.requests
        progress.exceeded, progress.crowded = None, False

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
        self.calls.add_new(message.id)
        self.progress.pending.append(message)
        self._count_repeats(message)

    def dropped(self, message_id: UUID) -> None:
        """A message that was being said will not be; if nobody was shown any of it, so be it."""
        self._flush()
        if self._coalescer is not None:
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
        self.tell(WarningIssued, notice=notice)

    def refuse(self, reason: StopReason, why: Notice) -> Return:
        """The end of a run that was never begun; the branch is untouched, and nothing is stored."""
        result = Return(stop_reason=reason, messages=(why,), run_id=self.id, error=self.error)
        self.publish([RunEnded(seq=0, run_id=self.id, result=result)])
        return result

    def break_off(self, *, keep: bool = True) -> None:
        """Stop in the middle: what the model was saying is kept, or dropped, as the options say."""
        if self.draft is not None:
            self.draft.interrupt(keep=keep and self.options.on_cancel == "keep_partial")
            self.draft = None

    def interrupted(self) -> Stop:
        """Stop in the middle because someone said so; gives the end.

        A run that is suspended leaves all as it is, like one that a crash cut off.
        """
        if not self.suspending:
            self.break_off()
            return Stop("cancelled")
        self._flush()
        self.draft = None
        return Stop(
            "suspended", (Notice("info", "interrupted", ("Suspended; resume continues the run.")),)
        )

    async def end(self, stop: Stop) -> Return:
        """Tell the end, once: told again, it only waits until the first is durable and shown."""
        if self._result is None:
            self._result = self._told(stop)
        try:
            await self.settle()
            self._held.released = True
        except Exception as error:  # such as a lost lease: nobody but us can know
            self._result = self._failed_at_last(self._result, error)
        return self._result

    def _told(self, stop: Stop) -> Return:
        if stop.reason != "suspended":  # one that goes on will take it in
            self._keep_steered()
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

    def _keep_steered(self) -> None:
        """Put on the branch what people said too late for the run to take it in."""
        while self.steered:
            message = self.steered.popleft()
            self.tell(MessageInterjected, message=message, put=message)

    def _failed_at_last(self, result: Return, error: Exception) -> Return:
        """Show the end of a run that can note nothing more: no number, as others have used it."""
        if result.error is not error:
            told = Notice("error", type(error).__name__, str(error))
            result = replace(result.worse(told), error=error)
        result = replace(result, seq=0)
        self.publish([RunEnded(seq=0, run_id=self.id, result=result)])
        return result

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


def _still_open(request: Request, said: Sequence[Message]) -> list[Message]:
    """The calls that lack a result also after what is said; a new instruction passes them by."""
    if any(one.content.from_user for one in said):
        return []
    contents = (one.content for one in said)
    answered = {one.request_id for one in contents if isinstance(one, ActionResponseContent)}
    return [one for one in request.pending() if not answered & {str(one.id), call_id_of(one)}]


def nobody_stops() -> None:
    """Do nothing: a run that is over, or beside the conversation, has nobody who stops it."""


_DEFAULTS = asdict(SessionOptions())


@lru_cache(64)  # most runs have the same
def _chosen(options: SessionOptions) -> dict[str, Any]:
    """Those options that are not as they are by default, for whoever goes on with the run."""
    chosen = asdict(options)
    del chosen["when_busy"]  # which is about its beginning
    return {name: value for name, value in chosen.items() if value != _DEFAULTS[name]}

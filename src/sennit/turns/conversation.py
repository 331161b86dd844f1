"""ConversationSession: runs turns on one branch, and shows them in whichever way is wanted.

`run_to_stable_result`, `stream` and `events` start the same loop and read the same events; they can
differ in nothing but what they show. One run at a time holds the branch, across processes.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, get_running_loop, to_thread
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, overload
from uuid import UUID

from sennit.containers.element import Ref
from sennit.errors import AccessError, InvalidTypeError, NotFoundError, ValidationError, shown
from sennit.messages.content import (
    ActionRequestContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import AddEvents
from sennit.turns.aim import NO_AIM, Aim, Check
from sennit.turns.aside import perform
from sennit.turns.current import Current, running_loop
from sennit.turns.events import AnyEvent, ApprovalGiven, to_record, whole
from sennit.turns.hold import held, new_holder
from sennit.turns.joining import Joined, tell_joined
from sennit.turns.loop import NOTHING, hold_and_run
from sennit.turns.observers import Observers
from sennit.turns.options import Budget, SessionOptions, StreamingOptions
from sennit.turns.outcome import put
from sennit.turns.pending import waiting
from sennit.turns.policies import checked_policies
from sennit.turns.recovery import Unfinished, read_on, replay, unfinished
from sennit.turns.request import Request
from sennit.turns.returns import Notice, Return
from sennit.turns.run import CancelMode, Run
from sennit.turns.special import SpecialTurn
from sennit.turns.sync import run_now, watching
from sennit.turns.watch import Watch, as_event, as_return

_T = TypeVar("_T")


class ConversationSession:
    """A conversation on one branch.

    conversation = session.conversation(branch, model="local", tools=[...])
    result = await conversation.run_to_stable_result(SessionOptions(max_turns=3))
    """

    def __init__(
        self,
        request: Request,
        *,
        observers: Iterable[Any] = (),
        policies: Iterable[Any] = (),
        generate_greeting: bool = False,
    ) -> None:
        """`policies` come after those of the request.

        With `generate_greeting`, a run on a branch where the model has said nothing yet has it
        greet first; there may be nothing else to answer.
        """
        if not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"A conversation needs a Request, got {shown(request)}.")
        more = checked_policies(policies)
        self._request = replace(request, policies=(*request.policies, *more)) if more else request
        self._greets = generate_greeting
        self._observers = tuple(observers)
        self._current: Current | None = None
        self._starting = False  # a run is about to begin
        self._too_early: CancelMode | None = None  # it was cancelled before it did

    @property
    def request(self) -> Request:
        """Who is asked, and with which tools."""
        return self._request

    async def run_to_stable_result(self, options: SessionOptions | None = None) -> Return:
        """Run until the model has answered and waits for nothing, or must stop before.

        What goes wrong is in the Return; `raise_for_error()` raises it.
        """
        return await self._run(options or SessionOptions(), None, _nobody)

    def stream(
        self,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
    ) -> Watch[Return]:
        """The same as it happens: pieces of text and finished messages, then the final Return.

        Best used with `async with`: leaving the block early cancels the run. With `resume` the last
        run is gone on with (see `resume`); `say` is put on the branch as the run begins, and `at`
        says where (see `say`).
        """
        aim = Aim(say=self._spoken(say), at=at)
        return self._watch(options, streaming, as_return, resume, aim)

    @overload
    def events(
        self,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
        pieces: bool = True,
    ) -> Watch[AnyEvent]: ...
    @overload
    def events(self, *, after: int) -> Joined: ...
    def events(
        self,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
        pieces: bool = True,
        after: int | None = None,
    ) -> Watch[AnyEvent] | Joined:
        """The same as typed events; the last one is RunEnded.

        `resume`, `say` and `at` are as in `stream`. Without `pieces` text comes in whole messages,
        and the model need not stream.

        With `after`, the number of the last event that was seen, nothing is started: it joins the
        run under way, in this program or another, and gives the rest; see Joined.
        """
        if after is None:
            aim = Aim(say=self._spoken(say), at=at)
            return self._watch(options, streaming, as_event, resume, aim, pieces=pieces)
        if not (options is streaming is say is at is None) or resume:
            raise ValidationError("events(after=…) starts no run, so it takes no options.")
        return Joined(BranchRuns(self._request.branch), after)

    def _watch(
        self,
        options: SessionOptions | None,
        streaming: StreamingOptions | None,
        show: Callable[[AnyEvent], _T | None],
        resume: bool,
        aim: Aim,
        *,
        pieces: bool = True,
    ) -> Watch[_T]:
        shown_as = streaming or StreamingOptions() if pieces else None
        if resume and aim.say:
            raise ValidationError("What is gone on with has been said; steer() says more.")

        def start(publish: Callable[[list[AnyEvent]], None]) -> Task[Return]:
            self._starting = True
            if resume:
                return create_task(self._resume(options, shown_as, publish))
            chosen = options or SessionOptions()
            return create_task(self._run(chosen, shown_as, publish, aim=aim))

        return Watch(start, self.cancel, show)

    def run(self, options: SessionOptions | None = None) -> Return:
        """`run_to_stable_result` for programs without an event loop."""
        return run_now(self.run_to_stable_result(options), "await run_to_stable_result()")

    def stream_sync(
        self, options: SessionOptions | None = None, streaming: StreamingOptions | None = None
    ) -> AbstractContextManager[Generator[Return]]:
        """`stream` for programs without an event loop: `with … as pieces: for piece in pieces`."""
        return watching(lambda: self.stream(options, streaming), self.cancel, "async with stream()")

    def cancel(self, mode: CancelMode = "now") -> None:
        """End the run under way, if any, from any thread; the conversation can go on afterwards.

        What was being said is kept (see `SessionOptions.on_cancel`). "after_turn" lets the model
        and the tools finish what they are doing first.
        """
        current = self._current
        if current is not None:
            current.cancel(mode)
        elif self._starting:
            self._too_early = mode

    def suspend(self) -> None:
        """Stop the run under way, if any, so that `resume` goes on with it, here or elsewhere.

        It is left as if the program had ended: text that was being said is said anew, and a tool
        that was under way is treated as its `replay` says. One that has not begun yet is cancelled.
        """
        if self._current is not None:
            self._current.run.suspending = True
        self.cancel()

    def steer(self, text: str) -> Message:
        """Say something to a run under way, which it takes in before it asks the model again.

        Without one, it is put on the branch at once. Called from another thread than the run's, it
        returns when what was said is kept; on the run's own loop, that is with its next event.
        """
        message = self._instruction(text)
        current = self._current
        if current is None or not current.steer(message):
            self._request.session.add_message(message, branches=self._request.branch)
        return message

    def edit(
        self, message: Ref | int, content: Any, *, name: str | None = None
    ) -> ConversationSession:
        """A conversation on a fork in which `message` says `content` instead; see Branch.edit."""
        return self._on(self._request.branch.edit(message, content, name=name))

    def regenerate(
        self, message: Ref | int | None = None, *, name: str | None = None
    ) -> ConversationSession:
        """A conversation on a fork before an answer, by default all of the last one.

        Run it to have another. Raises NotFoundError if there is none, ValidationError for a message
        that is not the model's.
        """
        branch = self._request.branch
        old = last_answer(branch.messages) if message is None else message
        return self._on(branch.regenerate(old, name=name))

    def _on(self, branch: Branch) -> ConversationSession:
        """The same conversation on another branch, which has the same grants."""
        request = replace(self._request, branch=branch)
        return ConversationSession(request, observers=self._observers)

    async def say(
        self,
        message: str | Message | Sequence[Message],
        options: SessionOptions | None = None,
        *,
        at: int | None = None,
        check: Check | None = None,
    ) -> Return:
        """Say something and run until it is answered; a run that is refused leaves nothing behind.

        Several messages are said in one step, such as the results of calls that others have made.
        With `at`, how many messages the branch is known to hold (the system message aside), a run
        is refused ("moved") if somebody has said more there since.
        `check` looks at each answer: a text it gives is told to the model, which answers again as
        long as the options allow. What it lets pass, or nobody may mend, is the end.
        """
        aim = Aim(say=self._spoken(message), at=at, check=check)
        return await self._run(options or SessionOptions(), None, _nobody, aim=aim)

    def _spoken(self, said: str | Message | Sequence[Message] | None) -> tuple[Message, ...]:
        if isinstance(said, str | Message):
            return (self._instruction(said),)
        return tuple(said or ())

    def _instruction(self, said: str | Message) -> Message:
        if isinstance(said, Message):
            return said
        content = InstructionContent(instruction=said)
        return Message(content, sender=self._request.session.user)

    async def execute_tool_call(self, call_id: str) -> Return:
        """Make exactly one of the pending tool calls; no model is asked and no other call is made.

        It is the last message of the body, good or bad. A call that needs approval and has none
        waits for it (`suspended`), and so does a run it belongs to: `resume` goes on with that.
        Raises NotFoundError for a call that is unknown or has its result already.
        """
        left = await _left(BranchRuns(self._request.branch))
        aim = Aim(only=self._pending_call(call_id).id)
        return await self._run(SessionOptions(), None, _nobody, left, aim)

    def _pending_call(self, call_id: str) -> Message:
        waiting = {_call_id(one): one for one in self._request.pending()}
        found = waiting.get(call_id)
        if found is None:
            raise NotFoundError(
                f"No tool call {shown(call_id)} is pending, or it has its result already; there "
                f"are {list(waiting)}."
            )
        return found

    async def execute_special_turn(
        self, turn: SpecialTurn, prefer_streaming: bool = False
    ) -> Return:
        """Ask a model something beside the conversation; see SpecialTurn.

        Nobody sees any of it until it is put on the branch, at its head as it is then; a run under
        way goes on, and several special turns may be said at once. One that does not end well
        changes nothing. What was said is in the Return, kept or not.
        """
        if not isinstance(turn, SpecialTurn):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"A special turn is a SpecialTurn, got {shown(turn)}.")
        if BranchRuns(self._request.branch).durable:
            await self._request.session.arefresh()
        outcome = await perform(turn, self._request, hold_and_run, streaming=prefer_streaming)
        if not outcome.leaves_something:
            return outcome.result
        warnings: list[Notice] = []
        observers = Observers(self._observers, self._request, _keeping(warnings))
        try:
            result = await put(outcome, self._request.branch, self._here, observers.tell)
        finally:
            await observers.finish()
        return replace(result, messages=(*result.messages, *warnings))

    def _here(self) -> Run | None:
        """The run under way, if it can be told things from here."""
        current = self._current
        if current is None or not current.run.under_way or current.loop is not running_loop():
            return None
        return current.run

    async def resume(
        self, options: SessionOptions | None = None, streaming: StreamingOptions | None = None
    ) -> Return:
        """Go on with the last run, which a crash cut off or which waits for approval.

        Tools that had finished are not called again; one that was under way is treated as its
        `replay` says. Text that was only shown is said anew.
        """
        return await self._resume(options, streaming, _nobody)

    async def _resume(
        self,
        options: SessionOptions | None,
        streaming: StreamingOptions | None,
        publish: Callable[[list[AnyEvent]], None],
    ) -> Return:
        left = await _left(BranchRuns(self._request.branch))
        if left is not None:
            return await self._run(options or _options(left.notes), streaming, publish, resume=left)
        self._starting, self._too_early = False, None
        nothing = Run(self._request, options or SessionOptions(), streaming, publish)
        return nothing.refuse("invalid", NOTHING)

    def waiting(self) -> list[Message]:
        """The tool calls that wait for a person: those of a suspended run that nobody decided."""
        return waiting(self._request.branch)

    async def approve(self, call_id: str, *, resume: bool = True) -> Return | None:
        """Allow a tool call that waits; the run goes on as soon as nothing waits any more."""
        return await self._decide(call_id, True, "", resume)

    async def deny(self, call_id: str, message: str = "", *, resume: bool = True) -> Return | None:
        """Refuse a tool call that waits, and tell the model why; the run goes on likewise."""
        return await self._decide(call_id, False, message, resume)

    async def _decide(
        self, call_id: str, approved: bool, reason: str, resume: bool
    ) -> Return | None:
        runs = BranchRuns(self._request.branch)
        async with held(runs, new_holder()) as found:
            left = found.left
            pending = [] if left is None else self._request.pending()
            waiting = {_call_id(one): one for one in pending}
            request = waiting.get(call_id)
            if left is None or request is None or request.id in left.decided:
                raise NotFoundError(
                    f"No tool call {shown(call_id)} waits; there are {list(waiting)}."
                )
            event = ApprovalGiven(
                seq=found.seq + 1,
                run_id=left.record.id,
                message=request,
                approved=approved,
                reason=reason,
            )
            change = AddEvents(self._request.branch.id, (to_record(event),), found.lease.token)
            await runs.write((), (change,))
        undecided = {one.id for one in pending} - {*left.decided, request.id}
        return None if undecided or not resume else await self.resume()

    def history(self, after: int = 0) -> list[AnyEvent]:
        """All that has happened on the branch past event `after`, of all runs."""
        everything = whole(read_on(BranchRuns(self._request.branch), 0))
        return [event for event in everything if event.seq > after]

    def replay(self, run_id: UUID) -> list[AnyEvent]:
        """The events of a run again, without its model; raises NotFoundError."""
        return replay(BranchRuns(self._request.branch), run_id)

    async def _run(
        self,
        options: SessionOptions,
        streaming: StreamingOptions | None,
        publish: Callable[[list[AnyEvent]], None],
        resume: Unfinished | None = None,
        aim: Aim = NO_AIM,
    ) -> Return:
        watching: list[Callable[[list[AnyEvent]], None]] = [publish]
        run = Run(
            self._request,
            options,
            streaming,
            lambda events: _tell(watching, events),
            id=None if resume is None else resume.record.id,
            aim=aim,
            greets=self._greets_now(resume),
        )
        observers = Observers(self._observers, self._request, _warner(run))
        watching += [observers.tell, partial(tell_joined, run.runs.place)]
        try:
            if (problem := self._problem(run, resume)) is not None:
                return run.refuse("invalid", problem)
            return await self._under_way(run, resume)
        finally:
            self._starting, self._too_early = False, None
            if self._current is not None and self._current.run is run:
                self._current = None
            await self._keep_unseen(run)
            await observers.finish()

    async def _keep_unseen(self, run: Run) -> None:
        """Put on the branch what people said to a run that never began."""
        while run.steered and not run.begun:
            message = run.steered.popleft()
            await self._request.session.aadd_message(message, branches=self._request.branch)

    async def _under_way(self, run: Run, resume: Unfinished | None) -> Return:
        task = create_task(hold_and_run(run, resume=resume is not None))
        self._current = Current(run, get_running_loop(), task)
        early, self._too_early, self._starting = self._too_early, None, False
        if early is not None:
            self._current.cancel(early)
        try:
            return await task
        except CancelledError:
            if run.ended:
                raise
            result = run.refuse("cancelled", Notice("info", "early", "Cancelled at once."))
            if run.cancelled_here:
                return result
            raise

    def _greets_now(self, resume: Unfinished | None) -> bool:
        """Whether the next run begins with a greeting."""
        wanted = self._greets if resume is None else resume.notes.get("greets", False)
        return wanted and not any(
            isinstance(message.content, AssistantResponseContent)
            for message in self._request.latest()
        )

    def _problem(self, run: Run, resume: Unfinished | None) -> Notice | None:
        """Why a run makes no sense, if it does not."""
        request, options = self._request, run.options
        try:
            request.check()
        except AccessError as error:
            return Notice("error", "access", str(error))
        if self._current is not None:
            return Notice("error", "busy", "A run is already under way on this conversation.")
        spoken = any(not one.content.empty for one in run.aim.say)
        if resume is None and not (run.progress.greets or spoken) and request.silent():
            told = f"Nobody has said anything on branch {request.branch.name!r}; say something."
            return Notice("error", "empty", told)
        if run.streaming is not None and not request.model.streams:
            told = f"Model {request.model_name!r} does not stream; use run_to_stable_result()."
            return Notice("error", "no_streaming", told)
        if not options.process_tools and not run.aim.say and request.pending():
            told = "Tool calls are pending; allow process_tools, or answer them first."
            return Notice("error", "pending_tools", told)
        return None


async def _left(runs: BranchRuns) -> Unfinished | None:
    return await to_thread(unfinished, runs) if runs.durable else unfinished(runs)


def _options(notes: dict[str, Any]) -> SessionOptions:
    """The options a run noted of itself."""
    given = dict(notes["options"])
    if given.get("budget") is not None:
        given["budget"] = Budget(**given["budget"])
    return SessionOptions(**given)


def _call_id(message: Message) -> str:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content.call_id or str(message.id)


def _nobody(_events: list[AnyEvent]) -> None:
    """Nobody watches."""


def _tell(watching: list[Callable[[list[AnyEvent]], None]], events: list[AnyEvent]) -> None:
    for publish in watching:
        publish(events)


def _warner(run: Run) -> Callable[[Any, BaseException], None]:
    def warn(observer: Any, error: BaseException) -> None:
        run.warn_if_running("observer", _raised(observer, error))

    return warn


def _keeping(warnings: list[Notice]) -> Callable[[Any, BaseException], None]:
    def warn(observer: Any, error: BaseException) -> None:
        warnings.append(Notice("warning", "observer", _raised(observer, error)))

    return warn


def _raised(observer: Any, error: BaseException) -> str:
    return f"{type(observer).__name__} raised {type(error).__name__}: {error}"


def last_answer(messages: Sequence[Message]) -> Message:
    """Where what answers the last instruction begins; raises NotFoundError."""
    found: Message | None = None
    for message in reversed(messages):
        if message.role is MessageRole.USER and found is not None:
            break
        if message.role is MessageRole.ASSISTANT:
            found = message
    if found is None:
        raise NotFoundError("The model has said nothing here yet; run the conversation first.")
    return found

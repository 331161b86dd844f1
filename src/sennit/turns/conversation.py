"""`ConversationSession`: runs turns on one branch.

`run_to_stable_result`, `stream` and `events` start the same loop and read the same events; they can
differ in nothing but what they show. One run at a time holds the branch, across processes.
"""

from __future__ import annotations

from asyncio import Task, to_thread
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar, overload
from uuid import UUID

from sennit.containers.element import Ref
from sennit.errors import InvalidTypeError, NotFoundError, ValidationError, short_repr
from sennit.messages.content import (
    InstructionContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.blocking import run_blocking, stream_blocking
from sennit.turns.events import AnyEvent
from sennit.turns.journal import Publish
from sennit.turns.loop import hold_and_run
from sennit.turns.observers import Observers, observer_warning
from sennit.turns.options import Budget, SessionOptions, StreamingOptions
from sennit.turns.policies import checked_policies
from sennit.turns.recovery import UnfinishedRun, find_unfinished_run, replay, shown_after
from sennit.turns.request import Request
from sennit.turns.result import NOTHING_TO_RESUME, Notice, Return
from sennit.turns.run import CancelMode, Run
from sennit.turns.run_input import Check, RunInput
from sennit.turns.runner import Runner
from sennit.turns.special.apply import apply_outcome
from sennit.turns.special.definition import SpecialTurn
from sennit.turns.special.run import run_special_turn
from sennit.turns.stream import RunStream, as_event, as_return
from sennit.turns.subscription import Subscription
from sennit.turns.tools.approval import decide
from sennit.turns.tools.pending_calls import messages_from_end, pending_approvals, pending_call

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
            raise InvalidTypeError(f"A conversation needs a Request, got {short_repr(request)}.")
        extra_policies = checked_policies(policies)
        self._request = (
            replace(request, policies=(*request.policies, *extra_policies))
            if extra_policies
            else request
        )
        self._observers = tuple(observers)
        self._runner = Runner(self._request, self._observers, greets=generate_greeting)

    @property
    def request(self) -> Request:
        """The request: model, tools and parameters."""
        return self._request

    async def run_to_stable_result(self, options: SessionOptions | None = None) -> Return:
        """Run until the model has answered and waits for nothing, or must stop before.

        What goes wrong is in the Return; `raise_for_error()` raises it.
        """
        return await self._runner.run(options or SessionOptions(), None, _ignore_events)

    def stream(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
    ) -> RunStream[Return]:
        """The same as it happens: increments of text, finished messages, the final Return at last.

        Which of them a Return is, `is_delta`, `is_message` and `is_final` tell; to show an answer
        as it comes, print each piece with `end=""`.

        Best used with `async with`: leaving the block early cancels the run. With `resume` the last
        run is gone on with (see `resume`); `say` is put on the branch as the run begins, and `at`
        says where (see `say`).
        """
        run_input = RunInput(say=self._input_messages(say), at=at)
        return self._stream(options, streaming_options, as_return, resume, run_input)

    @overload
    def events(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
        last: UUID | None = None,
        pieces: bool = True,
    ) -> RunStream[AnyEvent]: ...
    @overload
    def events(self, *, after: int) -> Subscription: ...
    def events(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        resume: bool = False,
        say: str | Message | Sequence[Message] | None = None,
        at: int | None = None,
        last: UUID | None = None,
        pieces: bool = True,
        after: int | None = None,
    ) -> RunStream[AnyEvent] | Subscription:
        """The same as typed events; the last one is RunEnded.

        `resume`, `say` and `at` are as in `stream`, `last` as in `say`. Without `pieces` text
        comes in whole messages, and the model need not stream.

        With `after`, the number of the last event that was seen, nothing is started: it joins the
        run under way, in this program or another, and gives the rest; see Joined.
        """
        if after is None:
            run_input = RunInput(say=self._input_messages(say), at=at, last=last)
            return self._stream(
                options, streaming_options, as_event, resume, run_input, pieces=pieces
            )
        if not (options is streaming_options is say is at is last is None) or resume:
            raise ValidationError("events(after=…) starts no run, so it takes no options.")
        return Subscription(RunRepository(self._request.branch), after)

    def _stream(
        self,
        options: SessionOptions | None,
        streaming_options: StreamingOptions | None,
        show: Callable[[AnyEvent], _T | None],
        resume: bool,
        run_input: RunInput,
        *,
        pieces: bool = True,
    ) -> RunStream[_T]:
        streaming = streaming_options or StreamingOptions() if pieces else None
        if resume and run_input.say:
            raise ValidationError("A resumed run takes no new message; use steer() to add one.")

        def start(publish: Publish) -> Task[Return]:
            if resume:
                return self._runner.start(self._resume(options, streaming, publish))
            run_options = options or SessionOptions()
            return self._runner.start(
                self._runner.run(run_options, streaming, publish, run_input=run_input)
            )

        return RunStream(start, self._runner.stop, show)

    def run(self, options: SessionOptions | None = None) -> Return:
        """`run_to_stable_result` for programs without an event loop."""
        return run_blocking(self.run_to_stable_result(options), "await run_to_stable_result()")

    def stream_sync(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
    ) -> AbstractContextManager[Generator[Return]]:
        """`stream` for programs without an event loop: `with … as pieces: for piece in pieces`."""
        return stream_blocking(
            lambda: self.stream(options, streaming_options), self.cancel, "async with stream()"
        )

    def cancel(self, mode: CancelMode = "now") -> None:
        """End the run under way, if any, from any thread; the conversation can go on afterwards.

        What was being said is kept (see `SessionOptions.on_cancel`). "after_turn" lets the model
        and the tools finish what they are doing first.
        """
        self._runner.cancel(mode)

    def suspend(self) -> None:
        """Stop the run under way, if any, so that `resume` goes on with it, here or elsewhere.

        It is left as if the program had ended: text that was being said is said anew, and a tool
        that was under way is treated as its `replay` says. One that has not begun yet is cancelled.
        """
        self._runner.suspend()

    def steer(self, text: str) -> Message:
        """Say something to a run under way, which it takes in before it asks the model again.

        Without one, or while it waits for its branch, it is put on the branch at once. Called from
        another thread than the run's, it returns when what was said is kept; on the run's own loop,
        that is with its next event.
        """
        message = self._instruction(text)
        if self.steer_run(message) is None:
            self._request.session.add_message(message, branches=self._request.branch)
        return message

    def steer_run(self, said: str | Message) -> Message | None:
        """`steer`, but only to a run: without one, or when it is over, nothing is said (None).

        Raises ExistsError if the run has heard a message with the same id, or the session has one.
        """
        message = self._instruction(said)
        return message if self._runner.steer(message) else None

    asteer = async_method(steer)
    asteer_run = async_method(steer_run)

    def edit(
        self, message: Ref | int, content: Any, *, name: str | None = None
    ) -> ConversationSession:
        """A conversation on a fork in which `message` says `content` instead; see Branch.edit."""
        return self._on_branch(self._request.branch.edit(message, content, name=name))

    async def aedit(
        self, message: Ref | int, content: Any, *, name: str | None = None
    ) -> ConversationSession:
        """`edit` for async callers."""
        return self._on_branch(await self._request.branch.aedit(message, content, name=name))

    def regenerate(
        self, message: Ref | int | None = None, *, name: str | None = None
    ) -> ConversationSession:
        """A conversation on a fork before an answer, by default all of the last one.

        Run it to have another. Raises NotFoundError if there is none, ValidationError for a message
        that is not the model's.
        """
        old = self._answer_or_last(message)
        return self._on_branch(self._request.branch.regenerate(old, name=name))

    async def aregenerate(
        self, message: Ref | int | None = None, *, name: str | None = None
    ) -> ConversationSession:
        """`regenerate` for async callers."""
        old = self._answer_or_last(message)
        return self._on_branch(await self._request.branch.aregenerate(old, name=name))

    def _answer_or_last(self, message: Ref | int | None) -> Ref | int:
        return last_answer(self._request.branch) if message is None else message

    def _on_branch(self, branch: Branch) -> ConversationSession:
        """The same conversation on another branch, which has the same grants."""
        request = replace(self._request, branch=branch)
        return ConversationSession(request, observers=self._observers)

    async def say(
        self,
        message: str | Message | Sequence[Message],
        options: SessionOptions | None = None,
        *,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return:
        """Say something and run until it is answered; a run that is refused leaves nothing behind.

        Several messages are said in one step, such as the results of calls that others have made.
        With `at`, how many messages the branch is known to hold (the system message aside), a run
        is refused ("moved") if somebody has said more there since, or removed something; with
        `last`, the id of the last of them, also if as many others stand there now.
        `check` looks at each answer: a text it gives is told to the model, which answers again as
        long as the options allow. What it lets pass, or nobody may mend, is the end.
        """
        run_input = RunInput(say=self._input_messages(message), at=at, last=last, check=check)
        return await self._runner.run(
            options or SessionOptions(), None, _ignore_events, run_input=run_input
        )

    def _input_messages(self, say: str | Message | Sequence[Message] | None) -> tuple[Message, ...]:
        if isinstance(say, str | Message):
            return (self._instruction(say),)
        messages = () if say is None else say
        is_sequence = isinstance(messages, Sequence)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_sequence or not all(isinstance(message, Message) for message in messages):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"A message is a text, a Message or a list of Messages, got {short_repr(say)}."
            )
        return tuple(messages)

    def _instruction(self, text: str | Message) -> Message:
        if isinstance(text, Message):
            return text
        content = InstructionContent(instruction=text)
        return Message(content, sender=self._request.session.user)

    async def execute_tool_call(self, call_id: str) -> Return:
        """Make exactly one of the pending tool calls; no model is asked and no other call is made.

        It is the last message of the body, good or bad. A call that needs approval and has none
        waits for it (`suspended`), and so does a run it belongs to: `resume` goes on with that.
        Raises NotFoundError for a call that is unknown or has its result already.
        """
        unfinished_run = await _load_unfinished(RunRepository(self._request.branch))
        options = (
            SessionOptions() if unfinished_run is None else _recorded_options(unfinished_run.notes)
        )
        run_input = RunInput(only=pending_call(self._request.branch, call_id).id)
        return await self._runner.run(options, None, _ignore_events, unfinished_run, run_input)

    async def execute_special_turn(
        self, turn: SpecialTurn, prefer_streaming: bool = False
    ) -> Return:
        """Ask a model something beside the conversation; see SpecialTurn.

        Nobody sees any of it until it is put on the branch, at its head as it is then; a run under
        way goes on, and several special turns may be said at once. One that does not end well
        changes nothing. What was said is in the Return, kept or not.
        """
        if not isinstance(turn, SpecialTurn):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"A special turn is a SpecialTurn, got {short_repr(turn)}.")
        if RunRepository(self._request.branch).durable:
            await self._request.session.arefresh()
        outcome = await run_special_turn(
            turn, self._request, hold_and_run, streaming=prefer_streaming
        )
        if not outcome.changes_branch:
            return outcome.result
        warnings: list[Notice] = []
        observers = Observers(self._observers, self._request, _collect_warnings(warnings))
        try:
            result = await apply_outcome(
                outcome, self._request.branch, self._runner.local_run, observers.notify
            )
        finally:
            await observers.finish()
        return replace(result, messages=(*result.messages, *warnings))

    async def resume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
    ) -> Return:
        """Go on with the last run, which a crash cut off or which waits for approval.

        Tools that had finished are not called again; one that was under way is treated as its
        `replay` says. Text that was only shown is said anew.
        """
        return await self._runner.start(self._resume(options, streaming_options, _ignore_events))

    async def _resume(
        self,
        options: SessionOptions | None,
        streaming_options: StreamingOptions | None,
        publish: Publish,
    ) -> Return:
        unfinished_run = await _load_unfinished(RunRepository(self._request.branch))
        if unfinished_run is not None:
            run_options = options or _recorded_options(unfinished_run.notes)
            return await self._runner.run(
                run_options, streaming_options, publish, resume=unfinished_run
            )
        run = Run(self._request, options or SessionOptions(), streaming_options, publish)
        return run.refuse("invalid", NOTHING_TO_RESUME)

    def pending_approvals(self) -> list[Message]:
        """Return the calls of a suspended run that need approval and have no decision yet."""
        return pending_approvals(self._request.branch)

    apending_approvals = async_method(pending_approvals)

    async def approve(self, call_id: str, *, resume: bool = True) -> Return | None:
        """Allow a tool call that waits; the run goes on as soon as nothing waits any more."""
        return await self._decide(call_id, True, "", resume)

    async def deny(self, call_id: str, message: str = "", *, resume: bool = True) -> Return | None:
        """Refuse a tool call that waits, and tell the model why; the run goes on likewise."""
        return await self._decide(call_id, False, message, resume)

    async def _decide(
        self, call_id: str, approved: bool, reason: str, resume: bool
    ) -> Return | None:
        branch = self._request.branch
        all_decided = await decide(branch, call_id, approved=approved, reason=reason)
        return await self.resume() if all_decided and resume else None

    def history(self, after: int = 0) -> list[AnyEvent]:
        """All that has happened on the branch past event `after`, of all runs."""
        return shown_after(RunRepository(self._request.branch), after)

    def replay(self, run_id: UUID) -> list[AnyEvent]:
        """The events of a run again, without its model; raises NotFoundError."""
        return replay(RunRepository(self._request.branch), run_id)

    ahistory = async_method(history)
    areplay = async_method(replay)


async def _load_unfinished(runs: RunRepository) -> UnfinishedRun | None:
    return await to_thread(find_unfinished_run, runs) if runs.durable else find_unfinished_run(runs)


def _recorded_options(notes: dict[str, Any]) -> SessionOptions:
    """The options a run noted of itself."""
    values = dict(notes.get("options", {}))
    if values.get("budget") is not None:
        values["budget"] = Budget(**values["budget"])
    return SessionOptions(**values)


def _ignore_events(_events: list[AnyEvent]) -> None:
    """Nobody watches."""


def _collect_warnings(warnings: list[Notice]) -> Callable[[Any, BaseException], None]:
    def warn(observer: Any, error: BaseException) -> None:
        warnings.append(Notice("warning", "observer", observer_warning(observer, error)))

    return warn


def last_answer(branch: Branch) -> Message:
    """Return the index of the answer to the last instruction; raises NotFoundError."""
    answer: Message | None = None
    for message in messages_from_end(branch):
        if message.role is MessageRole.USER and answer is not None:
            break
        if message.role is MessageRole.ASSISTANT:
            answer = message
    if answer is None:
        raise NotFoundError("There is no answer yet; run the conversation first.")
    return answer

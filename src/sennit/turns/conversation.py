"""`ConversationSession`: runs turns on one branch.

`say`, `run`, `stream` and `events` start the same loop and read the same events; they can differ in
nothing but what they show. One run at a time holds the branch, across processes.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from sennit.blocking import run_blocking
from sennit.containers.element import Ref
from sennit.errors import InvalidTypeError, NotFoundError, ValidationError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    InstructionContent,
    MessageContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.events import AnyEvent
from sennit.turns.journal import Publish
from sennit.turns.loop import hold_and_run
from sennit.turns.observers import ConversationObserver, Observers, observer_warning
from sennit.turns.options import Budget, Check, RunInput, SessionOptions, StreamingOptions
from sennit.turns.output import RunOutput, with_schema
from sennit.turns.policies import PolicySource, checked_policies
from sennit.turns.recovery import UnfinishedRun, find_unfinished_run, replay, shown_after
from sennit.turns.request import Request
from sennit.turns.result import NOTHING_TO_RESUME, Notice, Return
from sennit.turns.run import CancelMode, Run
from sennit.turns.runner import Runner
from sennit.turns.special.apply import apply_outcome
from sennit.turns.special.definition import SpecialTurn
from sennit.turns.special.run import run_special_turn
from sennit.turns.stream import RunStream, as_event, as_return
from sennit.turns.subscription import Subscription
from sennit.turns.tools.approval import decide
from sennit.turns.tools.pending_calls import (
    call_id_of,
    messages_from_end,
    pending_approvals,
    pending_call,
)

if TYPE_CHECKING:
    from sennit.messages.parts import Part

_T = TypeVar("_T")

NewMessages: TypeAlias = "str | Message | Part | Sequence[Message] | Sequence[str | Part]"
"""Messages to add: a text, texts with files, a Message, or several, such as tool results."""


class ConversationSession:
    """A conversation on one branch.

    chat = session.conversation(model="openai:gpt-5", tools=[...])
    print(chat.say("Name a knot.").text)
    """

    def __init__(
        self,
        request: Request,
        *,
        observers: Iterable[ConversationObserver] = (),
        policies: Iterable[PolicySource] = (),
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

    @overload
    def say(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: None = None,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[None]: ...
    @overload
    def say(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: type[_T],
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[_T]: ...
    def say(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: type[Any] | None = None,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[Any]:
        """Add messages and run until they are answered; a refused run adds nothing.

        A message is a text, a list of texts, pictures, files and recordings (`["Read this.",
        FilePart(Path("a.pdf"))]`), or a Message. Several messages are added in one step, such as
        the results of tool calls made elsewhere. With `at`, the number of messages expected on the
        branch (without the system message), the run is refused ("moved") if the branch has changed;
        with `last`, the id of the last of them, also if other messages have replaced them. `check`
        looks at each answer: the text it returns is sent to the model, which answers again as long
        as the options allow. The last answer stands.

        With `output`, a pydantic class, the answer is an instance of it, in `Return.output`: the
        model is told its schema, and what is wrong with an answer that does not fit, at most
        `SessionOptions.repairs` times. Errors are in the Return; `raise_for_error()` raises them,
        and so does `output`.
        """
        saying = self.asay(message, options, output=output, at=at, last=last, check=check)
        return run_blocking(saying, "await asay()")

    @overload
    async def asay(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: None = None,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[None]: ...
    @overload
    async def asay(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: type[_T],
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[_T]: ...
    async def asay(
        self,
        message: NewMessages,
        options: SessionOptions | None = None,
        *,
        output: type[Any] | None = None,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> Return[Any]:
        """`say` for async callers."""
        run_input = self._input(message, output, at=at, last=last, check=check)
        return await self._runner.run(
            options or SessionOptions(), None, _ignore_events, run_input=run_input
        )

    @overload
    def run(
        self, options: SessionOptions | None = None, *, output: None = None
    ) -> Return[None]: ...
    @overload
    def run(self, options: SessionOptions | None = None, *, output: type[_T]) -> Return[_T]: ...
    def run(
        self, options: SessionOptions | None = None, *, output: type[Any] | None = None
    ) -> Return[Any]:
        """Run until the model has answered and nothing is pending, or a limit is reached.

        `output` is as in `say`. Errors are in the Return; `raise_for_error()` raises them.
        """
        return run_blocking(self.arun(options, output=output), "await arun()")

    @overload
    async def arun(
        self, options: SessionOptions | None = None, *, output: None = None
    ) -> Return[None]: ...
    @overload
    async def arun(
        self, options: SessionOptions | None = None, *, output: type[_T]
    ) -> Return[_T]: ...
    async def arun(
        self, options: SessionOptions | None = None, *, output: type[Any] | None = None
    ) -> Return[Any]:
        """`run` for async callers."""
        run_input = self._input(None, output)
        return await self._runner.run(
            options or SessionOptions(), None, _ignore_events, run_input=run_input
        )

    run_to_stable_result = arun

    @overload
    def stream(
        self,
        message: NewMessages | SessionOptions | None = None,
        options: SessionOptions | StreamingOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: None = None,
        resume: bool = False,
        at: int | None = None,
    ) -> RunStream[Return[None], None]: ...
    @overload
    def stream(
        self,
        message: NewMessages | SessionOptions | None = None,
        options: SessionOptions | StreamingOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[_T],
        resume: bool = False,
        at: int | None = None,
    ) -> RunStream[Return[_T], _T]: ...
    def stream(
        self,
        message: NewMessages | SessionOptions | None = None,
        options: SessionOptions | StreamingOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[Any] | None = None,
        resume: bool = False,
        at: int | None = None,
    ) -> RunStream[Return[Any], Any]:
        """Run and stream: increments of text, finished messages, and finally the Return of the run.

        To show an answer as it arrives, print each item with `end=""`; printing the last one raises
        RunError if the run failed without an answer. `is_delta`, `is_message` and `is_final` tell
        them apart. A message is added to the branch at the start of the run, as by
        `say`; without one, the first argument may be the options. Leaving the loop, or a `with`
        block around it, early cancels the run. With `resume` the last run is continued. `output` is
        as in `say`, and the final result has it.
        """
        new, options, streaming_options = _sort_arguments(message, options, streaming_options)
        run_input = self._input(new, output, at=at)
        return self._stream(options, streaming_options, as_return, resume, run_input)

    @overload
    def events(
        self,
        message: NewMessages | SessionOptions | None = None,
        options: SessionOptions | StreamingOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        resume: bool = False,
        at: int | None = None,
        last: UUID | None = None,
        pieces: bool = True,
    ) -> RunStream[AnyEvent]: ...
    @overload
    def events(self, *, after: int) -> Subscription: ...
    def events(
        self,
        message: NewMessages | SessionOptions | None = None,
        options: SessionOptions | StreamingOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        resume: bool = False,
        at: int | None = None,
        last: UUID | None = None,
        pieces: bool = True,
        after: int | None = None,
    ) -> RunStream[AnyEvent] | Subscription:
        """Run and stream typed events; the last one is RunEnded.

        The arguments are those of `stream`, and `last` as in `say`. Without `pieces` text arrives
        in whole messages, and the model need not stream.

        With `after`, a sequence number, no run is started: the result subscribes to the active run,
        of this process or another, and yields the events past that number; see Subscription.
        """
        if after is None:
            new, options, streaming_options = _sort_arguments(message, options, streaming_options)
            run_input = self._input(new, None, at=at, last=last)
            return self._stream(
                options, streaming_options, as_event, resume, run_input, pieces=pieces
            )
        if not (message is options is streaming_options is at is last is None) or resume:
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
    ) -> RunStream[_T, Any]:
        streaming = streaming_options or StreamingOptions() if pieces else None
        if resume and run_input.say:
            raise ValidationError("A resumed run takes no new message; use steer() to add one.")

        def start(publish: Publish) -> Task[Return]:
            if resume:
                return self._runner.start(self._resume(options, streaming, publish, run_input))
            run_options = options or SessionOptions()
            return self._runner.start(
                self._runner.run(run_options, streaming, publish, run_input=run_input)
            )

        return RunStream(start, self._runner.stop, show)

    def cancel(self, mode: CancelMode = "now") -> None:
        """Cancel the active run, if any, from any thread; the conversation can be continued.

        The partial answer is kept (see `SessionOptions.on_cancel`). "after_turn" lets the current
        turn finish first.
        """
        self._runner.cancel(mode)

    def suspend(self) -> None:
        """Stop the active run, if any, so that `resume` continues it, here or in another process.

        The run is left as after a crash: a partial answer is generated again, and a tool that was
        running is treated according to its `replay` option. A run that has not started yet is
        cancelled.
        """
        self._runner.suspend()

    def steer(self, text: str) -> Message:
        """Send a message to the active run, which reads it before its next model call.

        Without an active run, or while it waits for its branch, the message is added to the branch
        at once. Called from another thread than that of the run, it returns when the message is
        durable; on the loop of the run, the message is durable with the next event.
        """
        message = self._instruction(text)
        if self.steer_run(message) is None:
            self._request.session.add_message(message, branches=self._request.branch)
        return message

    def steer_run(self, message: str | Message) -> Message | None:
        """Do as `steer`, but only with an active run: otherwise return None and add nothing.

        Raises ExistsError if the run or the session already has a message with this id.
        """
        message = self._instruction(message)
        return message if self._runner.steer(message) else None

    asteer: Final = async_method(steer)
    asteer_run: Final = async_method(steer_run)

    def edit(
        self,
        message: Ref | int,
        content: MessageContent | Mapping[str, Any] | str,
        *,
        name: str | None = None,
    ) -> ConversationSession:
        """Return a conversation on a fork with `content` in place of `message`; see Branch.edit.

        Run it to have an edited instruction answered. Index 0 is the system message, if there is
        one; a fork with another system message keeps the whole history, so `say` something there,
        or `regenerate` the last answer.
        """
        return self._on_branch(self._request.branch.edit(message, content, name=name))

    async def aedit(
        self,
        message: Ref | int,
        content: MessageContent | Mapping[str, Any] | str,
        *,
        name: str | None = None,
    ) -> ConversationSession:
        """`edit` for async callers."""
        return self._on_branch(await self._request.branch.aedit(message, content, name=name))

    def regenerate(
        self, message: Ref | int | None = None, *, name: str | None = None
    ) -> ConversationSession:
        """Return a conversation on a fork before an answer, by default the last one.

        Run it to get another answer. Raises NotFoundError if there is none, ValidationError for a
        message that is not the model's.
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
        """Return the same conversation on another branch with the same grants."""
        request = replace(self._request, branch=branch)
        return ConversationSession(request, observers=self._observers)

    def _input(
        self,
        new: NewMessages | None,
        output: type[Any] | None,
        *,
        at: int | None = None,
        last: UUID | None = None,
        check: Check | None = None,
    ) -> RunInput:
        if not isinstance(at, int | None) or isinstance(at, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"at is the number of messages expected, got {short_repr(at)}.")
        if not isinstance(last, UUID | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"last is the id of the last message expected, a UUID, got {short_repr(last)}."
            )
        wanted = RunOutput.of(output)
        messages = with_schema(self._input_messages(new), wanted)
        return RunInput(say=messages, at=at, last=last, check=check, output=wanted)

    def _input_messages(self, say: NewMessages | None) -> tuple[Message, ...]:
        if isinstance(say, str | Message):
            return (self._instruction(say),)
        messages = () if say is None else say if isinstance(say, Sequence) else (say,)
        new = tuple(message for message in messages if isinstance(message, Message))
        if len(new) == len(messages):
            return new
        from sennit.messages.parts import split  # slow to import

        parts = cast("Sequence[str | Part]", messages)
        return split("user", parts, sender=self._request.session.user).messages

    def _instruction(self, text: str | Message) -> Message:
        if isinstance(text, Message):
            return text
        content = InstructionContent(instruction=text)
        return Message(content, sender=self._request.session.user)

    def execute_tool_call(self, call_id: str) -> Return:
        """Execute exactly one pending tool call; no model and no other tool is called.

        Its result, which may be an error, is the last message of the body. A call that needs
        approval and has none waits for it (`suspended`), and so does the run it belongs to:
        `resume` continues that. Raises NotFoundError for a call that is unknown or already has its
        result.
        """
        return run_blocking(self.aexecute_tool_call(call_id), "await aexecute_tool_call()")

    async def aexecute_tool_call(self, call_id: str) -> Return:
        """`execute_tool_call` for async callers."""
        unfinished_run = await _load_unfinished(RunRepository(self._request.branch))
        options = (
            SessionOptions() if unfinished_run is None else _recorded_options(unfinished_run.notes)
        )
        run_input = RunInput(only=pending_call(self._request.branch, call_id).id)
        return await self._runner.run(options, None, _ignore_events, unfinished_run, run_input)

    async def execute_special_turn(
        self, turn: SpecialTurn, prefer_streaming: bool = False
    ) -> Return:
        """Run a request beside the conversation; see SpecialTurn.

        Nothing of it is visible until its outcome is added to the branch, at its current head. An
        active run continues, and several special turns may run at once. One that fails changes
        nothing. Its messages are in the Return, kept or not.
        """
        if not isinstance(turn, SpecialTurn):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"A special turn is a SpecialTurn, got {short_repr(turn)}.")
        runs = RunRepository(self._request.branch)
        await runs.read(runs.refresh)
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
        return replace(result, notices=(*result.notices, *warnings))

    def execute_special_turn_sync(
        self, turn: SpecialTurn, prefer_streaming: bool = False
    ) -> Return:
        """`execute_special_turn` for programs without an event loop."""
        return run_blocking(
            self.execute_special_turn(turn, prefer_streaming), "await execute_special_turn()"
        )

    @overload
    def resume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: None = None,
    ) -> Return[None]: ...
    @overload
    def resume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[_T],
    ) -> Return[_T]: ...
    def resume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[Any] | None = None,
    ) -> Return[Any]:
        """Continue the last run, which crashed or waits for approval.

        If there is none, nothing happens: the `text` of the result is "" then, and its notice has
        the code "nothing_to_resume". Finished tool calls are not repeated; one that was running is
        treated according to its `replay` option. A partial answer is generated again. `output` is
        as in `say`; without it, the answer has to fit the schema that the run was asked for, and
        the output is plain data.
        """
        resuming = self.aresume(options, streaming_options, output=output)
        return run_blocking(resuming, "await aresume()")

    @overload
    async def aresume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: None = None,
    ) -> Return[None]: ...
    @overload
    async def aresume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[_T],
    ) -> Return[_T]: ...
    async def aresume(
        self,
        options: SessionOptions | None = None,
        streaming_options: StreamingOptions | None = None,
        *,
        output: type[Any] | None = None,
    ) -> Return[Any]:
        """`resume` for async callers."""
        run_input = self._input(None, output)
        return await self._runner.start(
            self._resume(options, streaming_options, _ignore_events, run_input)
        )

    async def _resume(
        self,
        options: SessionOptions | None,
        streaming_options: StreamingOptions | None,
        publish: Publish,
        run_input: RunInput,
    ) -> Return:
        unfinished_run = await _load_unfinished(RunRepository(self._request.branch))
        if unfinished_run is not None:
            run_options = options or _recorded_options(unfinished_run.notes)
            return await self._runner.run(
                run_options, streaming_options, publish, unfinished_run, run_input
            )
        run = Run(
            self._request,
            options or SessionOptions(),
            streaming_options,
            publish,
            run_input=run_input,
        )
        return run.refuse("invalid", NOTHING_TO_RESUME)

    def pending_approvals(self) -> list[Message]:
        """Return the calls of a suspended run that need approval and have no decision yet."""
        return pending_approvals(self._request.branch)

    apending_approvals: Final = async_method(pending_approvals)

    def approve(self, call: str | Message, *, resume: bool = True) -> Return | None:
        """Approve a waiting tool call, one of `pending_approvals()` or its id.

        The run continues as soon as no call waits any more; its result is returned then, and None
        before.
        """
        return run_blocking(self.aapprove(call, resume=resume), "await aapprove()")

    async def aapprove(self, call: str | Message, *, resume: bool = True) -> Return | None:
        """`approve` for async callers."""
        return await self._decide(call, True, "", resume)

    def deny(self, call: str | Message, message: str = "", *, resume: bool = True) -> Return | None:
        """Deny a waiting tool call, with a reason for the model; the run continues as after
        `approve`.
        """
        return run_blocking(self.adeny(call, message, resume=resume), "await adeny()")

    async def adeny(
        self, call: str | Message, message: str = "", *, resume: bool = True
    ) -> Return | None:
        """`deny` for async callers."""
        return await self._decide(call, False, message, resume)

    async def _decide(
        self, call: str | Message, approved: bool, reason: str, resume: bool
    ) -> Return | None:
        branch = self._request.branch
        all_decided = await decide(branch, _call_id(call), approved=approved, reason=reason)
        return await self.aresume() if all_decided and resume else None

    def history(self, after: int = 0) -> list[AnyEvent]:
        """Return all events on the branch past the sequence number `after`, of all runs."""
        return shown_after(RunRepository(self._request.branch), after)

    def replay(self, run_id: UUID) -> list[AnyEvent]:
        """Return the events of a run as they were published, without calling its model; raises
        NotFoundError.
        """
        return replay(RunRepository(self._request.branch), run_id)

    ahistory: Final = async_method(history)
    areplay: Final = async_method(replay)


def _sort_arguments(
    message: NewMessages | SessionOptions | None,
    options: SessionOptions | StreamingOptions | None,
    streaming_options: StreamingOptions | None,
) -> tuple[NewMessages | None, SessionOptions | None, StreamingOptions | None]:
    """Return the message, the options and the streaming options of a stream.

    Without a message the options come first, as in `stream(SessionOptions(), StreamingOptions())`.
    """
    new = None if isinstance(message, SessionOptions) else message
    given = [entry for entry in (message, options, streaming_options) if entry is not new]
    run_options = [entry for entry in given if isinstance(entry, SessionOptions)]
    streaming = [entry for entry in given if isinstance(entry, StreamingOptions)]
    others = [entry for entry in given if not isinstance(entry, SessionOptions | StreamingOptions)]
    if others := [entry for entry in others if entry is not None]:
        raise InvalidTypeError(
            f"options must be SessionOptions or StreamingOptions, got {short_repr(others[0])}."
        )
    if len(run_options) > 1 or len(streaming) > 1:
        raise ValidationError("SessionOptions and StreamingOptions are passed once each.")
    return new, next(iter(run_options), None), next(iter(streaming), None)


async def _load_unfinished(runs: RunRepository) -> UnfinishedRun | None:
    return await runs.read(lambda: find_unfinished_run(runs))


def _recorded_options(notes: dict[str, Any]) -> SessionOptions:
    """Return the options stored with a run."""
    values = dict(notes.get("options", {}))
    if values.get("budget") is not None:
        values["budget"] = Budget(**values["budget"])
    return SessionOptions(**values)


def _ignore_events(_events: list[AnyEvent]) -> None:
    """Ignore all events."""


def _call_id(call: str | Message) -> str:
    if isinstance(call, str):
        return call
    if not isinstance(call, Message) or not isinstance(call.content, ActionRequestContent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(
            f"A tool call is one of pending_approvals(), or its id, got {short_repr(call)}."
        )
    return call_id_of(call)


def _collect_warnings(warnings: list[Notice]) -> Callable[[Any, BaseException], None]:
    def warn(observer: Any, error: BaseException) -> None:
        warnings.append(Notice("warning", "observer", observer_warning(observer, error)))

    return warn


def last_answer(branch: Branch) -> Message:
    """Return the first message of the answer to the last instruction; raises NotFoundError."""
    answer: Message | None = None
    for message in messages_from_end(branch):
        if message.role is MessageRole.USER and answer is not None:
            break
        if message.role is MessageRole.ASSISTANT:
            answer = message
    if answer is None:
        raise NotFoundError("There is no answer yet; run the conversation first.")
    return answer

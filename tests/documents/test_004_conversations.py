"""Document 004 (the conversation loop), type by type and example by example, in its order.

Each docstring opens with the heading under which the document says it; the code is the document's,
with its names in snake_case. Where SPEC §4 rules otherwise, its form is asserted and the ruling is
named. The provider is a scripted model.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    ConversationObserver,
    ConversationSession,
    GreetingSpecialTurn,
    InstructionContent,
    InteractionFilter,
    Message,
    ModelError,
    NotFoundError,
    PersistenceStrategy,
    Request,
    Return,
    RunError,
    Session,
    SessionOptions,
    SpecialTurn,
    StreamingOptions,
    SystemContent,
    ValidationError,
)
from sennit.services.models.reply import Reply, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns import Policy
from tests.conversation_fixtures import in_short

SECTIONS = (
    "004 · Purpose",
    "004 · Types · IConversationSession",
    "004 · Types · IConversationObserver",
    "004 · Types · SessionOptions",
    "004 · Types · ConversationSession",
    "004 · Usage",
    "004 · Streaming",
    "004 · Streaming · Notes",
    "004 · Conversation flow (Unified)",
    "004 · Conversation flow (Unified) · Notes",
    "004 · Special Turns",
    "004 · Special Turns · Key features",
)

SEARCH = ToolCall("search", {"query": "knots"}, "c1")
AT_ONCE = StreamingOptions(coalesce_tokens=False)


def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def request(*replies: Any, say: str | None = "Go.", **options: Any) -> Request:
    """What the document calls `req`: a provider, its tools, and a history to answer."""
    session = Session()
    session.services.register(ScriptedModel(replies, name="provider", **options))
    session.services.register(search)
    branch = session.create_branch("main", resources={"provider", "search"})
    if say is not None:
        session.add_message(Message(InstructionContent(instruction=say)), branches=branch)
    return Request.of(branch, model="provider", tools=["search"])


def model_of(req: Request) -> ScriptedModel:
    assert isinstance(req.model, ScriptedModel)
    return req.model


def history(branch: Branch) -> list[str]:
    return [in_short(message) for message in branch.messages]


def run(session: ConversationSession, options: SessionOptions | None = None) -> Return:
    return asyncio.run(session.run_to_stable_result(options))


def streamed(
    session: ConversationSession,
    options: SessionOptions | None = None,
    streaming: StreamingOptions = AT_ONCE,
) -> list[Return]:
    async def consume() -> list[Return]:
        return [delta async for delta in session.stream(options, streaming)]

    return asyncio.run(consume())


class Watcher(ConversationObserver):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_start(self, request: Request) -> None:
        self.told.append(("start", request))

    def on_delta(self, interaction: Message) -> None:
        self.told.append(("delta", interaction))

    def on_interaction_completed(self, interaction: Message) -> None:
        self.told.append(("completed", interaction))

    def on_tool_call(self, tool_call: Message) -> None:
        self.told.append(("call", tool_call))

    def on_tool_result(self, tool_result: Message) -> None:
        self.told.append(("result", tool_result))

    def on_final(self, result: Return) -> None:
        self.told.append(("final", result))

    def on_error(self, error: Exception) -> None:
        self.told.append(("error", error))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def test_one_place_runs_many_turns_and_streams_if_asked() -> None:
    """004 · Purpose"""
    at_once, as_it_comes = request([SEARCH], "Found."), request([SEARCH], "Found.")
    for result in (
        run(ConversationSession(at_once)),
        streamed(ConversationSession(as_it_comes))[-1],
    ):
        assert (result.success, result.metrics.turns) == (True, 2)
    said = ["user Go.", "call search", "result found knots", "says Found."]
    assert history(at_once.branch) == history(as_it_comes.branch) == said


def test_a_session_has_its_request() -> None:
    """004 · Types · IConversationSession"""
    req = request("Hi.")
    assert ConversationSession(req).request is req


def test_run_to_stable_result_takes_options_and_gives_a_return() -> None:
    """004 · Types · IConversationSession"""
    result = run(ConversationSession(request("Hi.")), SessionOptions())
    assert isinstance(result, Return)
    assert result.text == "Hi."


def test_stream_takes_both_options_and_gives_returns_one_by_one() -> None:
    """004 · Types · IConversationSession"""
    stream = ConversationSession(request("Hi.")).stream(SessionOptions(), StreamingOptions())
    assert isinstance(stream, AsyncIterator)
    deltas = streamed(ConversationSession(request("Hi there.", chunk=3)))
    assert all(isinstance(delta, Return) for delta in deltas)
    assert [delta.is_delta for delta in deltas] == [True, True, True, False, False]
    assert [delta.is_message for delta in deltas] == [False, False, False, True, False]
    assert [delta.is_final for delta in deltas] == [False, False, False, False, True]
    named = {"options": SessionOptions(), "streaming_options": StreamingOptions()}
    assert isinstance(ConversationSession(request("Hi.")).stream(**named), AsyncIterator)


def test_cancel_ends_the_run_and_the_next_one_goes_on() -> None:
    """004 · Types · IConversationSession"""

    async def cancelled() -> tuple[Return, Return]:
        req = request("A long answer.", "Again.", chunk=2)
        session = ConversationSession(req)
        last = Return()
        async for delta in session.stream(SessionOptions(), AT_ONCE):
            last = delta
            session.cancel()
        return last, await session.run_to_stable_result()

    first, second = asyncio.run(cancelled())
    assert first.stop_reason == "cancelled"
    assert "A long answer.".startswith(first.text)
    assert (second.success, second.text) == (True, "Again.")


def test_an_observer_has_a_method_for_every_step() -> None:
    """004 · Types · IConversationObserver"""
    watcher = Watcher()
    req = request(["Hm.", SEARCH], "Found.", chunk=3)
    session = ConversationSession(req, observers=[watcher])
    result = streamed(session)[-1]
    assert watcher.names == [
        "start",
        *["delta", "completed", "call", "result"],
        *["delta", "delta", "completed"],
        "final",
    ]
    told = dict(watcher.told)
    assert told["start"] is req
    assert isinstance(told["delta"].content, AssistantResponseContent)
    assert isinstance(told["completed"].content, AssistantResponseContent)
    assert isinstance(told["call"].content, ActionRequestContent)
    assert isinstance(told["result"].content, ActionResponseContent)
    assert told["final"] == result


def test_an_observer_is_told_of_an_error_just_before_the_end() -> None:
    """004 · Types · IConversationObserver"""
    watcher = Watcher()
    failure = ModelError("gone", kind="network")
    run(ConversationSession(request(failure), observers=[watcher]))
    assert watcher.names == ["start", "error", "final"]
    assert watcher.told[1] == ("error", failure)


def test_the_options_have_the_documented_names() -> None:
    """004 · Types · SessionOptions"""
    names = {one.name for one in fields(SessionOptions)}
    assert {"process_tools", "max_turns", "max_tool_passes", "allow_parallel_tools"} <= names


def test_process_tools_decides_whether_pending_calls_are_made() -> None:
    """004 · Types · SessionOptions"""
    req = request([SEARCH])
    result = run(ConversationSession(req), SessionOptions(process_tools=False))
    assert (result.success, history(req.branch)) == (True, ["user Go.", "call search"])
    again = run(ConversationSession(req), SessionOptions(process_tools=False))
    assert (again.stop_reason, again.notices[0].code) == ("invalid", "pending_tools")


def test_max_turns_and_max_tool_passes_bound_a_run() -> None:
    """004 · Types · SessionOptions"""
    many = [[ToolCall("search", {"query": str(number)})] for number in range(9)]
    limit: dict[str, Any]
    for limit in ({"max_turns": 2}, {"max_tool_passes": 2}):
        result = run(ConversationSession(request(*many)), SessionOptions(**limit))
        [name] = limit
        assert (result.stop_reason, result.notices[0].code) == ("max_turns", name)


def test_parallel_tools_run_together_and_are_stored_in_order() -> None:
    """004 · Types · SessionOptions"""
    met = asyncio.Event()

    async def first() -> str:
        """Wait for the second."""
        await met.wait()
        return "first"

    async def second() -> str:
        """Let the first go on."""
        met.set()
        return "second"

    req = request([ToolCall("first"), ToolCall("second")], "Done.")
    req.branch.grant(resources={"first", "second"})
    both = Request.of(req.branch, model="provider", tools=[first, second])
    result = run(ConversationSession(both), SessionOptions(allow_parallel_tools=True))
    assert result.success
    assert history(req.branch)[3:5] == ["result first", "result second"]


def test_cancelling_whoever_waits_is_the_cancellation_token() -> None:
    """004 · Types · SessionOptions"""

    async def cancelled() -> list[str]:
        begun = asyncio.Event()

        async def never(_request: Any) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        req = request(never)
        task = asyncio.create_task(ConversationSession(req).run_to_stable_result())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return history(req.branch)

    assert asyncio.run(cancelled()) == ["user Go."]


def test_options_that_make_no_sense_are_refused() -> None:
    """004 · Types · SessionOptions"""
    wrong: dict[str, Any]
    for wrong in ({"max_turns": 0}, {"max_tool_passes": -1}, {"process_tools": "yes"}):
        with pytest.raises(ValidationError):
            SessionOptions(**wrong)


def test_provider_calls_go_through_exec_or_the_streaming_adapter() -> None:
    """004 · Types · ConversationSession"""
    req = request("Hi.")
    result = asyncio.run(req.exec())
    assert (result.text, history(req.branch)) == ("Hi.", ["user Go."])
    assert run(ConversationSession(request("Hi."))).text == "Hi."
    assert streamed(ConversationSession(request("Hi.")))[-1].text == "Hi."


def test_turns_and_passes_are_bounded_and_observers_told() -> None:
    """004 · Types · ConversationSession"""
    watcher = Watcher()
    session = ConversationSession(request([SEARCH], [SEARCH]), observers=[watcher])
    result = run(session, SessionOptions(max_turns=1))
    assert result.stop_reason == "max_turns"
    assert watcher.names == ["start", "call", "error", "final"]


def test_pending_calls_are_executed_in_passes() -> None:
    """004 · Types · ConversationSession"""
    req = request([SEARCH, ToolCall("search", {"query": "rope"}, "c2")], "Found.")
    assert run(ConversationSession(req), SessionOptions(max_tool_passes=1)).success
    assert history(req.branch)[1:5] == [
        *["call search", "call search"],
        *["result found knots", "result found rope"],
    ]


def test_exactly_one_pending_call_can_be_executed_directly() -> None:
    """004 · Types · ConversationSession"""
    req = request([SEARCH, ToolCall("search", {"query": "rope"}, "c2")])
    session = ConversationSession(req)
    run(session, SessionOptions(process_tools=False))
    result = asyncio.run(session.aexecute_tool_call("c2"))
    assert [in_short(one) for one in result.body.interactions] == ["result found rope"]
    assert history(req.branch) == ["user Go.", "call search", "call search", "result found rope"]
    with pytest.raises(NotFoundError):
        asyncio.run(session.aexecute_tool_call("c2"))
    model_of(req).assert_complete()


def test_an_explicit_session_runs_tools_over_several_turns() -> None:
    """004 · Usage"""

    async def example() -> None:
        req = request([SEARCH], "Found.")

        session = ConversationSession(req)
        options = SessionOptions(
            process_tools=True,
            max_turns=3,
            max_tool_passes=2,
        )
        result = await session.run_to_stable_result(options)

        assert result.success
        assert [in_short(one) for one in result.body.interactions] == [
            "call search",
            "result found knots",
            "says Found.",
        ]

    asyncio.run(example())


def test_deltas_are_consumed_as_they_come() -> None:
    """004 · Streaming"""

    async def example() -> None:
        session = ConversationSession(request("Over, under, through and tight.", chunk=6))
        options = SessionOptions()

        streaming = StreamingOptions(
            coalesce_tokens=True,
            coalesce_delay_ms=40,
            preferred_chunk_size=24,
        )

        shown: list[str] = []
        async for delta in session.stream(options, streaming):
            # Render partial UI, inspect delta.body.interactions, etc.
            shown += [str(one.rendered) for one in delta.body.interactions if not delta.is_final]

        pieces, whole = shown[:-1], shown[-1]
        assert len(pieces) == 2
        assert len(pieces[0]) == 24
        assert "".join(pieces) == whole == "Over, under, through and tight."

    asyncio.run(example())


def test_without_coalescing_each_delta_is_shown() -> None:
    """004 · Streaming"""
    session = ConversationSession(request("abcdef", chunk=2))
    assert [one.text for one in streamed(session)] == ["ab", "cd", "ef", "abcdef", "abcdef"]


def test_if_streaming_is_unsupported_one_error_return_is_yielded_and_it_ends() -> None:
    """004 · Streaming · Notes"""
    req = request("Hi.", streams=False)
    [only] = streamed(ConversationSession(req))
    assert (only.success, only.stop_reason) == (False, "invalid")
    assert (only.notices[0].severity, only.notices[0].code) == ("error", "no_streaming")
    assert model_of(req).requests == []


def test_exec_performs_a_single_provider_call() -> None:
    """004 · Streaming · Notes"""
    req = request([SEARCH], "never asked for")
    result = asyncio.run(req.exec())
    assert [in_short(one) for one in result.body.interactions] == ["call search"]
    assert len(model_of(req).requests) == 1
    assert history(req.branch) == ["user Go."]


def _many(count: int) -> list[Any]:
    return [[ToolCall("search", {"query": str(number)})] for number in range(count)]


_FLOW: dict[str, tuple[Callable[[], Request], SessionOptions, str, list[str]]] = {
    "invalid: an error is returned": (
        lambda: request(say=None),
        SessionOptions(),
        "invalid/empty",
        [],
    ),
    "valid, no tools: one provider turn, stable": (
        lambda: request("Hi."),
        SessionOptions(),
        "stable",
        ["says Hi."],
    ),
    "pending calls are drained before the provider is asked": (
        lambda: _with_pending(request([SEARCH], "Found.")),
        SessionOptions(),
        "stable",
        ["result found knots", "says Found."],
    ),
    "not stable: the next turn": (
        lambda: request([SEARCH], ["And", ToolCall("search", {"query": "rope"})], "Found."),
        SessionOptions(),
        "stable",
        [
            *["call search", "result found knots"],
            *["says And", "call search", "result found rope", "says Found."],
        ],
    ),
    "turns exceeded: an error final that keeps the last body": (
        lambda: request(*_many(2)),
        SessionOptions(max_turns=2),
        "max_turns/max_turns",
        ["call search", "result found 0", "call search"],
    ),
    "a provider that fails: an error final": (
        lambda: request([SEARCH], ModelError("gone", kind="network")),
        SessionOptions(),
        "error/network",
        ["call search", "result found knots"],
    ),
}


def _with_pending(req: Request) -> Request:
    run(ConversationSession(req), SessionOptions(process_tools=False))
    return req


@pytest.mark.parametrize("case", _FLOW)
def test_both_apis_and_the_events_follow_the_same_flow(case: str) -> None:
    """004 · Conversation flow (Unified)"""
    make, options, ending, said = _FLOW[case]

    async def events(session: ConversationSession) -> Return:
        async with session.events(options, AT_ONCE) as watched:
            return [event async for event in watched][-1].result  # pyright: ignore

    for show in (
        lambda session: run(session, options),
        lambda session: streamed(session, options)[-1],
        lambda session: asyncio.run(events(session)),
    ):
        req = make()
        before = len(req.branch)
        result: Return = show(ConversationSession(req))
        codes = [one.code for one in result.notices if one.severity == "error"]
        assert "/".join([str(result.stop_reason), *codes]) == ending
        assert [in_short(one) for one in result.body.interactions] == said
        assert history(req.branch)[before:] == said


def test_the_final_is_told_once_and_the_turns_are_the_provider_turns() -> None:
    """004 · Conversation flow (Unified)"""
    watcher = Watcher()
    result = run(ConversationSession(request([SEARCH], "Found."), observers=[watcher]))
    assert watcher.names.count("final") == 1
    assert (result.metrics.turns, result.metrics.tool_calls) == (2, 1)


def test_reaching_max_turns_is_an_error() -> None:
    """004 · Conversation flow (Unified)"""
    result = run(ConversationSession(request(*_many(2))), SessionOptions(max_turns=1))
    with pytest.raises(RunError, match="max_turns"):
        result.raise_for_error()


def test_deltas_are_persisted_in_the_order_of_the_provider() -> None:
    """004 · Conversation flow (Unified) · Notes"""
    req = request(["Before.", SEARCH, "After."], "Done.", chunk=3)
    streamed(ConversationSession(req))
    assert history(req.branch) == [
        "user Go.",
        *["says Before.", "call search", "says After.", "result found knots"],
        "says Done.",
    ]


def test_each_chunk_is_persisted_before_it_is_shown() -> None:
    """004 · Conversation flow (Unified) · Notes"""

    async def watch() -> None:
        session = ConversationSession(request("abcdef", chunk=2))
        shown = ""
        async for delta in session.stream(SessionOptions(), AT_ONCE):
            if delta.is_delta:
                noted = [one.seq for one in session.history() if one.kind == "text.delta"]
                shown += str(delta) if delta.seq in noted else ""
        assert shown == "abcdef"

    asyncio.run(watch())


def test_a_model_without_an_adapter_at_hand_takes_a_single_turn() -> None:
    """004 · Conversation flow (Unified) · Notes"""

    class Fading(ScriptedModel):
        """Says that it streams when it is looked at first, and later that it does not."""

        looked = 0

        @property
        def streams(self) -> bool:
            self.looked += 1
            return self.looked == 1

        @streams.setter
        def streams(self, value: bool) -> None:
            del value

    session = Session()
    session.services.register(Fading([[SEARCH], "Whole."], name="fading"))
    session.services.register(search)
    branch = session.create_branch("main", resources="*")
    session.add_message("user", "Go.", branches=branch)
    conversation = session.conversation(branch, model="fading", tools=["search"])
    deltas = streamed(conversation)
    assert deltas[-1].success
    assert [in_short(one) for delta in deltas[:-1] for one in delta.body.interactions] == [
        *["call search", "result found knots"],
        *["says Whole.", "says Whole."],  # as it comes, in one piece, and when it is complete
    ]


def test_at_the_end_of_a_stream_the_last_return_holds_all_that_was_said() -> None:
    """004 · Conversation flow (Unified) · Notes"""
    req = request(["Hm.", SEARCH], "Found.", chunk=2)
    *deltas, final = streamed(ConversationSession(req))
    assert [one.id for one in final.body.interactions] == list(req.branch)[1:]
    pieces: dict[Any, str] = {}
    for delta in deltas:
        for one in delta.body.interactions:
            if isinstance(one.content, AssistantResponseContent):
                text = one.content.assistant_response or ""
                pieces[one.id] = pieces.get(one.id, "") + text
    # Each text is shown in pieces, and once more when it is whole.
    assert list(pieces.values()) == ["Hm.Hm.", "Found.Found."]


def test_a_greeting_comes_first_if_it_is_asked_for() -> None:
    """004 · Conversation flow (Unified)"""
    for show in (run, lambda session: streamed(session)[-1]):
        req = request("Welcome!", "Hi.", say=None)
        result = show(ConversationSession(req, generate_greeting=True))
        assert (result.success, result.text) == (True, "Welcome!")
        req.session.add_message("user", "Hello", branches=req.branch)
        assert show(ConversationSession(req, generate_greeting=True)).text == "Hi."
        assert history(req.branch) == ["says Welcome!", "user Hello", "says Hi."]


def test_policies_are_active_in_both_paths() -> None:
    """004 · Streaming · Notes"""

    class Politeness(Policy):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_request(self, request: ModelRequest) -> None:
            self.seen.append("request")

        def on_response(self, request: ModelRequest, reply: Reply) -> Reply:
            self.seen.append("response")
            return replace(reply, items=(ReplyText(reply.text.replace("Bah", "Indeed")),))

    for show in (run, lambda session: streamed(session)[-1]):
        policy = Politeness()
        req = request("Bah.", chunk=2)
        assert show(ConversationSession(req, policies=[policy])).text == "Indeed."
        assert history(req.branch) == ["user Go.", "says Indeed."]
        assert policy.seen == ["request", "response"]


def test_a_greeting_is_executed_as_a_special_turn() -> None:
    """004 · Special Turns"""

    async def example() -> None:
        provider_name, system_prompt = "provider", "You are a sailor."
        req = request("Ahoy!", say=None)
        session = ConversationSession(req)

        greeting_config = GreetingSpecialTurn.create(provider_name, system_prompt)
        greeting = await session.execute_special_turn(
            greeting_config,
            prefer_streaming=True,
        )

        assert greeting.success
        assert greeting.text == "Ahoy!"
        assert history(req.branch) == ["says Ahoy!"]
        assert model_of(req).requests[0].messages[0]["content"] == system_prompt

    asyncio.run(example())


def special(req: Request, turn: SpecialTurn, *, prefer_streaming: bool = False) -> Return:
    session = ConversationSession(req)
    return asyncio.run(session.execute_special_turn(turn, prefer_streaming=prefer_streaming))


def test_a_special_turn_overrides_what_is_asked_of_whom() -> None:
    """004 · Special Turns"""
    req = request("never asked")
    other = ScriptedModel(["Elsewhere."], name="other")
    req.session.services.register(other)
    req.branch.grant(resources={"other"})
    result = special(
        req,
        SpecialTurn(
            interactions=[InstructionContent(instruction="Alone.")],
            provider="other",
            tools=(),
            context=["It is noon."],
        ),
    )
    assert result.text == "Elsewhere."
    [asked] = other.requests
    assert asked.tools == ()
    told = " ".join(str(message["content"]) for message in asked.messages)
    assert "Alone." in told
    assert "It is noon." in told
    assert "Go." not in told
    assert model_of(req).requests == []
    aloud = ScriptedModel(["By name."], name="acme:small")
    req.session.services.register(aloud)
    req.branch.grant(resources={"acme:small"})
    named = SpecialTurn(instruction="Again.", provider="acme", model="small")
    assert special(req, named).text == "By name."


@pytest.mark.parametrize("prefer_streaming", [True, False])
@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        (PersistenceStrategy.PERSIST_RESULT, ["user Hi", "says Hello.", "says Polite."]),
        (
            PersistenceStrategy.PERSIST_ALL,
            ["user Hi", "says Hello.", "user How was that?", "says Polite."],
        ),
        (PersistenceStrategy.EPHEMERAL, ["user Hi", "says Hello."]),
        (PersistenceStrategy.REPLACE_ABOVE, ["says Polite."]),
    ],
)
def test_there_are_four_persistence_strategies_in_both_modes(
    strategy: PersistenceStrategy, kept: list[str], prefer_streaming: bool
) -> None:
    """004 · Special Turns · Key features"""
    req = request("Hello.", "Polite.", say="Hi")
    run(ConversationSession(req))
    turn = SpecialTurn(instruction="How was that?", strategy=strategy)
    assert special(req, turn, prefer_streaming=prefer_streaming).text == "Polite."
    assert history(req.branch) == kept


def test_a_special_turn_goes_through_the_regular_flow_and_its_tools() -> None:
    """004 · Special Turns · Key features"""
    req = request([SEARCH], "Found.")
    turn = SpecialTurn(instruction="Look.", strategy=PersistenceStrategy.PERSIST_ALL)
    assert special(req, turn).success
    assert history(req.branch) == [
        *["user Go.", "user Look."],
        *["call search", "result found knots", "says Found."],
    ]


def test_a_special_turn_that_fails_leaves_the_state_as_it_was() -> None:
    """004 · Special Turns · Key features"""
    for strategy in PersistenceStrategy:
        req = request("Hello.", [SEARCH], ModelError("gone", kind="network"))
        run(ConversationSession(req))
        turn = SpecialTurn(instruction="Look.", strategy=strategy)
        assert special(req, turn).stop_reason == "error"
        assert history(req.branch) == ["user Go.", "says Hello."]


def test_filters_choose_what_is_persisted() -> None:
    """004 · Special Turns · Key features"""
    req = request([SEARCH], "Found.")
    turn = SpecialTurn(
        instruction="Look.",
        strategy=PersistenceStrategy.PERSIST_ALL,
        filter=InteractionFilter.allow("user", "assistant").block("user"),
    )
    special(req, turn)
    assert "user Look." not in history(req.branch)
    assert history(req.branch)[-1] == "says Found."


def test_filters_have_the_documented_beginnings() -> None:
    """004 · Special Turns · Key features"""
    said = {
        "system": Message(SystemContent(system_message="Be brief.")),
        "user": Message(InstructionContent(instruction="Hi")),
        "assistant": Message(AssistantResponseContent("Hello.")),
        "tool": Message(ActionResponseContent(result=1)),
    }

    def passing(chosen: InteractionFilter) -> set[str]:
        return {kind for kind, message in said.items() if chosen.passes(message)}

    assert passing(InteractionFilter.allow_all()) == set(said)
    assert passing(InteractionFilter.default()) == {"user", "assistant", "tool"}
    assert passing(InteractionFilter.preserve_system_context()) == {"system"}
    assert passing(InteractionFilter.allow("user", "tool")) == {"user", "tool"}
    assert passing(InteractionFilter.block("tool")) == {"system", "user", "assistant"}
    assert passing(InteractionFilter.allow("user").block("user")) == set()


def test_observers_see_of_a_special_turn_what_is_persisted() -> None:
    """004 · Special Turns · Key features"""
    for strategy, seen in (
        (PersistenceStrategy.EPHEMERAL, []),
        (PersistenceStrategy.PERSIST_RESULT, ["says Found."]),
    ):
        watcher = Watcher()
        req = request([SEARCH], "Found.", chunk=2)
        session = ConversationSession(req, observers=[watcher])
        turn = SpecialTurn(instruction="Look.", strategy=strategy)
        asyncio.run(session.execute_special_turn(turn, prefer_streaming=True))
        assert [in_short(told) for name, told in watcher.told if name == "completed"] == seen
        assert not {"delta", "call", "result"} & set(watcher.names)


def test_every_section_listed_has_a_test_and_every_test_names_a_section() -> None:
    """The list at the top is kept honest."""
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    docstrings = {test.__name__: inspect.getdoc(test) or "" for test in tests}
    del docstrings["test_every_section_listed_has_a_test_and_every_test_names_a_section"]

    for section in SECTIONS:
        assert any(section == text.split("\n")[0] for text in docstrings.values()), section
    for name, docstring in docstrings.items():
        assert docstring.split("\n")[0] in SECTIONS, name

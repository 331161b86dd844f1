"""The unified flow of document 004 as a table of cases, run through all three views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from inspect import getsource
from typing import Any

import pytest

from sennit import MessageRole, ModelError, RunError, clock
from sennit.services.models.reply import (
    FinishReason,
    Reply,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    Usage,
)
from sennit.testing import ToolCall
from sennit.turns import loop
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    TextAdded,
    ToolCalled,
    ToolCompleted,
)
from sennit.turns.options import Budget, SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk, ending, in_short

ADD = ToolCall("add", {"a": 1, "b": 2})
OTHER = ToolCall("add", {"a": 3, "b": 4})
THIRD = ToolCall("add", {"a": 5, "b": 6})
WAIT = ToolCall("wait")


@dataclass(frozen=True)
class Case:
    replies: list[Any]
    said: list[str]
    reason: str
    codes: list[str] = field(default_factory=list)
    options: SessionOptions = field(default_factory=SessionOptions)
    say: str | None = "Go."
    greets: bool = False

    def talk(self, **more: Any) -> Talk:
        return Talk(*self.replies, say=self.say, **more)


CASES = {
    "an answer is stable": Case(["Hello."], ["user Go.", "says Hello."], "stable"),
    "a tool is called and the model goes on": Case(
        [["Let me see.", ADD], "Three."],
        ["user Go.", "says Let me see.", "call add", "result 3", "says Three."],
        "stable",
    ),
    "text after a call stays after it": Case(
        [[ADD, "Meanwhile"], "Three."],
        ["user Go.", "call add", "says Meanwhile", "result 3", "says Three."],
        "stable",
    ),
    "several calls are answered in order": Case(
        [[ADD, OTHER], "Done."],
        ["user Go.", "call add", "call add", "result 3", "result 7", "says Done."],
        "stable",
    ),
    "several calls run together are answered in order": Case(
        [[ADD, OTHER], "Done."],
        ["user Go.", "call add", "call add", "result 3", "result 7", "says Done."],
        "stable",
        options=SessionOptions(allow_parallel_tools=True),
    ),
    "a reused id is called all the same": Case(
        [[ToolCall("add", {"a": 1, "b": 1}, "x")], [ToolCall("add", {"a": 2, "b": 2}, "x")], "Ok."],
        ["user Go.", "call add", "result 2", "call add", "result 4", "says Ok."],
        "stable",
    ),
    "a tool that raises is told to the model": Case(
        [[ToolCall("fail", {"reason": "no"})], "I see."],
        ["user Go.", "call fail", "error RuntimeError: no", "says I see."],
        "stable",
    ),
    "max_turns ends with an error that carries the last body": Case(
        [[ADD], [OTHER]],
        ["user Go.", "call add", "result 3", "call add"],
        "max_turns",
        ["max_turns"],
        SessionOptions(max_turns=2),
    ),
    "max_tool_passes says which limit it was": Case(
        [[ADD], [OTHER]],
        ["user Go.", "call add", "result 3", "call add"],
        "max_turns",
        ["max_tool_passes"],
        SessionOptions(max_tool_passes=1),
    ),
    "without process_tools there is one provider turn": Case(
        [[ADD]],
        ["user Go.", "call add"],
        "stable",
        ["pending_tools"],
        SessionOptions(process_tools=False),
    ),
    "the same call again and again is a loop": Case(
        [[ADD], [ADD], [ADD]],
        ["user Go.", "call add", "result 3", "call add", "result 3", "call add"],
        "loop",
        ["loop"],
    ),
    "an answer cut off by its length is no answer": Case(
        [Reply((ReplyText("Once upon"),), "length")],
        ["user Go.", "says Once upon"],
        "length",
        ["length"],
    ),
    "a refusal is an answer": Case(
        [Reply((ReplyText("I will not."),), "refusal")],
        ["user Go.", "says I will not."],
        "stable",
        ["refusal"],
    ),
    "a provider that fails is a return": Case(
        [ModelError("down", kind="overloaded")], ["user Go."], "error", ["overloaded"]
    ),
    "a budget of tool calls stops before the next": Case(
        [[ADD], [OTHER]],
        ["user Go.", "call add", "result 3", "call add"],
        "budget",
        ["budget_tool_calls"],
        SessionOptions(budget=Budget(tool_calls=1)),
    ),
    "a budget of tool calls is looked at before each call": Case(
        [[ADD, OTHER]],
        ["user Go.", "call add", "call add", "result 3"],
        "budget",
        ["budget_tool_calls"],
        SessionOptions(budget=Budget(tool_calls=1)),
    ),
    "no more calls run together than the budget allows": Case(
        [[ADD, OTHER, THIRD]],
        ["user Go.", "call add", "call add", "call add", "result 3", "result 7"],
        "budget",
        ["budget_tool_calls"],
        SessionOptions(budget=Budget(tool_calls=2), allow_parallel_tools=True),
    ),
    "a budget of tokens stops before the next question": Case(
        [Reply((ReplyCall("a", "add", '{"a": 1, "b": 2}'),), "tool_calls", Usage(500, 500))],
        ["user Go.", "call add"],
        "budget",
        ["budget_tokens"],
        SessionOptions(budget=Budget(tokens=1000)),
    ),
    "a budget of money stops before the next question": Case(
        [Reply((ReplyCall("a", "add", '{"a": 1, "b": 2}'),), "tool_calls", Usage(5, 5, cost=0.5))],
        ["user Go.", "call add"],
        "budget",
        ["budget_cost"],
        SessionOptions(budget=Budget(cost=0.5)),
    ),
    "a reply that says nothing is an answer": Case([Reply((), "stop")], ["user Go."], "stable"),
    "a reply that breaks off with an error keeps what was said": Case(
        [Reply((ReplyText("Half"),), "error")], ["user Go.", "says Half"], "error", ["failed"]
    ),
    "a call that cannot be read is told, and made again": Case(
        [[ToolCall("add", '{"a": 1,')], [ADD], "Three."],
        [
            "user Go.",
            "call add",
            "error Not run: the arguments are not valid JSON (Invalid JSON: Input data was "
            "truncated.). Ask again with the whole call.",
            "call add",
            "result 3",
            "says Three.",
        ],
        "stable",
    ),
    "an unknown tool is told": Case(
        [[ToolCall("sub", {})], "Sorry."],
        [
            "user Go.",
            "call sub",
            "error Not run: there is no tool 'sub'; there are: 'add', 'fail'.",
            "says Sorry.",
        ],
        "stable",
    ),
    "exactly as many turns and passes as are allowed are no error": Case(
        [[ADD], [OTHER], "Done."],
        ["user Go.", "call add", "result 3", "call add", "result 7", "says Done."],
        "stable",
        options=SessionOptions(max_turns=3, max_tool_passes=2),
    ),
    "no passes at all leave the call pending": Case(
        [[ADD]],
        ["user Go.", "call add"],
        "max_turns",
        ["max_tool_passes"],
        SessionOptions(max_tool_passes=0),
    ),
    "a greeting may be all there is to say": Case(
        ["Welcome."], ["says Welcome."], "stable", say=None, greets=True
    ),
    "a greeting stands before what is yet to be answered": Case(
        ["Welcome.", [ADD], "Three."],
        ["says Welcome.", "user Go.", "call add", "result 3", "says Three."],
        "stable",
        greets=True,
    ),
    "an empty branch is invalid": Case([], [], "invalid", ["empty"], say=None),
    "reasoning belongs to the answer that follows": Case(
        [Reply((ReplyReasoning("hm"), ReplyText("Yes.")))], ["user Go.", "says Yes."], "stable"
    ),
}

UNPARSED = {
    "arguments that are no JSON": ('{"a": 1,', "are not valid JSON"),
    "arguments that are no object": ("[1, 2]", "must be a JSON object"),
}


def by_result(case: Case) -> tuple[Talk, Return]:
    talk = case.talk()
    return talk, talk.run(case.options, generate_greeting=case.greets)


def by_stream(case: Case) -> tuple[Talk, Return]:
    talk = case.talk(chunk=3)
    pieces = talk.stream(case.options, generate_greeting=case.greets)
    assert [piece.is_final for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return talk, pieces[-1]


def by_events(case: Case) -> tuple[Talk, Return]:
    talk = case.talk(chunk=3)
    return talk, ending(talk.events(case.options, generate_greeting=case.greets))


@pytest.mark.parametrize("view", [by_result, by_stream, by_events])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_run_comes_to_the_same_in_every_view(
    case: Case, view: Callable[[Case], tuple[Talk, Return]]
) -> None:
    talk, result = view(case)
    assert talk.said == case.said
    assert result.stop_reason == case.reason
    assert [notice.code for notice in result.notices] == case.codes
    assert [message.id for message in result.body.interactions] == [
        message.id for message in talk.branch.messages if message.role is not MessageRole.USER
    ]
    assert result.success == (case.reason == "stable")
    talk.model.assert_complete()


def projected(events: Iterable[AnyEvent]) -> Iterator[tuple[str, str]]:
    """What a stream shows of events, without ids and times."""
    for event in events:
        if isinstance(event, TextAdded | ReasoningAdded):
            yield "piece", event.text
        elif isinstance(event, MessageCompleted | ToolCalled | ToolCompleted):
            yield "message", in_short(event.message)
        elif isinstance(event, RunEnded):
            yield "end", str(event.result.stop_reason)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_stream_shows_the_events_and_nothing_else(case: Case) -> None:
    shown = case.talk(chunk=3).events(case.options, generate_greeting=case.greets)
    talk = case.talk(chunk=3)
    pieces = talk.stream(case.options, generate_greeting=case.greets)
    whole = {id(message) for message in talk.branch.messages}
    told = [
        ("end", str(one.stop_reason))
        if one.stop_reason is not None
        else ("message", in_short(one.body.interactions[0]))
        if id(one.body.interactions[0]) in whole
        else ("piece", _piece(one))
        for one in pieces
    ]
    assert told == list(projected(shown))


def _piece(one: Return) -> str:
    content: Any = one.body.interactions[0].content
    return content.assistant_response or content.reasoning


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([WAIT, WAIT], ["call wait", "call wait", "result 5"]),  # before the next call
        ([WAIT], ["call wait", "result 5"]),  # before the next question
    ],
)
def test_a_budget_of_seconds_is_looked_at_before_each_call(
    calls: list[ToolCall], said: list[str]
) -> None:
    seconds = 0.0

    def wait() -> int:
        """Take five seconds."""
        nonlocal seconds
        seconds += 5
        return 5

    talk = Talk(calls, tools=[wait])
    with clock.monotonic_clock_from(lambda: seconds):
        result = talk.run(SessionOptions(budget=Budget(seconds=4)))
    assert (result.stop_reason, result.notices[0].code) == ("budget", "budget_seconds")
    assert talk.said[1:] == said


def test_the_loop_fits_on_one_screen() -> None:
    assert len(getsource(loop).splitlines()) < 150
    assert len(getsource(loop.turns).splitlines()) < 40


@pytest.mark.parametrize(("raw", "told"), UNPARSED.values(), ids=UNPARSED.keys())
def test_a_call_that_cannot_be_read_is_not_run_and_the_model_is_told(raw: str, told: str) -> None:
    ran: list[int] = []

    def count(n: int = 0) -> int:
        """Count."""
        ran.append(n)
        return n

    talk = Talk([ToolCall("count", raw)], "Sorry.", tools=[count])
    assert talk.run().success
    assert ran == []
    assert told in talk.said[2]
    assert talk.branch.messages[1].metadata["arguments_text"] == raw


def test_a_call_cut_off_by_the_length_limit_is_never_run() -> None:
    cut = Reply((ReplyCall("a", "add", '{"a": 1, "b": 2}'),), "length")
    talk = Talk(cut, "Again.")
    assert talk.run().success
    assert talk.said[1] == "call add"
    assert "cut the call off" in talk.said[2]


@pytest.mark.parametrize("reason", ["error", "refusal"])
def test_the_last_call_of_a_reply_that_broke_off_is_never_run(reason: FinishReason) -> None:
    made: list[str] = []

    def wipe(what: str = "everything") -> None:
        """Delete something."""
        made.append(what)

    whole, half = ReplyCall("a", "wipe", '{"what": "dust"}'), ReplyCall("b", "wipe", "")
    talk = Talk(Reply((whole, half), reason), "Again.", "Well.", tools=[wipe])
    talk.run()
    assert talk.run().success
    assert made == ["dust"]
    assert "off" in talk.said[4]


def test_an_unknown_tool_is_told_with_those_that_there_are() -> None:
    talk = Talk([ToolCall("ad", {})], "Sorry.")
    talk.run()
    assert talk.said[2] == "error Not run: there is no tool 'ad'; there are: 'add', 'fail'."


def test_arguments_that_do_not_fit_are_told() -> None:
    talk = Talk([ToolCall("add", {"a": "x"})], "Sorry.")
    talk.run()
    assert talk.said[2].startswith("error")
    assert "b" in talk.said[2]


def test_calls_left_pending_are_worked_off_before_the_model_is_asked() -> None:
    talk = Talk([ADD], "Three.")
    talk.run(SessionOptions(process_tools=False))
    assert talk.run().success
    assert talk.said == ["user Go.", "call add", "result 3", "says Three."]


def test_pending_calls_make_a_run_without_tools_invalid() -> None:
    talk = Talk([ADD])
    talk.run(SessionOptions(process_tools=False))
    result = talk.run(SessionOptions(process_tools=False))
    assert (result.stop_reason, result.notices[0].code) == ("invalid", "pending_tools")
    assert talk.said == ["user Go.", "call add"]


def test_the_metrics_add_up() -> None:
    talk = Talk(
        Reply(
            (ReplyCall("a", "add", '{"a": 1, "b": 2}'),),
            "tool_calls",
            Usage(10, 5, 2, 1, 0.25),
            "m1",
        ),
        Reply((ReplyText("Three."),), "stop", Usage(20, 5, 0, 0, 0.25), "m1"),
    )
    metrics = talk.run().metrics
    assert metrics.usage == Usage(30, 10, 2, 1, 0.5)
    assert (metrics.turns, metrics.tool_calls, metrics.finish_reason) == (2, 1, "stop")
    assert metrics.model == "m1"


def test_what_was_shown_before_a_failure_is_kept() -> None:
    talk = Talk(["Half ", ModelError("gone", kind="network")])
    result = talk.stream()[-1]
    assert (result.stop_reason, result.notices[0].code) == ("error", "network")
    assert talk.said == ["user Go.", "says Half"]


def test_an_error_that_nobody_expected_ends_the_run_once() -> None:
    talk = Talk(["Half ", ZeroDivisionError("oops")])
    result = ending(talk.events())
    assert (result.stop_reason, result.notices[0].code) == ("error", "ZeroDivisionError")
    assert talk.said == ["user Go.", "says Half"]
    with pytest.raises(RunError) as raised:
        result.raise_for_error()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert Talk("Fine.").run().success


def test_a_call_that_is_forced_is_forced_once() -> None:
    talk = Talk([ADD], "Three.")
    assert talk.run(tool_choice=["add"]).answer == "Three."
    assert [one.params for one in talk.model.requests] == [{"tool_choice": ["add"]}, {}]

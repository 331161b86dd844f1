"""The model's window: what is added to a prompt, how full it is, and how room is made in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sennit import ImagePart, ModelError, Session, SessionOptions, TextPart
from sennit.errors import InvalidTypeError, ValidationError
from sennit.events import ContextAdded, HistoryReplaced, Injection
from sennit.services.models.reply import Reply, ReplyCall, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.testing import ToolCall
from sennit.turns import ContextItem, ContextNeed, context, summarize
from sennit.turns.context import tokens_of
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk, ending, in_short, kinds
from tests.turns.special.test_definition import TALKED, session, talked

pytest_plugins = ("tests.postgres",)
__all__ = ["session"]
PATHS = pytest.mark.parametrize("streamed", [False, True], ids=["asked", "streamed"])
TOO_LONG = ModelError("too long", kind="context")


def run(talk: Talk, streamed: bool = False, **more: Any) -> Return:
    return talk.stream(**more)[-1] if streamed else talk.run(**more)


def counted(text: str, tokens: int) -> Reply:
    """A reply to a prompt that the provider says had so many tokens."""
    return Reply((ReplyText(text),), "stop", Usage(tokens, 10))


def full(*replies: Any, session: Session | None = None, window: int = 1_000) -> Talk:
    """Two turns after which the provider has counted 810 tokens, and a third one begun."""
    talk = Talk("One.", counted("Two.", 800), *replies, session=session, window=window)
    for _ in range(2):
        talk.run(SessionOptions(summarize_at=None))
        talk.say("More.")
    return talk


FULL = [*TALKED, "user More."]


@PATHS
def test_a_full_window_is_summarised_and_the_run_goes_on(session: Session, streamed: bool) -> None:
    talk = full("In short.", "Three.", session=session)
    result = run(talk, streamed)
    assert (result.stop_reason, result.text) == ("stable", "Three.")
    assert talk.said == ["says In short.", "user More.", "says Three."]
    said = [one["content"] for one in talk.model.requests[-1].messages]
    assert said == ["In short.", "More."]
    assert result.metrics.turns == 1
    assert result.metrics.usage.output_tokens > 2  # the summary counts
    old = talk.session.get_branch("talk_above_1")
    assert [in_short(one) for one in old.messages] == TALKED


def test_the_summary_is_told_as_an_event_between_the_turns() -> None:
    talk = full("In short.", "Three.")
    events = talk.events()
    assert kinds(events) == [
        "run.started",
        "history.replaced",
        "turn.started",
        "prompt.changed",
        "message.completed",
        "run.ended",
    ]
    assert isinstance(events[1], HistoryReplaced)
    assert talk.conversation().replay(events[0].run_id) == events
    assert [in_short(one) for one in ending(events).body.interactions] == ["says Three."]


def test_below_the_share_nothing_is_summarised() -> None:
    talk = full("Three.", window=1_100)
    assert run(talk).text == "Three."
    assert talk.said == [*FULL, "says Three."]


@pytest.mark.parametrize(("share", "summed"), [(0.5, True), (1.0, False), (None, False)])
def test_the_share_is_an_option(share: float | None, summed: bool) -> None:
    talk = full(*["In short."] * summed, "Three.", window=1_500)
    assert talk.run(SessionOptions(summarize_at=share)).text == "Three."
    assert ("says In short." in talk.said) == summed


def test_a_model_whose_window_nobody_knows_is_asked_as_it_is() -> None:
    talk = full("Three.")
    talk.model.window = None
    assert run(talk).text == "Three."
    assert talk.said == [*FULL, "says Three."]


@PATHS
@pytest.mark.parametrize(
    "failure",
    [ModelError("down", kind="overloaded"), "", ["Half", ModelError("cut", kind="network")]],
)
def test_a_summary_that_fails_changes_nothing_and_is_a_warning(
    session: Session, failure: Any, streamed: bool
) -> None:
    talk = full(failure, "Three.", session=session)
    result = run(talk, streamed)
    assert (result.stop_reason, result.text) == ("stable", "Three.")
    assert [(one.severity, one.code) for one in result.notices] == [("warning", "summary")]
    assert talk.said == [*FULL, "says Three."]
    assert [branch.name for branch in talk.session.branches] == ["talk"]


def test_a_summary_of_what_is_gone_by_then_is_left(session: Session) -> None:
    def reply(_: ModelRequest) -> str:
        talk.branch.remove(talk.branch.messages[3].id)
        return "In short."

    talk = full(reply, "Three.", session=session)
    result = run(talk)
    assert (result.stop_reason, [one.code for one in result.notices]) == ("stable", ["summary"])
    assert talk.said == [*TALKED[:3], "user More.", "says Three."]


@PATHS
def test_a_window_that_the_provider_says_is_exceeded_is_summarised(
    session: Session, streamed: bool
) -> None:
    talk = talked(TOO_LONG, "In short.", "Three.", session=session)
    talk.say("More.")
    result = run(talk, streamed)
    assert (result.stop_reason, result.text) == ("stable", "Three.")
    assert result.metrics.turns == 1
    assert talk.said == ["says In short.", "user More.", "says Three."]


def test_a_window_that_stays_exceeded_is_an_error_that_changes_nothing() -> None:
    talk = talked(TOO_LONG, ModelError("down", kind="overloaded"))
    talk.say("More.")
    result = run(talk)
    assert (result.stop_reason, result.notices[-1].code) == ("error", "context")
    assert talk.said == FULL


def test_without_anything_above_an_exceeded_window_is_an_error() -> None:
    talk = Talk(TOO_LONG)
    result = run(talk)
    assert (result.stop_reason, result.notices[-1].code) == ("error", "context")
    assert talk.said == ["user Go."]
    assert len(talk.model.requests) == 1


def test_if_what_is_to_be_summarised_is_itself_too_long_half_of_it_is() -> None:
    talk = talked(TOO_LONG, TOO_LONG, "In short.", "Three.")
    talk.say("More.")
    assert run(talk).text == "Three."
    assert talk.said == ["says In short.", "user More.", "says Two.", "user More.", "says Three."]


def test_room_is_made_again_as_long_as_that_helps() -> None:
    talk = talked(TOO_LONG, TOO_LONG, "Shorter.", TOO_LONG, "Shortest.", "Three.")
    talk.say("More.")
    assert run(talk).text == "Three."
    assert talk.said == ["says Shortest.", "user More.", "says Three."]


def test_an_answer_that_was_cut_off_is_not_taken_for_a_full_window() -> None:
    talk = talked(Reply((ReplyText("And so"),), "length"))
    talk.say("More.")
    assert run(talk).stop_reason == "length"
    assert talk.said == [*FULL, "says And so"]


def with_a_call() -> Talk:
    """The same, where the call of a tool fills the window."""
    call = Reply((ReplyCall("c1", "add", '{"a": 1, "b": 2}'),), "tool_calls", Usage(850, 10))
    return full(call, "In short.", "Three.", window=1_050)


@PATHS
def test_results_of_the_turn_under_way_are_never_summarised(streamed: bool) -> None:
    talk = with_a_call()
    assert run(talk, streamed).text == "Three."
    assert talk.said == ["says In short.", "user More.", "call add", "result 3", "says Three."]
    roles = [one["role"] for one in talk.model.requests[-1].messages]
    assert roles == ["assistant", "user", "assistant", "tool"]


def test_what_was_counted_before_a_summary_no_longer_counts() -> None:
    talk = with_a_call()
    talk.run(SessionOptions(process_tools=False))
    conversation = talk.conversation()
    assert tokens_of(conversation.request) >= 860
    asyncio.run(conversation.execute_special_turn(summarize()))
    assert talk.said == ["says In short.", "user More.", "call add"]
    assert tokens_of(conversation.request) < 100


def test_tokens_are_what_the_provider_counted_and_an_estimate_of_the_rest() -> None:
    talk = full(window=10_000)
    request = talk.conversation().request
    first = tokens_of(request)
    assert 810 <= first < 820
    talk.say("x" * 4_000)
    assert 1_000 <= tokens_of(request) - first <= 1_010


def test_tokens_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(window=1_000_000, say=None)
    for number in range(100):
        talk.say(f"Message {number}")
    request = talk.conversation().request
    tokens_of(request)
    read: list[object] = []
    monkeypatch.setattr(context, "_chars_of", lambda one: read.append(one) or 0)
    talk.say("One more.")
    tokens_of(request)
    assert len(read) == 1


class Library:
    """Gives the same items, and keeps what it was asked."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.needs: list[ContextNeed] = []

    async def provide(self, need: ContextNeed) -> tuple[Any, ...]:
        await asyncio.sleep(0)
        self.needs.append(need)
        return self.items


@PATHS
def test_contexts_go_into_the_prompt_and_onto_no_branch(streamed: bool) -> None:
    library = Library(ContextItem("Rope is strong.", "viking://rope"), "Knots\nhold.")
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three.", window=8_000)
    assert run(talk, streamed, contexts=[library]).text == "Three."
    said = "Context:\n  - Rope is strong.\n  - Knots\n    hold.\n\nGo."
    assert [one.messages[0]["content"] for one in talk.model.requests] == [said, said]
    assert talk.said == ["user Go.", "call add", "result 3", "says Three."]
    (need,) = library.needs  # asked once for an instruction
    assert (need.branch, need.instruction) == (talk.branch, talk.branch.messages[0])
    assert need.budget == 2_000
    told = [one for one in talk.conversation().history() if isinstance(one, ContextAdded)]
    assert [one.items for one in told] == [
        (Injection("Library", "viking://rope", 4), Injection("Library", None, 3))
    ]
    assert told[0].message_id == need.instruction.id


def test_contexts_keep_within_the_budget() -> None:
    big, small = "x" * 900, "small"
    talk = Talk("Yes.", window=1_000)
    run(talk, contexts=[Library(big, big, small)])
    said = talk.model.requests[0].messages[0]["content"]
    assert said.count("x" * 900) == 1
    assert "small" in said


def test_contexts_of_an_image_stand_before_it() -> None:
    talk = Talk("Yes.", say=None)
    picture = [TextPart("Look."), ImagePart("https://example.org/rope.png")]
    talk.session.add_message("user", picture, branches=talk.branch)
    run(talk, contexts=[Library("A fact.")])
    content = talk.model.requests[0].messages[0]["content"]
    assert content[0] == {"type": "text", "text": "Context:\n  - A fact."}
    assert content[1] == {"type": "text", "text": "Look."}


def test_a_context_provider_that_raises_is_a_warning() -> None:
    class Broken:
        def provide(self, need: ContextNeed) -> None:
            del need
            raise LookupError("no index")

    talk = Talk("Yes.")
    result = run(talk, contexts=[Broken(), Library("A fact.")])
    assert result.text == "Yes."
    assert [(one.code, one.text) for one in result.notices] == [
        ("context", "Broken raised LookupError: no index")
    ]
    assert "A fact." in talk.model.requests[0].messages[0]["content"]


def test_what_is_steered_in_is_a_new_need() -> None:
    library = Library("A fact.")

    def reply(_: ModelRequest) -> str:
        conversation.steer("And now?")
        return "One."

    talk = Talk(reply, "Two.")
    conversation = talk.conversation(contexts=[library])
    asyncio.run(conversation.run_to_stable_result())
    assert [in_short(one.instruction) for one in library.needs] == ["user Go.", "user And now?"]


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), "much", True])
def test_a_share_that_makes_no_sense_is_refused(share: Any) -> None:
    with pytest.raises(ValidationError, match="summarize_at"):
        SessionOptions(summarize_at=share)


def test_what_gives_no_context_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"is an object with provide\(need\)"):
        Talk().conversation(contexts=[object()])

"""Policies: every question and every answer passes them, streamed or not, or does not count."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sennit import PolicyError, RunError, SpecialTurn
from sennit.errors import InvalidTypeError
from sennit.events import DraftDropped, TextAdded
from sennit.services.models.reply import Reply, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.testing import ToolCall
from sennit.turns import Policy, Refusal
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk, ending, in_short, kinds
from tests.turns.test_observers import Recorder

PATHS = pytest.mark.parametrize("streamed", [False, True], ids=["asked", "streamed"])


def run(talk: Talk, streamed: bool, *policies: Any, **more: Any) -> Return:
    if streamed:
        return talk.stream(policies=policies, **more)[-1]
    return talk.run(policies=policies, **more)


class Adds(Policy):
    """Says something more to the model."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def on_request(self, request: ModelRequest) -> ModelRequest:
        await asyncio.sleep(0)
        more = {"role": "user", "content": self.text}
        return replace(request, messages=[*request.messages, more])


class Hides(Policy):
    """Replaces a word in answers."""

    def on_response(self, request: ModelRequest, reply: Reply) -> Reply | None:
        del request
        if "secret" not in reply.text:
            return None
        text = ReplyText(reply.text.replace("secret", "…"))
        return replace(reply, items=(text, *reply.calls))


class Forbids(Policy):
    """Refuses answers with a word in them."""

    def on_response(self, request: ModelRequest, reply: Reply) -> Refusal | None:
        del request
        return Refusal("it tells a secret") if "secret" in reply.text else None


@PATHS
def test_policies_change_the_request_one_after_another(streamed: bool) -> None:
    talk = Talk("Yes.")
    assert run(talk, streamed, Adds("One."), Adds("Two.")).text == "Yes."
    said = [one["content"] for one in talk.model.requests[0].messages]
    assert said == ["Go.", "One.", "Two."]
    assert talk.said == ["user Go.", "says Yes."]


@PATHS
def test_a_policy_changes_the_whole_reply(streamed: bool) -> None:
    talk = Talk(["A secret.", ToolCall("add", {"a": 1, "b": 2})], "Three.", chunk=1)
    result = run(talk, streamed, Hides())
    assert result.success
    assert talk.said == ["user Go.", "says A ….", "call add", "result 3", "says Three."]
    assert [in_short(one) for one in result.body.interactions] == talk.said[1:]


@PATHS
def test_a_reply_that_is_left_as_it_is_has_what_any_reply_has(streamed: bool) -> None:
    script = [["Hm.", ToolCall("add", {"a": 1, "b": 2}), "So."], "Three."]
    judged, plain = Talk(*script, chunk=2), Talk(*script, chunk=2)
    assert run(judged, streamed, Hides()).success
    run(plain, streamed)
    assert judged.said == plain.said
    notes = [[sorted(one.metadata) for one in talk.branch.messages] for talk in (judged, plain)]
    assert notes[0] == notes[1]


def test_what_was_shown_of_a_reply_that_was_changed_does_not_count() -> None:
    talk = Talk("A secret.", chunk=4)
    events = talk.events(policies=[Hides()])
    assert kinds(events) == [
        "run.started",
        "turn.started",
        "draft.dropped",
        "message.completed",
        "run.ended",
    ]
    shown = "".join(one.text for one in events if isinstance(one, TextAdded))
    assert shown == "A secret.A …."
    dropped = next(one.message_id for one in events if isinstance(one, DraftDropped))
    assert dropped != ending(events).body.interactions[0].id


@PATHS
def test_a_policy_refuses_a_request_before_it_is_sent(streamed: bool) -> None:
    class Never(Policy):
        def on_request(self, request: ModelRequest) -> Refusal:
            del request
            return Refusal("not today")

    watcher = Recorder()
    talk = Talk("Yes.")
    result = run(talk, streamed, Never(), observers=[watcher])
    assert result.stop_reason == "error"
    assert [(one.severity, one.code) for one in result.notices] == [("error", "refused")]
    assert result.notices[0].text == "Policy Never.on_request refused: not today"
    assert talk.model.requests == []
    assert talk.said == ["user Go."]
    assert watcher.calls == ["start", "error PolicyError", "final"]
    with pytest.raises(RunError) as raised:
        result.raise_for_error()
    assert isinstance(result.error, PolicyError)
    assert raised.value.__cause__ is None


@PATHS
def test_a_reply_that_is_refused_leaves_nothing(streamed: bool) -> None:
    talk = Talk(["A secret.", ToolCall("add", {"a": 1, "b": 2})], chunk=1)
    result = run(talk, streamed, Forbids())
    assert (result.stop_reason, result.notices[0].code) == ("error", "refused")
    assert result.body.interactions == ()
    assert talk.said == ["user Go."]


@PATHS
@pytest.mark.parametrize("hook", ["on_request", "on_response"])
def test_a_policy_that_raises_ends_the_run_with_a_clear_error(hook: str, streamed: bool) -> None:
    class Broken(Policy):
        pass

    def broken(*_: Any) -> None:
        raise ValueError("oops")

    setattr(Broken, hook, broken)
    talk = Talk("Yes.", chunk=1)
    result = run(talk, streamed, Broken())
    assert (result.stop_reason, result.notices[0].code) == ("error", "policy")
    assert result.notices[0].text == f"Policy Broken.{hook} raised ValueError: oops"
    assert talk.said == ["user Go."]


@PATHS
def test_a_policy_that_gives_something_else_ends_the_run(streamed: bool) -> None:
    class Odd:
        def on_response(self, *_: Any) -> str:
            return "fine"

    talk = Talk("Yes.")
    result = run(talk, streamed, Odd())
    assert result.notices[0].text == (
        "Policy Odd.on_response returned 'fine'; it must return a Reply, a Refusal, or None for "
        "no change."
    )


def test_a_judged_reply_that_is_cancelled_is_dropped() -> None:
    talk = Talk("A secret that is long.", chunk=1)
    conversation = talk.conversation(policies=[Forbids()])

    async def watch() -> list[Any]:
        events: list[Any] = []
        async with conversation.events() as seen:
            async for event in seen:
                events.append(event)
                if event.kind == "turn.started":
                    await asyncio.sleep(0)
                    conversation.cancel()
        return events

    result = ending(asyncio.run(watch()))
    assert result.stop_reason == "cancelled"
    assert talk.said == ["user Go."]


def test_special_turns_and_single_calls_pass_the_policies_too() -> None:
    talk = Talk("A secret.", "A secret.")
    conversation = talk.conversation(policies=[Hides()])
    turn = SpecialTurn(instruction="Tell.")
    assert asyncio.run(conversation.execute_special_turn(turn)).text == "A …."
    assert asyncio.run(conversation.request.exec()).text == "A …."


def test_policies_of_a_conversation_come_after_those_of_its_request() -> None:
    talk = Talk("Yes.")
    request = talk.conversation(policies=[Adds("One.")]).request
    result = ConversationSession(request, policies=[Adds("Two.")]).run()
    assert result.success
    assert [one["content"] for one in talk.model.requests[0].messages] == ["Go.", "One.", "Two."]


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"A policy has on_request or on_response"):
        Talk().conversation(policies=[object()])
    with pytest.raises(InvalidTypeError, match=r"policies must be a list"):
        Talk().conversation(policies=Policy())

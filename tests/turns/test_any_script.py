"""Whatever a model says, tools do and people interrupt: the history is one that can go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sennit.messages.prompt.repair import repair
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.services.models.providers.model import connect
from sennit.services.models.reply import CallDelta, Finished, ReasoningDelta, TextDelta
from sennit.services.models.request import ModelRequest
from sennit.testing import run_instantly
from sennit.turns.events import RunEnded
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk, ending
from tests.services.asking import asked
from tests.services.conftest import google_sdk as google_sdk
from tests.services.wire_server import (
    WireServer,
    answer,
    anthropic_message,
    completion,
    running,
)
from tests.turns import accepting
from tests.turns.playing import Played, Script, Speaker, scripts, tools


def told(talk: Talk) -> list[Any]:
    """What stands on the branch, ids left out, so that two runs can be compared."""
    whole = [message.content for message in talk.branch.messages]
    return [(type(one).__name__, one.to_dict() | {"call_id": 0, "request_id": 0}) for one in whole]


@given(scripts())
def test_any_script_ends_once_and_is_replayed_as_it_was_shown(script: Script) -> None:
    played = Played(script)
    conversation = played.talk.conversation()
    history = conversation.history()
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    assert [event.kind for event in history].count("run.ended") <= 1
    if history:
        assert isinstance(history[-1], RunEnded)
        assert history[: len(played.seen)] == played.seen or played.seen[-1].seq == 0
        assert conversation.replay(history[-1].run_id) == history
        said = list(history[-1].result.body.interactions)
        assert said == played.talk.branch.messages[1 : 1 + len(said)]
    ends = [one for one in played.watcher.ends if one != "delta"]
    assert ends in (["final"], ["error", "final"])
    assert played.watcher.ends[-len(ends) :] == ends


@given(scripts())
def test_any_script_leaves_a_history_that_can_go_on(script: Script) -> None:
    talk = Played(script).talk
    mended = repair(talk.branch.messages)
    assert repair(mended) == mended
    ends = [one.result for one in talk.conversation().history() if isinstance(one, RunEnded)]
    notices = {notice.code for end in ends for notice in end.notices}
    finished = all(end.stop_reason in ("stable", "length") for end in ends)
    if finished and "pending_tools" not in notices:
        said = [message.content for message in talk.branch.messages]
        assert mended == [content for content in said if not content.empty]
    talk.say("And now?")
    accepting.openai(to_model_messages(talk.session.messages, talk.branch))
    again = Played(Script([]), talk)
    assert ending(again.seen).success
    assert talk.said[-1] == "says Done."
    talk.say("And then?")
    accepting.openai(to_model_messages(talk.session.messages, talk.branch))


_HALVES = st.sampled_from(["\ud83d", "\ude00", "a\ud83d", "\ude00b", "c"])
_PIECES = st.one_of(
    _HALVES.map(TextDelta), _HALVES.map(ReasoningDelta), st.builds(CallDelta, st.integers(0, 1))
)


@given(
    st.lists(_PIECES, max_size=8).map(lambda pieces: Script([[*pieces, Finished("stop")]]))
    | scripts(undisturbed=True)
)
@example(Script([[TextDelta("half \ud83d"), TextDelta("\ude00 of it"), Finished("stop")]]))
def test_any_script_comes_to_the_same_in_every_view(script: Script) -> None:
    def fresh() -> Talk:
        talk = Talk(tools=tools())
        talk.session.services.register(Speaker(script.replies), replace=True)
        return talk

    async def streamed(talk: Talk) -> Any:
        async with talk.conversation().stream(script.options, PLAIN) as pieces:
            return [piece async for piece in pieces][-1]

    by_result, by_stream = fresh(), fresh()
    by_events = Played(script)
    results = [
        run_instantly(by_result.conversation().run_to_stable_result(script.options)),
        run_instantly(streamed(by_stream)),
        ending(by_events.seen),
    ]
    assert told(by_result) == told(by_stream) == told(by_events.talk)
    first, *others = [
        (one.stop_reason, one.notices, text(one), one.metrics.usage, one.metrics.turns)
        for one in results
    ]
    assert others == [first, first]


def text(result: Return) -> str:
    return Return(body=result.body).text


class Wire:
    """Three providers on loopback that take down what they are sent."""

    def __init__(self, server: WireServer) -> None:
        key = "key-of-the-test"
        self._server = server
        self._models = {
            "openai": connect("openai:wire-model", base_url=f"{server.url}/v1", api_key=key),
            "anthropic": connect("anthropic:claude-wire", base_url=server.url, api_key=key),
            "google": connect("google:gemini-2.5-flash", base_url=server.url, api_key=key),
        }

    def sent(self, provider: str, request: ModelRequest) -> dict[str, Any]:
        """The body the provider gets."""
        gemini = {"candidates": [{"content": {"parts": [{"text": "so"}]}, "finishReason": "STOP"}]}
        said = {
            "openai": completion("so"),
            "anthropic": anthropic_message({"type": "text", "text": "so"}),
            "google": gemini,
        }
        self._server.says(answer(said[provider]))
        assert asked(self._models[provider], request).text == "so"
        return self._server.asked.pop().body


@pytest.fixture(scope="module")
def wire(google_sdk: None) -> Iterator[Wire]:
    with pytest.MonkeyPatch.context() as patch, running() as server:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield Wire(server)


@pytest.mark.timeout(240)  # the SDKs of three providers take long to import
@settings(max_examples=settings().max_examples // 8)
@given(script=scripts())
def test_every_provider_is_sent_what_it_accepts(wire: Wire, script: Script) -> None:
    talk = Played(script).talk
    talk.say("And now?")
    request = ModelRequest(messages=to_model_messages(talk.session.messages, talk.branch))
    accepting.openai(wire.sent("openai", request)["messages"])
    accepting.anthropic(wire.sent("anthropic", request)["messages"])
    accepting.google(wire.sent("google", request)["contents"])

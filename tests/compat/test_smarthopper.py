"""Programs written for SmartHopper, in snake case."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import Message, Session
from sennit.compat.smarthopper import (
    AIRequestCall,
    ConversationObserver,
    ConversationSession,
    GreetingSpecialTurn,
    HistoryPersistenceStrategy,
    InteractionFilter,
    Return,
    SessionOptions,
    SpecialTurnConfig,
    StreamingOptions,
    SummarizeSpecialTurn,
    filter_tools,
)
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.content import InstructionContent
from sennit.testing import ScriptedModel, ToolCall
from sennit.testing.scripted_model import Scripted

pytestmark = pytest.mark.anyio

KEEP_ALL = HistoryPersistenceStrategy.PERSIST_ALL
EPHEMERAL = HistoryPersistenceStrategy.EPHEMERAL
REPLACE = HistoryPersistenceStrategy.REPLACE_ABOVE


class Recorder(ConversationObserver):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, request: Any) -> None:
        self.calls.append("start")

    def on_delta(self, interaction: Message) -> None:
        self.calls.append("delta")

    def on_interaction_completed(self, interaction: Message) -> None:
        self.calls.append(f"completed {interaction.content.words}")

    async def on_final(self, result: Return) -> None:
        self.calls.append(f"final {result.text}")


def script_run(code: str) -> str:
    """Run a script."""
    return code


def script_review(code: str) -> str:
    """Review a script."""
    return code


def delete_file(name: str) -> str:
    """Delete a file."""
    return name


class Setting:
    """A branch with an instruction, three registered tools and a scripted model."""

    def __init__(self, *replies: Scripted, tool_filter: str = "-*") -> None:
        self.model = ScriptedModel(list(replies), name="scripted")
        self.session = Session()
        self.session.services.register_all([self.model, script_run, script_review, delete_file])
        self.branch = self.session.create_branch("main", resources="*", system="Be brief.")
        self.session.add_message("user", "Go.", branches=self.branch)
        self.request = AIRequestCall(self.branch, model="scripted", tool_filter=tool_filter)
        self.observer = Recorder()
        self.conversation = ConversationSession(self.request, self.observer)

    @property
    def history(self) -> list[str]:
        return [message.content.words for message in self.branch.messages]


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("*", ["script_run", "script_review", "delete_file"]),
        ("-*", []),
        ("script_*", ["script_run", "script_review"]),
        ("* -delete_*", ["script_run", "script_review"]),
        ("-delete_*", ["script_run", "script_review"]),
        ("-*, script_run", ["script_run"]),
        ("script_?un delete_file", ["script_run", "delete_file"]),
        ("unknown", []),
    ],
)
def test_a_tool_filter_selects_by_pattern(pattern: str, selected: list[str]) -> None:
    assert filter_tools(pattern, ["script_run", "script_review", "delete_file"]) == selected
    assert list(Setting(tool_filter=pattern).request.tools) == selected


def test_a_tool_filter_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="'-\\*' for none"):
        filter_tools(" , ", ["a"])
    with pytest.raises(InvalidTypeError, match="string"):
        filter_tools(["*"], ["a"])  # pyright: ignore[reportArgumentType]


def test_a_tool_filter_reaches_only_granted_tools() -> None:
    setting = Setting()
    branch = setting.session.create_branch("narrow", resources={"scripted", "script_run"})
    assert list(AIRequestCall(branch, model="scripted", tool_filter="*").tools) == ["script_run"]


async def test_a_conversation_takes_its_observer_by_position() -> None:
    call: Scripted = [ToolCall("script_run", {"code": "x"})]
    setting = Setting(call, "Done.", "Again.", tool_filter="script_*")
    options = SessionOptions(max_turns=3, max_tool_passes=2)
    result = await setting.conversation.run_to_stable_result(options)
    assert result.text == "Done."
    assert setting.observer.calls[0] == "start"
    assert setting.observer.calls[-1] == "final Done."
    second = Recorder()
    several = ConversationSession(setting.request, [setting.observer, second])
    setting.session.add_message("user", "Again.", branches=setting.branch)
    await several.run_to_stable_result(options)
    assert setting.observer.calls[-1] == second.calls[-1] == "final Again."


async def test_observers_hear_of_a_special_turn_only_when_it_is_kept() -> None:
    setting = Setting("Hello, I am here.", "Never kept.")
    kept = SpecialTurnConfig(
        override_interactions=["Greet."], turn_type="greeting", metadata={"is_greeting": True}
    )
    result = await setting.conversation.execute_special_turn(kept, prefer_streaming=True)
    assert setting.observer.calls == ["completed Hello, I am here.", "final Hello, I am here."]
    assert setting.history == ["Be brief.", "Go.", "Hello, I am here."]
    (answer,) = result.body.interactions
    assert dict(setting.branch.messages[-1].metadata) == dict(answer.metadata)
    assert (answer.metadata["is_greeting"], answer.metadata["special_turn"]) == (True, "greeting")

    setting.observer.calls.clear()
    unseen = SpecialTurnConfig(override_interactions=["Check."], persistence_strategy=EPHEMERAL)
    assert (await setting.conversation.execute_special_turn(unseen)).text == "Never kept."
    assert setting.observer.calls == []


async def test_an_observer_that_raises_at_the_end_of_a_special_turn_is_a_warning() -> None:
    class Broken(ConversationObserver):
        def on_final(self, result: Return) -> None:
            raise RuntimeError("no disk")

    setting = Setting("Hello.")
    conversation = ConversationSession(setting.request, Broken())
    config = SpecialTurnConfig(override_interactions=["Greet."])
    result = await conversation.execute_special_turn(config)
    assert result.success
    assert "Broken raised RuntimeError: no disk" in repr(result)


async def test_all_of_a_special_turn_is_kept_but_system_messages_and_contexts() -> None:
    context = InstructionContent(context=["a fact"])
    asked = InstructionContent(instruction="Look.")
    for persistence_filter, expected in (
        (None, ["Be brief.", "Go.", "Look.", "Seen."]),
        (InteractionFilter.default().with_block("user"), ["Be brief.", "Go.", "Seen."]),
        (InteractionFilter().with_allow("user", "assistant").with_block("assistant"), None),
    ):
        setting = Setting("Seen.")
        config = SpecialTurnConfig(
            override_interactions=[context, asked],
            persistence_strategy=KEEP_ALL,
            persistence_filter=persistence_filter,
        )
        assert (await setting.conversation.execute_special_turn(config)).success
        assert setting.history == (expected or ["Be brief.", "Go.", "Look."])


async def test_a_special_turn_selects_its_tools_and_model_and_need_not_call_them() -> None:
    call: Scripted = [ToolCall("script_run", {"code": "x"})]
    setting = Setting(call, tool_filter="*")
    other = ScriptedModel(["Other."], name="other")
    setting.session.services.register(other)
    config = SpecialTurnConfig(
        override_interactions=["Run it."],
        override_tool_filter="script_*",
        process_tools=False,
        persistence_strategy=EPHEMERAL,
    )
    await setting.conversation.execute_special_turn(config)
    assert [tool.name for tool in setting.model.requests[0].tools] == [
        "script_run",
        "script_review",
    ]
    none = SpecialTurnConfig(
        override_interactions=["Say it."],
        override_provider="other",
        override_tool_filter="-*",
        force_non_streaming=True,
    )
    result = await setting.conversation.execute_special_turn(none, prefer_streaming=True)
    assert result.text == "Other."
    assert other.requests[0].tools == ()


async def test_a_summary_replaces_what_is_above_and_keeps_the_system_message() -> None:
    setting = Setting("Done.", "A summary.")
    await setting.conversation.run_to_stable_result()
    summary = SummarizeSpecialTurn.create("scripted")
    assert (await setting.conversation.execute_special_turn(summary)).success
    assert setting.history == ["Be brief.", "A summary."]
    assert setting.observer.calls[-1] == "final A summary."


def test_a_special_turn_runs_without_an_event_loop_as_well() -> None:
    setting = Setting("Hello.")
    config = SpecialTurnConfig(override_interactions=["Greet."])
    assert setting.conversation.execute_special_turn_sync(config).text == "Hello."
    assert setting.observer.calls[-1] == "final Hello."


def test_greetings_and_summaries_have_the_time_limits_of_smarthopper() -> None:
    assert GreetingSpecialTurn.create("scripted", "Be kind.").timeout == 30.0
    assert SummarizeSpecialTurn.create().timeout == 60.0
    request = Setting().request
    assert SpecialTurnConfig(timeout_ms=1500).on(request).timeout == 1.5
    assert SpecialTurnConfig(persistence_strategy=REPLACE).on(request).filter is None


async def test_a_stream_takes_both_options_by_position() -> None:
    setting = Setting("Hello there.")
    streaming = StreamingOptions(
        coalesce_tokens=True, coalesce_delay_ms=40, preferred_chunk_size=24
    )
    seen = [delta async for delta in setting.conversation.stream(SessionOptions(), streaming)]
    assert seen[-1].text == "Hello there."

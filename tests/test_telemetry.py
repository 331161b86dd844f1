"""Spans and log lines: what those see who watch, and that nobody pays or tells unasked."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import sennit
from sennit import ModelError, telemetry
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText, Usage
from sennit.testing import ScriptedModel, ToolCall
from tests.conducting import result_of, session_with
from tests.conversation_fixtures import Talk, add

SECRET = "xyzzy"
SUM = ToolCall("add", {"a": 40, "b": 2}, "c1")


class Spans:
    """What a program with OpenTelemetry set up would export."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        """All spans, the one that began first first."""
        return sorted(self._exporter.get_finished_spans(), key=lambda one: one.start_time or 0)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.all]

    def of(self, name: str) -> dict[str, Any]:
        """The attributes of the only span with that name."""
        [found] = [span for span in self.all if span.name == name]
        return noted(found)


def noted(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return {**(span.attributes or {})}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    # A provider can be set once per process; a test puts its own in place for as long as it lasts.
    found = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    return found


def test_a_run_is_a_span_with_its_model_calls_and_tool_calls_inside(spans: Spans) -> None:
    Talk([SUM], "42.").run()
    run, first, tool, second = spans.all
    assert spans.names == [
        "invoke_agent assistant",
        *["chat scripted", "execute_tool add", "chat scripted"],
    ]
    assert run.parent is None
    for inner in (first, tool, second):
        assert inner.parent is not None
        assert run.context is not None
        assert inner.parent.span_id == run.context.span_id
    kinds = [span.kind for span in spans.all]
    assert kinds == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.CLIENT]


def test_a_run_tells_what_it_used_and_how_it_ended(spans: Spans) -> None:
    talk = Talk([SUM], Reply((ReplyText("42."),), "stop", Usage(10, 5, 4, 3, 0.5), "deep-1"))
    result = talk.run()
    told = spans.of("invoke_agent assistant")
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.agent.name"] == "assistant"
    assert told["gen_ai.conversation.id"] == str(talk.session.id)
    assert told["sennit.branch.id"] == str(talk.branch.id)
    assert told["sennit.run.id"] == str(result.run_id)
    assert told["sennit.run.stop_reason"] == "stable"
    assert (told["sennit.run.turns"], told["sennit.run.tool_calls"]) == (2, 1)
    assert told["gen_ai.usage.input_tokens"] == result.metrics.usage.input_tokens
    assert told["gen_ai.usage.cache_read.input_tokens"] == 4
    assert told["sennit.usage.cost"] == 0.5
    assert told["gen_ai.response.model"] == "deep-1"
    assert "error.type" not in told


@pytest.mark.parametrize("streaming", [True, False])
def test_a_model_call_tells_who_was_asked_how_and_what_it_took(
    spans: Spans, streaming: bool
) -> None:
    reply = Reply(
        (ReplyReasoning("Hm."), ReplyText("Hi")), "length", Usage(7, 3, 0, 2), "gpt-5-mini"
    )
    session = session_with(ScriptedModel([reply], "openai:gpt-5"))
    session.add_message("user", "Hello", branches="main")
    conversation = session.conversation(
        "main", model="openai:gpt-5", temperature=0.5, stop=["END"], max_tokens=9
    )
    if streaming:
        with conversation.stream() as pieces:
            list(pieces)
    else:
        conversation.run()
    told = spans.of("chat gpt-5")
    assert (told["gen_ai.provider.name"], told["gen_ai.request.model"]) == ("openai", "gpt-5")
    assert told["gen_ai.conversation.id"] == str(session.id)
    assert told["gen_ai.request.temperature"] == 0.5
    assert told["gen_ai.request.stop_sequences"] == ("END",)
    assert told["gen_ai.request.max_tokens"] == 9
    assert told["gen_ai.response.model"] == "gpt-5-mini"
    assert told["gen_ai.response.finish_reasons"] == ("length",)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)
    assert told["gen_ai.usage.reasoning.output_tokens"] == 2
    assert told.get("gen_ai.request.stream", False) is streaming


def test_a_tool_call_tells_its_name_and_call(spans: Spans) -> None:
    talk = Talk([SUM], "42.")
    talk.run()
    assert spans.of("execute_tool add") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": str(talk.session.id),
    }


@pytest.mark.parametrize(
    ("replies", "name", "kind"),
    [
        ([ModelError("gone", kind="network")], "chat scripted", "network"),
        ([ModelError("gone", kind="network")], "invoke_agent assistant", "network"),
        ([[ToolCall("fail", {"reason": SECRET})], "Oh."], "execute_tool fail", "RuntimeError"),
        ([[ToolCall("add", {"a": SECRET})], "Oh."], "execute_tool add", "ToolError"),
        ([Reply((ReplyText("On"),), "length")], "invoke_agent assistant", "length"),
    ],
)
def test_a_failure_is_told_by_its_kind(
    spans: Spans, replies: list[Any], name: str, kind: str
) -> None:
    Talk(*replies).run()
    assert spans.of(name)["error.type"] == kind
    [found] = [span for span in spans.all if span.name == name]
    assert found.status.status_code is StatusCode.ERROR
    assert found.status.description is None
    assert not found.events


def test_a_cancelled_run_is_told_and_no_failure(spans: Spans) -> None:
    async def cancelled() -> None:
        talk = Talk("A long answer. " * 50, chunk=2)
        conversation = talk.conversation()
        async with conversation.stream() as pieces:
            async for _ in pieces:
                conversation.cancel()

    asyncio.run(cancelled())
    told = spans.of("invoke_agent assistant")
    assert told["sennit.run.stop_reason"] == "cancelled"
    assert "error.type" not in told


def test_writes_to_a_store_are_spans_of_the_run(spans: Spans, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client:
        Talk("Hi.", session=client.session("chat")).run()
    writes = [noted(one) for one in spans.all if one.name == "sennit.store_write"]
    assert sum(one["sennit.store.messages"] for one in writes) == 1
    assert sum(one["sennit.store.events"] for one in writes) == 4
    assert len({one.context and one.context.trace_id for one in spans.all}) == 1


@pytest.mark.parametrize("operation", ["generate", "communicate", "operate"])
def test_operations_are_watched_too(spans: Spans, operation: str) -> None:
    session = session_with(ScriptedModel(["Hi."]))
    given = {"messages": "Hello"} if operation == "generate" else {"instruction": "Hello"}
    result_of(session, operation, **given)
    assert spans.names[-1] == "chat scripted"


def test_services_asked_directly_are_watched_too(spans: Spans) -> None:
    session = session_with(ScriptedModel(["Hi."]), add)
    asyncio.run(session.request("scripted", messages="Hello"))
    asyncio.run(session.request("add", a=1, b=2))
    assert spans.names == ["chat scripted", "execute_tool add"]


def _say_the_secret() -> None:
    call = ToolCall("add", {"a": 1, "b": 2, SECRET: SECRET}, "c1")
    talk = Talk([SECRET, call], [ToolCall("fail", {"reason": SECRET}, "c2")], SECRET, say=SECRET)
    talk.run()
    talk = Talk(ModelError(SECRET, kind="auth"), say=SECRET)
    talk.run(extra_headers={"Authorization": SECRET}, extra_body={"key": SECRET}, stop=["END"])


def test_what_was_said_is_not_told(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sennit"):
        _say_the_secret()
    assert len(spans.all) >= 7
    assert len(caplog.records) >= 7
    for span in spans.all:
        assert SECRET not in span.to_json()
    for record in caplog.records:
        assert SECRET not in repr(vars(record))


def test_what_was_said_is_told_if_asked_for(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENNIT_TELEMETRY_CONTENT", "true")
    Talk(["Hm.", SUM], "42.", say="40 + 2?").run()
    first, second = (noted(one) for one in spans.all if one.name == "chat scripted")
    assert json.loads(first["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "40 + 2?"}]}
    ]
    [said] = json.loads(first["gen_ai.output.messages"])
    assert said["parts"] == [
        {"type": "text", "content": "Hm."},
        {"type": "tool_call", "id": "c1", "name": "add", "arguments": '{"a":40,"b":2}'},
    ]
    parts = [part for one in json.loads(second["gen_ai.input.messages"]) for part in one["parts"]]
    assert [part["type"] for part in parts] == [
        "text",
        "text",
        "tool_call",
        "tool_call_response",
    ]
    tool = spans.of("execute_tool add")
    assert tool["gen_ai.tool.call.arguments"] == '{"a":40,"b":2}'
    assert tool["gen_ai.tool.call.result"] == "42"


def test_headers_and_bodies_are_not_told_even_then(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENNIT_TELEMETRY_CONTENT", "1")
    Talk("Hi.").run(extra_headers={"Authorization": SECRET}, extra_body={"key": SECRET})
    assert all(SECRET not in span.to_json() for span in spans.all)


def test_log_lines_have_stable_names_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sennit"):
        talk = Talk([SUM], "42.")
        result = talk.run()
    lines = [(record.getMessage(), record.levelname) for record in caplog.records]
    assert lines == [
        ("sennit.model_call", "DEBUG"),
        ("sennit.tool_call", "DEBUG"),
        ("sennit.model_call", "DEBUG"),
        ("sennit.run", "INFO"),
    ]
    told = vars(caplog.records[-1])
    assert (told["event"], told["name"]) == ("sennit.run", "sennit")
    assert told["sennit.run.id"] == str(result.run_id)
    assert told["sennit.run.stop_reason"] == "stable"
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["sennit.seconds"] >= 0


def test_a_failure_is_a_warning_with_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sennit"):
        Talk(ModelError("gone", kind="network")).run()
    assert [(one.levelname, vars(one)["error.type"]) for one in caplog.records] == [
        ("WARNING", "network"),
        ("WARNING", "network"),
    ]


def test_unless_asked_there_are_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    Talk([SUM], [ToolCall("fail", {"reason": "x"})], ModelError("gone")).run()
    assert [record for record in caplog.records if record.name.startswith("sennit")] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai:gpt-5", ("openai", "gpt-5")),
        ("google:gemini-3", ("gcp.gemini", "gemini-3")),
        ("ollama:llama3.2:1b", ("ollama", "llama3.2:1b")),
        ("local", ("local", "local")),
    ],
)
def test_the_provider_is_named_as_the_conventions_name_it(name: str, told: tuple[str, str]) -> None:
    assert telemetry.provider_and_model(name) == told


def test_nothing_is_loaded_or_made_when_nobody_watches() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
import sennit
assert "sennit.telemetry" not in sys.modules
from sennit import telemetry
from sennit.testing import ScriptedModel

telemetry.watching = None  # whoever would watch fails
session = sennit.Session()
session.services.register(ScriptedModel(["Hi."]))
branch = session.create_branch("main", resources="*")
session.add_message("user", "Hello", branches=branch)
assert session.conversation(branch, model="scripted").run().success
assert not telemetry.on()
print([name for name in sys.modules if name.startswith("opentelemetry.")])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_the_package_without_anyone_to_export_to_is_off() -> None:
    assert not telemetry.on()  # this file has imported it, and set up nothing


def test_a_special_turn_is_a_run_of_its_own(spans: Spans) -> None:
    talk = Talk("Rope.")
    turn = sennit.SpecialTurn(instruction="In a word?")
    assert asyncio.run(talk.conversation().execute_special_turn(turn)).answer == "Rope."
    assert spans.names == ["invoke_agent assistant", "chat scripted"]
    assert spans.of("invoke_agent assistant")["gen_ai.conversation.id"] == str(talk.session.id)

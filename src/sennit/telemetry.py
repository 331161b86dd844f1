"""Telemetry: OpenTelemetry spans and log lines.

Spans are created once the program has set a tracer provider, log lines once the logger "sennit" is
enabled for INFO or DEBUG. Until then nothing is created or imported, and the check is cheap. Spans
and log lines share the attribute names defined here: those of the GenAI semantic conventions, and
names under `sennit.` where the conventions have none.

Message text, tool arguments and results are included only with SENNIT_TELEMETRY_CONTENT; keys,
headers and error messages never are.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from sennit.settings import telemetry_content

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
STREAM = "gen_ai.request.stream"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"
COST = "sennit.usage.cost"
BRANCH = "sennit.branch.id"
RUN = "sennit.run.id"
STOP_REASON = "sennit.run.stop_reason"
TURNS = "sennit.run.turns"
TOOL_CALLS = "sennit.run.tool_calls"
MESSAGES = "sennit.store.messages"
EVENTS = "sennit.store.events"
SECONDS = "sennit.seconds"

# Only with content().
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

REQUEST_PARAMS: Mapping[str, str] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "stop": "gen_ai.request.stop_sequences",
    "seed": "gen_ai.request.seed",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""The model parameters that are recorded, and their attribute names."""

_PROVIDERS: Mapping[str, str] = {
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "grok": "x_ai",
    "azure": "azure.ai.openai",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of traced operation."""

    name: str
    """The prefix of the span's name; the operation name of the conventions, if they have one."""
    event: str
    """The message of the log line, always the same."""
    level: int = logging.DEBUG
    """The level of the log line on success; failures are warnings."""
    span: Literal["CLIENT", "INTERNAL"] = "INTERNAL"

    @property
    def notes(self) -> dict[str, Any]:
        """The attributes common to all operations of this kind."""
        return {} if self.name.startswith("sennit.") else {OPERATION: self.name}


INVOKE_AGENT = Kind("invoke_agent", "sennit.run", logging.INFO)
CHAT = Kind("chat", "sennit.model_call", span="CLIENT")
EXECUTE_TOOL = Kind("execute_tool", "sennit.tool_call")
STORE_WRITE = Kind("sennit.store_write", "sennit.store_write")

_LOG = logging.getLogger("sennit")
_LOG.addHandler(logging.NullHandler())  # without logging configured, nothing is printed
_CONFIGURED_BY_ENVIRONMENT = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
_cached_tracer: tuple[Any, Tracer] | None = None


def on() -> bool:
    """Return whether spans or log lines are enabled."""
    return _LOG.isEnabledFor(logging.INFO) or _tracer() is not None


def content() -> bool:
    """Return whether telemetry may contain message text."""
    return telemetry_content()


def provider_and_model(name: str) -> tuple[str, str]:
    """Split a model's name into the conventions' provider name and the model name."""
    provider, colon, model = name.partition(":")
    return (_PROVIDERS.get(provider, provider), model) if colon else (name, name)


class Span:
    """The attributes of a running operation, exported when it ends."""

    __slots__ = ("notes",)

    def __init__(self, notes: dict[str, Any]) -> None:
        self.notes = notes

    def set_attributes(self, notes: Mapping[str, Any]) -> None:
        """Add attributes, except those that are None or empty."""
        self.notes.update((name, value) for name, value in notes.items() if value not in (None, ""))

    def fail(self, kind: str) -> None:
        """Mark the operation as failed; `kind` is of low cardinality."""
        self.notes[ERROR] = kind


@contextmanager
def traced(kind: Kind, subject: str, notes: Mapping[str, Any]) -> Generator[Span]:
    """Trace the block as a span and a log line; an exception is recorded by its kind alone."""
    span = Span(kind.notes)
    span.set_attributes(notes)
    began = perf_counter()
    with _span(kind, subject, span):
        try:
            yield span
        except BaseException as error:
            span.fail(error_kind(error))
            raise
        finally:
            _log(kind, span, perf_counter() - began)


def error_kind(error: BaseException) -> str:
    """Return the kind or the type name of an error, without its message."""
    return str(getattr(error, "kind", None) or type(error).__name__)


def _log(kind: Kind, span: Span, seconds: float) -> None:
    level = logging.WARNING if ERROR in span.notes else kind.level
    if _LOG.isEnabledFor(level):
        fields = {"event": kind.event, SECONDS: round(seconds, 6), **span.notes}
        _LOG.log(level, kind.event, extra=fields)


@contextmanager
def _span(kind: Kind, subject: str, span: Span) -> Generator[None]:
    tracer = _tracer()
    if tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode

    with tracer.start_as_current_span(
        f"{kind.name} {subject}".rstrip(),
        kind=SpanKind[kind.span],
        attributes=span.notes,
        record_exception=False,  # its message may quote message text
        set_status_on_exception=False,
    ) as otel_span:
        try:
            yield
        finally:
            otel_span.set_attributes(span.notes)
            if ERROR in span.notes:
                otel_span.set_status(StatusCode.ERROR)


def _tracer() -> Tracer | None:
    """Return the tracer of the program's provider; None without one.

    A program that sets a provider has imported the package, so this does not import it.
    """
    global _cached_tracer
    trace = sys.modules.get("opentelemetry.trace")
    # get_tracer_provider() reads the environment each time, which is slow without a provider.
    if trace is None or (
        getattr(trace, "_TRACER_PROVIDER", trace) is None and not _CONFIGURED_BY_ENVIRONMENT
    ):
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    if _cached_tracer is None or _cached_tracer[0] is not provider:
        _cached_tracer = (provider, provider.get_tracer("sennit", version("sennit")))
    return _cached_tracer[1]

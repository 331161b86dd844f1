"""Telemetry: OpenTelemetry spans and log lines.

The program decides whether anyone watches: there are spans once it has set up a tracer provider,
lines once the logger "sennit" may speak at INFO or DEBUG. Until then nothing is made, no package is
loaded, and asking costs a look or two. Spans and lines share one vocabulary, which stands here and
nowhere else: the GenAI semantic conventions, and names under `sennit.` where they have none.

What was said, tool arguments and results included, is left out unless SENNIT_TELEMETRY_CONTENT asks
for it; keys, headers and the texts of errors are never told.
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

# Told only with content().
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
"""The parameters of models that are told, and under which names; any other is not."""

_PROVIDERS: Mapping[str, str] = {
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "grok": "x_ai",
    "azure": "azure.ai.openai",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work that is watched."""

    name: str
    """The name of a span begins with it; what the conventions call the operation, if they do."""
    event: str
    """The message of its line, always the same."""
    level: int = logging.DEBUG
    """How loud that line is, if all went well; otherwise it is a warning."""
    span: Literal["CLIENT", "INTERNAL"] = "INTERNAL"

    @property
    def notes(self) -> dict[str, Any]:
        """The attributes common to all work of the kind."""
        return {} if self.name.startswith("sennit.") else {OPERATION: self.name}


INVOKE_AGENT = Kind("invoke_agent", "sennit.run", logging.INFO)
CHAT = Kind("chat", "sennit.model_call", span="CLIENT")
EXECUTE_TOOL = Kind("execute_tool", "sennit.tool_call")
STORE_WRITE = Kind("sennit.store_write", "sennit.store_write")

_LOG = logging.getLogger("sennit")
_LOG.addHandler(logging.NullHandler())  # who has set up no logging sees no warnings of ours either
_BY_ENVIRONMENT = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
_known: tuple[Any, Tracer] | None = None


def on() -> bool:
    """Return whether anyone watches."""
    return _LOG.isEnabledFor(logging.INFO) or _tracer() is not None


def content() -> bool:
    """Return whether what was said may be told."""
    return telemetry_content()


def provider_and_model(name: str) -> tuple[str, str]:
    """The provider in a model's name, as the conventions call it, and the name behind it."""
    provider, colon, model = name.partition(":")
    return (_PROVIDERS.get(provider, provider), model) if colon else (name, name)


class Span:
    """Work that is being watched; what it notes is told when it is over."""

    __slots__ = ("notes",)

    def __init__(self, notes: dict[str, Any]) -> None:
        self.notes = notes

    def note(self, notes: Mapping[str, Any]) -> None:
        """Tell more about it; what is None or empty is left out."""
        self.notes.update((name, value) for name, value in notes.items() if value not in (None, ""))

    def fail(self, kind: str) -> None:
        """It did not end well; `kind` is a word out of few."""
        self.notes[ERROR] = kind


@contextmanager
def watching(kind: Kind, subject: str, notes: Mapping[str, Any]) -> Generator[Span]:
    """Watch what is done in the block; what it raises is told by its type alone."""
    watched = Span(kind.notes)
    watched.note(notes)
    began = perf_counter()
    with _span(kind, subject, watched):
        try:
            yield watched
        except BaseException as error:
            watched.fail(error_kind(error))
            raise
        finally:
            _log(kind, watched, perf_counter() - began)


def error_kind(error: BaseException) -> str:
    """A word for what went wrong, which tells nothing of what was said."""
    return str(getattr(error, "kind", None) or type(error).__name__)


def _log(kind: Kind, watched: Span, seconds: float) -> None:
    level = logging.WARNING if ERROR in watched.notes else kind.level
    if _LOG.isEnabledFor(level):
        told = {"event": kind.event, SECONDS: round(seconds, 6), **watched.notes}
        _LOG.log(level, kind.event, extra=told)


@contextmanager
def _span(kind: Kind, subject: str, watched: Span) -> Generator[None]:
    tracer = _tracer()
    if tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode

    with tracer.start_as_current_span(
        f"{kind.name} {subject}".rstrip(),
        kind=SpanKind[kind.span],
        attributes=watched.notes,
        record_exception=False,  # its text may quote what was said
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        finally:
            span.set_attributes(watched.notes)
            if ERROR in watched.notes:
                span.set_status(StatusCode.ERROR)


def _tracer() -> Tracer | None:
    """The tracer of the provider the program has set up; None if it has set up none.

    Who sets one up has loaded the package, so nobody else needs to.
    """
    global _known
    trace = sys.modules.get("opentelemetry.trace")
    # The public way to ask reads the environment each time, which takes longer than all the rest.
    if trace is None or (getattr(trace, "_TRACER_PROVIDER", trace) is None and not _BY_ENVIRONMENT):
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    if _known is None or _known[0] is not provider:
        _known = (provider, provider.get_tracer("sennit", version("sennit")))
    return _known[1]

"""/v1/completions, the older API: the prompt is sent as a user's message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from sennit import clock
from sennit.messages.content import InstructionContent, MessageRole
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, Routes
from sennit.server.http.errors import HTTPError, bad_param
from sennit.server.http.event_stream import sse_event
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat import finish_reason, usage
from sennit.server.openai.chat_schemas import CommonRequest, refuse_unsupported
from sennit.server.openai.locate import BranchLocation
from sennit.server.openai.requests import answer_history
from sennit.server.openai.tool_schemas import Function
from sennit.server.openai.translate import ClientMessages, ModelAnswer
from sennit.server.openai.turn import raise_for_failure
from sennit.services.models.reply import Usage
from sennit.turns.events import AnyEvent, RunEnded, TextAdded

routes: Final = Routes()


class CompletionRequest(CommonRequest, kw_only=True):
    """The body of POST /v1/completions."""

    texts: str | list[str] = msgspec.field(name="prompt")
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    # Refused unless they ask for nothing:
    best_of: Any = None
    echo: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    n: Any = None
    suffix: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters of the request."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": self.stop or None,
            "seed": self.seed,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
        }

    @property
    def client_functions(self) -> list[Function]:
        """The functions that the model may call: none."""
        return []

    @property
    def format(self) -> None:
        """The requested format of the answer: text."""


@routes.post("/v1/completions", scope="run")
async def complete(request: HTTPRequest, body: CompletionRequest) -> Response:
    """Answer a prompt, as OpenAI's older API does."""
    refuse_unsupported(body)
    prompts = [body.texts] if isinstance(body.texts, str) else body.texts
    if len(prompts) != 1 or not prompts[0]:
        raise bad_param("prompt", "'prompt' must be one text that is not empty.")
    content = InstructionContent(instruction=prompts[0])
    sent = ClientMessages(None, (Message(content, sender=MessageRole.USER),))
    return await answer_history(request, body, sent, partial(TextChunks, body))


class TextChunks:
    """The format of a completion, whole or as chunks."""

    end = b"data: [DONE]\n\n"

    def __init__(self, body: CompletionRequest, location: BranchLocation) -> None:
        options = body.stream_options
        self._include_usage = options is not None and bool(options.include_usage)
        self._head = {
            "id": f"cmpl-{location.new_messages[0].id.hex if location.new_messages else 0}",
            "object": "text_completion",
            "created": clock.now_us() // 1_000_000,
            "model": body.model,
        }

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as a completion object."""
        choice = self._choice(answer.text, finish_reason(answer.finish_reason, calls=False))
        return {**choice, "usage": usage(answer.usage)}

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Yield the chunks of an event, encoded; raise HTTPError if the run failed."""
        if isinstance(event, TextAdded):
            yield sse_event(self._choice(event.text, None))
        elif isinstance(event, RunEnded):
            metrics = raise_for_failure(event.result).metrics
            yield sse_event(self._choice("", finish_reason(metrics.finish_reason, calls=False)))
            if self._include_usage:
                yield sse_event(self._usage(metrics.usage))

    def encode_error(self, problem: HTTPError) -> bytes:
        """Return the event that ends a failed answer."""
        return sse_event(problem.to_dict())

    def _choice(self, text: str, finish: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return {**self._head, "choices": [choice]}

    def _usage(self, used: Usage) -> Mapping[str, Any]:
        return {**self._head, "choices": [], "usage": usage(used)}

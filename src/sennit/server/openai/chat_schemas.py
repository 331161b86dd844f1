"""Request schemas of chat completions, and the handling of each parameter.

A parameter is supported, or is known not to affect the answer, or is rejected by name unless its
value is neutral; none is ignored silently. Unknown fields inside messages are accepted, because
clients send earlier answers back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from sennit.errors import ValidationError
from sennit.server.http.endpoint import RequestModel
from sennit.server.http.errors import bad_param
from sennit.server.openai.files import AudioFields, FileFields
from sennit.server.openai.tool_schemas import (
    ChatCustomTool,
    ChatFunctionTool,
    ChosenAmongChatTools,
    ChosenCustomTool,
    ChosenFunctionTool,
    Function,
    ToolChoice,
    forced_choice,
    offered_functions,
)
from sennit.services.models.params import check_params
from sennit.turns.options import WhenBusy


class ChatTextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text in the content of a message."""

    text: str


class RefusalPart(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """A refusal in the content of a message."""

    refusal: str


class ImageAddress(msgspec.Struct, frozen=True):
    """The URL of an image."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ImageUrlPart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image in the content of a message."""

    image_url: ImageAddress


class ChatFile(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    """A file in the content of a message."""

    file: FileFields


class InputAudio(msgspec.Struct, frozen=True, tag_field="type", tag="input_audio"):
    """A recording in the content of a message."""

    input_audio: AudioFields


UserPart: TypeAlias = ChatTextPart | ImageUrlPart | ChatFile | InputAudio


class FunctionCall(msgspec.Struct, frozen=True):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str = ""


class CustomCall(msgspec.Struct, frozen=True):
    """A custom tool and its input."""

    name: str
    input: str


class ChatToolCall(msgspec.Struct, frozen=True):
    """A tool call of a model, of a function or a custom tool."""

    id: str
    function: FunctionCall | None = None
    custom: CustomCall | None = None
    type: Literal["function", "custom"] = "function"


class SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """A system message."""

    content: str | list[ChatTextPart]


class DeveloperMessage(msgspec.Struct, frozen=True, tag_field="role", tag="developer"):
    """A developer message, the newer name of a system message."""

    content: str | list[ChatTextPart]


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """A user message."""

    content: str | list[UserPart]
    name: str | None = None


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An assistant message with its tool calls."""

    content: str | list[ChatTextPart | RefusalPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    refusal: str | None = None
    function_call: Any = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """A tool message."""

    tool_call_id: str
    content: str | list[UserPart]


ChatMessage: TypeAlias = (
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
)


class JsonSchema(msgspec.Struct, frozen=True):
    """The JSON schema of an answer."""

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Plain text, the default format of an answer."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """An answer that is a JSON object."""


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """An answer that follows a schema."""

    json_schema: JsonSchema


AnswerFormat: TypeAlias = TextFormat | JsonObjectFormat | JsonSchema


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Mapping[str, str] = {
    "none": "off",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""OpenAI's reasoning efforts and ours."""


_WITHOUT_EFFECT = (
    "include",
    "max_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream_options.include_obfuscation",
    "text.verbosity",
    "truncation",
    "user",
    "verbosity",
)
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "service_tier": ("auto", "default"),
    "truncation": ("disabled",),
}


def set_params(body: object, names: Iterable[str]) -> list[str]:
    """Return those of the names of parameters, such as "text.verbosity", that ask for something."""
    found: list[str] = []
    for name in names:
        value = body
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is not None and value not in _DEFAULTS.get(name, ()):
            found.append(name)
    return found


class CommonRequest(RequestModel, kw_only=True):
    """Parameters that both endpoints accept; gateways add fields of their own."""

    takes_unknown: ClassVar[bool] = True
    model: str
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    stream: bool | None = None
    when_busy: WhenBusy = "error"
    """Ours: what happens if another run is active on the branch of a `conversation`."""
    stream_options: StreamOptions | None = None
    # Taken without effect, and noted in the response:
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    user: Any = None
    # Refused unless they ask for nothing:
    moderation: Any = None
    top_logprobs: Any = None

    @property
    def without_effect(self) -> list[str]:
        """The parameters that are set and change nothing."""
        return set_params(self, _WITHOUT_EFFECT)


class ChatCompletionRequest(CommonRequest, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: list[ChatMessage]
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: ReasoningEffort | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    tool_choice: (
        Literal["none", "auto", "required"]
        | ChosenFunctionTool
        | ChosenCustomTool
        | ChosenAmongChatTools
        | None
    ) = None
    tools: list[ChatFunctionTool | ChatCustomTool] | None = None
    # Refused unless they ask for nothing:
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    logit_bias: Any = None
    logprobs: Any = None
    modalities: Any = None
    n: Any = None
    web_search_options: Any = None
    # Taken without effect, and noted in the response:
    prediction: Any = None
    verbosity: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters of the request."""
        effort = self.reasoning_effort
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": _first(self.max_completion_tokens, self.max_tokens),
            "stop": self.stop or None,
            "seed": self.seed,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "tool_choice": self._choice,
            "reasoning": None if effort is None else EFFORTS[effort],
        }

    @property
    def client_functions(self) -> list[Function]:
        """The functions that the model may call."""
        return offered_functions(self._tool_choice, [tool.function for tool in self.tools or ()])

    @property
    def custom_tools(self) -> frozenset[str]:
        """The names of the custom tools."""
        tools = self.tools or ()
        return frozenset(tool.custom.name for tool in tools if isinstance(tool, ChatCustomTool))

    @property
    def format(self) -> AnswerFormat | None:
        """The requested format of the answer."""
        format = self.response_format
        return format.json_schema if isinstance(format, JsonSchemaFormat) else format

    @property
    def _tool_choice(self) -> ToolChoice:
        """The choice of tools, unwrapped."""
        choice = self.tool_choice
        if isinstance(choice, ChosenFunctionTool | ChosenCustomTool):
            return choice.function
        return choice.allowed_tools if isinstance(choice, ChosenAmongChatTools) else choice

    @property
    def _choice(self) -> str | list[str] | None:
        return forced_choice(self._tool_choice, [tool.function.name for tool in self.tools or ()])


def _first(newer: Any, older: Any) -> Any:
    """Return the newer of two parameters for the same value, if it is set."""
    return older if newer is None else newer


def checked_values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that are set; raise HTTPError 400 for an invalid value."""
    values = {name: value for name, value in params.items() if value is not None}
    for name, value in values.items():
        try:
            check_params({name: value})
        except ValidationError as error:
            raise bad_param(name, str(error)) from None
    return values


_NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "access_programs": (),
    "audio": (),
    "best_of": (1,),
    "context_management": ([],),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "image": (),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "prompt": (),
    "suffix": ("",),
    "top_logprobs": (0,),
    "web_search_options": (),
}
"""Unsupported parameters, and the values that are accepted because they change nothing."""

_MAX_PAIRS, _MAX_NAME_CHARS, _MAX_VALUE_CHARS = 16, 64, 512


def refuse_unsupported(body: CommonRequest) -> None:
    """Raise HTTPError 400 for an unsupported parameter, or for invalid metadata."""
    names, values_of = _unsupported_fields(type(body))
    values = values_of(body)
    if values.count(None) < len(values):
        for name, value in zip(names, values, strict=True):
            if value is not None and value not in _NEUTRAL_VALUES[name]:
                raise bad_param(name, f"{name!r} is not supported; leave it out.", "unsupported")
    check_metadata(body.metadata or {})


@cache
def _unsupported_fields(
    kind: type[CommonRequest],
) -> tuple[list[str], Callable[[CommonRequest], tuple[Any, ...]]]:
    """Return the unsupported parameters of a request type, and a getter of their values."""
    names = [name for name in _NEUTRAL_VALUES if name in kind.__struct_fields__]
    return names, attrgetter(*names)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise HTTPError 400 for `metadata` beyond OpenAI's limits."""
    if len(metadata) > _MAX_PAIRS:
        raise bad_param(
            "metadata", f"'metadata' holds {_MAX_PAIRS} pairs at most, got {len(metadata)}."
        )
    for name, value in metadata.items():
        if len(name) > _MAX_NAME_CHARS or len(value) > _MAX_VALUE_CHARS:
            raise bad_param(
                f"metadata.{name[:_MAX_NAME_CHARS]}",
                f"A name in 'metadata' has {_MAX_NAME_CHARS} characters at most, and a value "
                f"{_MAX_VALUE_CHARS}.",
            )

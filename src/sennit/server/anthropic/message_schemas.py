"""Request schemas of /v1/messages, and the handling of each parameter.

As in the OpenAI-compatible API, a parameter is supported, or changes nothing and is noted in the
response, or is refused by name. Blocks are plain dicts: clients add fields of their own to them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from sennit.server.http.endpoint import RequestModel
from sennit.server.http.errors import bad_param
from sennit.server.openai.chat_schemas import EFFORTS, JsonSchema, set_params
from sennit.server.openai.tool_schemas import Function
from sennit.turns.options import WhenBusy

_MEDIUM_BUDGET, _HIGH_BUDGET = 4_096, 16_384  # tokens to think, from which an effort is chosen
_WITHOUT_EFFECT = ("cache_control", "inference_geo", "service_tier", "top_k")
_REFUSED = ("container", "mcp_servers")


class InputMessage(msgspec.Struct, frozen=True):
    """A message with a text, or with blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that the client runs; those that Anthropic's servers run have another type."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """The choice of the tools that a model must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """The thinking before an answer."""

    type: str
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    """The JSON schema of the answer."""

    schema: dict[str, Any]
    type: Literal["json_schema"] = "json_schema"


class OutputConfig(msgspec.Struct, frozen=True):
    """The effort and the format of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class ThreadParam(msgspec.Struct, frozen=True):
    """A conversation that the server holds: a new one, or the one of a message that it sent."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class CountTokensRequest(RequestModel, kw_only=True):
    """The body of POST /v1/messages/count_tokens."""

    takes_unknown: ClassVar[bool] = True
    model: str
    messages: list[InputMessage]
    system: str | list[dict[str, Any]] | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """The earlier place of `output_config.format`."""
    # Taken without effect, and noted in the response:
    cache_control: Any = None
    # Refused unless they ask for nothing:
    container: Any = None
    mcp_servers: Any = None

    @property
    def client_functions(self) -> list[Function]:
        """The functions that the model may call; raises HTTPError 400 for tools of Anthropic's."""
        for at, tool in enumerate(self.tools or ()):
            if tool.type not in (None, "custom"):
                message = (
                    f"Tools of the type {tool.type[:100]!r} are not supported; send a tool with an "
                    f"'input_schema' that your program runs."
                )
                raise bad_param(f"tools[{at}].type", message, "unsupported")
        if self.tool_choice is not None and self.tool_choice.type == "none":
            return []
        return [
            Function(tool.name, tool.description, tool.input_schema) for tool in self.tools or ()
        ]

    @property
    def format(self) -> JsonSchema | None:
        """The requested format of the answer."""
        config = self.output_config
        format = self.output_format if config is None or config.format is None else config.format
        return None if format is None else JsonSchema("answer", format.schema)

    @property
    def without_effect(self) -> list[str]:
        """The parameters that are set and change nothing."""
        return set_params(self, _WITHOUT_EFFECT)

    def check(self) -> None:
        """Raise HTTPError 400 for a parameter that is not supported."""
        for name in _REFUSED:
            if getattr(self, name):
                raise bad_param(name, f"{name!r} is not supported; leave it out.", "unsupported")


class MessagesRequest(CountTokensRequest, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: int
    metadata: dict[str, str | None] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    thread: ThreadParam | None = None
    temperature: float | None = None
    top_p: float | None = None
    store: bool | None = None
    """Ours: whether the conversation is stored."""
    when_busy: WhenBusy = "error"
    """Ours: what happens if another run is active on a branch that the request may not leave."""
    # Taken without effect, and noted in the response:
    service_tier: Any = None
    inference_geo: Any = None
    top_k: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters of the request."""
        choice = self.tool_choice
        one_call = choice is not None and choice.disable_parallel_tool_use and self.tools
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": self.stop_sequences or None,
            "parallel_tool_calls": False if one_call else None,
            "tool_choice": self._choice,
            "reasoning": self._reasoning,
        }

    @property
    def shows_thinking(self) -> bool:
        """True if the client asked for thinking, so that the answer may begin with it."""
        return self.thinking is not None and self.thinking.type != "disabled"

    @property
    def _choice(self) -> str | list[str] | None:
        choice = self.tool_choice
        if choice is None or choice.type in ("auto", "none"):
            return None
        offered = [tool.name for tool in self.tools or ()]
        if choice.type == "any" and offered:
            return "required"
        if choice.name not in offered:
            message = f"'tool_choice' needs a tool, and {choice.name!r} is not in 'tools'."
            raise bad_param("tool_choice", message)
        return [choice.name]

    @property
    def _reasoning(self) -> str | None:
        thinking = self.thinking
        if thinking is not None and thinking.type == "disabled":
            return "off"
        if self.output_config is not None and self.output_config.effort is not None:
            return EFFORTS[self.output_config.effort]
        if thinking is None or thinking.budget_tokens is None:
            return None
        budget = thinking.budget_tokens
        return "low" if budget < _MEDIUM_BUDGET else "medium" if budget < _HIGH_BUDGET else "high"

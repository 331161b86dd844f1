"""Request schemas of /v1/responses and of its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sennit.server.openai.chat_schemas import (
    EFFORTS,
    AnswerFormat,
    CommonRequest,
    InputAudio,
    JsonObjectFormat,
    JsonSchema,
    ReasoningEffort,
    RefusalPart,
    TextFormat,
)
from sennit.server.openai.compaction import COMPACTION
from sennit.server.openai.files import FileFields
from sennit.server.openai.sealed_replies import INCLUDE
from sennit.server.openai.tool_schemas import (
    AllowedTool,
    AllowedTools,
    CustomTool,
    Function,
    NamedFunction,
    forced_choice,
    offered_functions,
)


class InputText(msgspec.Struct, frozen=True, tag_field="type", tag="input_text"):
    """Text that a client sends."""

    text: str


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """Text of a model."""

    text: str


class InputImage(msgspec.Struct, frozen=True, tag_field="type", tag="input_image"):
    """An image that a client sends."""

    image_url: str
    detail: Literal["auto", "low", "high"] | None = None

    @property
    def url(self) -> str:
        """The URL."""
        return self.image_url


class InputFile(FileFields, frozen=True, tag_field="type", tag="input_file"):
    """A file that a client sends."""

    file_url: str | None = None


Part: TypeAlias = InputText | OutputText | RefusalPart | InputImage | InputFile | InputAudio
Phase: TypeAlias = Literal["commentary", "final_answer"]


class MessageItem(msgspec.Struct, frozen=True):
    """A message."""

    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[Part]
    phase: Phase | None = None
    """Of the assistant: whether the text is about the work, or the answer."""


class CallItem(msgspec.Struct, frozen=True):
    """A function call of a model."""

    call_id: str
    name: str
    arguments: str


class ResultItem(msgspec.Struct, frozen=True):
    """The output of a function call."""

    call_id: str
    output: str | list[InputText | InputImage | InputFile]


class CustomCallItem(msgspec.Struct, frozen=True):
    """A call of a custom tool."""

    call_id: str
    name: str
    input: str


class ReasoningItem(msgspec.Struct, frozen=True):
    """Reasoning of a model: the text is dropped, the provider's state restored from the rest."""

    encrypted_content: str | None = None


class CompactionItem(msgspec.Struct, frozen=True):
    """The summary of an earlier conversation."""

    encrypted_content: str


ITEMS: Mapping[Any, type[msgspec.Struct]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": ResultItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": ResultItem,
    "reasoning": ReasoningItem,
    COMPACTION: CompactionItem,
}
"""The items of an input by their type."""


class ResponsesFunctionTool(Function, frozen=True, tag_field="type", tag="function"):
    """A function that a model may call, in the format of /v1/responses."""

    @property
    def as_function(self) -> Function:
        """The function."""
        return self


class ResponsesCustomTool(CustomTool, frozen=True, tag_field="type", tag="custom"):
    """A custom tool that a model may call, in the format of /v1/responses."""


class ChosenFunction(NamedFunction, frozen=True, tag_field="type", tag="function"):
    """The function that the model must call, in the format of /v1/responses."""


class ChosenCustom(NamedFunction, frozen=True, tag_field="type", tag="custom"):
    """The custom tool that the model must call, in the format of /v1/responses."""


class ChosenAmongTools(
    AllowedTools, frozen=True, kw_only=True, tag_field="type", tag="allowed_tools"
):
    """The tools of which the model may call some, in the format of /v1/responses."""

    tools: list[AllowedTool]

    @property
    def names(self) -> list[str]:
        """The names of the tools."""
        return [tool.name for tool in self.tools]


class SchemaFormat(JsonSchema, frozen=True, tag_field="type", tag="json_schema"):
    """An answer that follows a schema, in the format of /v1/responses."""


class TextConfig(msgspec.Struct, frozen=True):
    """The text format of an answer."""

    format: TextFormat | JsonObjectFormat | SchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(msgspec.Struct, frozen=True):
    """The reasoning effort."""

    effort: ReasoningEffort | None = None
    summary: Any = None
    generate_summary: Any = None
    context: Any = None


class ConversationName(msgspec.Struct, frozen=True):
    """A conversation by its id."""

    id: str


class ResponsesRequest(CommonRequest, kw_only=True):
    """The body of POST /v1/responses."""

    input: str | list[dict[str, Any]] | None = None
    conversation: str | ConversationName | None = None
    background: bool | None = None
    frequency_penalty: float | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    presence_penalty: float | None = None
    previous_response_id: str | None = None
    reasoning: ReasoningOptions | None = None
    text: TextConfig | None = None
    tool_choice: (
        Literal["none", "auto", "required"]
        | ChosenFunction
        | ChosenCustom
        | ChosenAmongTools
        | None
    ) = None
    tools: list[ResponsesFunctionTool | ResponsesCustomTool] | None = None
    # Refused unless they ask for nothing:
    access_programs: Any = None
    context_management: Any = None
    image: Any = None
    prompt: Any = None
    # Taken without effect, and noted in the response:
    include: list[str] | None = None
    max_tool_calls: int | None = None
    """The number of calls of tools that a provider runs: none here."""
    truncation: Any = None

    @property
    def items(self) -> str | list[dict[str, Any]]:
        """The input; an empty list if there is none."""
        return [] if self.input is None else self.input

    @property
    def without_effect(self) -> list[str]:
        """The parameters that are set and change nothing."""
        return [name for name in super().without_effect if name != "include" or not self._includes]

    @property
    def keeps_state(self) -> bool:
        """True if the client, and not the server, keeps the state of the provider."""
        return self.store is False and self._includes

    @property
    def _includes(self) -> bool:
        return INCLUDE in (self.include or ())

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters of the request."""
        effort = None if self.reasoning is None else self.reasoning.effort
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "tool_choice": self._choice,
            "reasoning": None if effort is None else EFFORTS[effort],
        }

    @property
    def client_functions(self) -> Sequence[Function]:
        """The functions that the model may call."""
        return offered_functions(self.tool_choice, [tool.as_function for tool in self.tools or ()])

    @property
    def format(self) -> AnswerFormat | None:
        """The requested format of the answer."""
        return None if self.text is None else self.text.format

    @property
    def _choice(self) -> str | list[str] | None:
        return forced_choice(self.tool_choice, [tool.name for tool in self.tools or ()])

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation, if the request names one."""
        conversation = self.conversation
        return conversation.id if isinstance(conversation, ConversationName) else conversation

"""Item schemas of /v1/responses."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec

from sennit.errors import ValidationError
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import tool_text
from sennit.server.openai.chat_schemas import (
    EFFORTS,
    AnswerFormat,
    CommonRequest,
    CustomTool,
    Function,
    JsonObjectFormat,
    JsonSchema,
    NamedFunction,
    ReasoningEffort,
    RefusalPart,
    StreamOptions,
    TextFormat,
    bad_param,
    forced_choice,
)
from sennit.server.openai.compaction import COMPACTION, summary_message
from sennit.server.openai.translate import (
    ClientMessages,
    ClientToolCall,
    ModelAnswer,
    answer_message,
    call_message,
    custom_call_message,
    instruction,
    tool_result,
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


Part: TypeAlias = InputText | OutputText | RefusalPart | InputImage


class MessageItem(msgspec.Struct, frozen=True):
    """A message."""

    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[Part]


class CallItem(msgspec.Struct, frozen=True):
    """A function call of a model."""

    call_id: str
    name: str
    arguments: str


class ResultItem(msgspec.Struct, frozen=True):
    """The output of a function call."""

    call_id: str
    output: str | list[InputText]


class CustomCallItem(msgspec.Struct, frozen=True):
    """A call of a custom tool."""

    call_id: str
    name: str
    input: str


class ReasoningItem(msgspec.Struct, frozen=True):
    """Reasoning of a model, which is accepted and dropped."""


class CompactionItem(msgspec.Struct, frozen=True):
    """The summary of an earlier conversation."""

    encrypted_content: str


_KINDS: Mapping[Any, type[msgspec.Struct]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": ResultItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": ResultItem,
    "reasoning": ReasoningItem,
    COMPACTION: CompactionItem,
}


class ResponsesFunctionTool(Function, frozen=True, tag_field="type", tag="function"):
    """A function that a model may call, in the format of /v1/responses."""

    @property
    def as_function(self) -> Function:
        """The function."""
        return self


class ResponsesCustomTool(CustomTool, frozen=True, tag_field="type", tag="custom"):
    """A custom tool that a model may call, in the format of /v1/responses."""


class ChosenFunction(NamedFunction, frozen=True, kw_only=True):
    """The tool that the model must call, in the format of /v1/responses."""

    type: Literal["function", "custom"]


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

    input: str | list[dict[str, Any]]
    conversation: str | ConversationName | None = None
    background: bool | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    reasoning: ReasoningOptions | None = None
    stream_options: StreamOptions | None = None
    text: TextConfig | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenFunction | None = None
    tools: list[ResponsesFunctionTool | ResponsesCustomTool] | None = None
    # Refused unless they ask for nothing:
    access_programs: Any = None
    context_management: Any = None
    image: Any = None
    max_tool_calls: Any = None
    prompt: Any = None
    # Taken without effect, and noted in the response:
    truncation: Any = None

    @property
    def without_effect(self) -> list[str]:
        """The parameters that are set and change nothing."""
        verbosity = None if self.text is None else self.text.verbosity
        values = {"text.verbosity": verbosity, "truncation": self.truncation}
        return [name for name, value in values.items() if value not in (None, "disabled")]

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters of the request."""
        effort = None if self.reasoning is None else self.reasoning.effort
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "tool_choice": self._choice,
            "reasoning": None if effort is None else EFFORTS[effort],
        }

    @property
    def client_functions(self) -> Sequence[Function]:
        """The functions that the model may call."""
        if self.tool_choice == "none":
            return []
        return [tool.as_function for tool in self.tools or ()]

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


def parse_input(
    items: str | Sequence[Mapping[str, Any]], instructions: str | None, lasting: str | None = None
) -> ClientMessages:
    """Parse the input of a response; raise HTTPError 400, naming the item.

    `instructions` apply to this response only. System messages among the items also apply to the
    responses that continue it, as does `lasting`, the system text of earlier ones.
    """
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    parsed = parse_items(items, "input", lasting)
    if not parsed.messages:
        raise bad_param("input", "'input' must contain at least one item with content.")
    system = "\n\n".join(text for text in (instructions, parsed.lasting) if text)
    return replace(parsed, system=system or None)


def parse_items(
    items: Sequence[Mapping[str, Any]], param: str, lasting: str | None = None
) -> ClientMessages:
    """Parse items that follow a lasting system text; raise HTTPError 400, naming the item."""
    system = [] if lasting is None else [lasting]
    messages: list[Message] = []
    for at, fields in enumerate(items):
        try:
            item = _decode_item(fields)
            if isinstance(item, MessageItem) and item.role in ("system", "developer"):
                system.append("\n".join(_texts(item.content)))
            else:
                messages += _item_messages(item)
        except (ValidationError, msgspec.ValidationError) as error:
            raise bad_param(f"{param}[{at}]", str(error)) from None
    text = "\n\n".join(system) or None
    return ClientMessages(text, tuple(messages), text)


def _decode_item(item: Mapping[str, Any]) -> msgspec.Struct:
    kind = item.get("type", "message")
    shape = _KINDS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise ValidationError(f"'type' must be one of {', '.join(_KINDS)}, got {kind!r}.")
    return msgspec.convert(item, shape)


def _item_messages(item: msgspec.Struct) -> Iterator[Message]:
    if isinstance(item, CallItem):
        yield call_message(item.call_id, item.name, item.arguments)
    elif isinstance(item, CustomCallItem):
        yield custom_call_message(item.call_id, item.name, item.input)
    elif isinstance(item, CompactionItem):
        yield summary_message(item.encrypted_content)
    elif isinstance(item, ResultItem):
        output = item.output
        text = output if isinstance(output, str) else "\n".join(part.text for part in output)
        yield tool_result(item.call_id, text)
    elif isinstance(item, MessageItem) and item.role == "assistant":
        if text := "".join(_texts(item.content)):
            yield answer_message(text)
    elif isinstance(item, MessageItem):
        images = [part for part in item.content if isinstance(part, InputImage)]
        yield Message(instruction(_texts(item.content), images), sender=MessageRole.USER)


def _texts(content: str | list[Part]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [
        part.refusal if isinstance(part, RefusalPart) else part.text
        for part in content
        if not isinstance(part, InputImage)
    ]


def output_items(
    answer: ModelAnswer, custom: Container[str], *, summary: bool
) -> list[dict[str, Any]]:
    """Return a model's answer as items, as `items_of` does."""
    return [
        item for message in answer.messages for item in items_of(message, custom, summary=summary)
    ]


def items_of(
    message: Message, custom: Container[str] = (), *, summary: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a message as items; none if it is empty.

    `custom` are the names of custom tools; with `summary` reasoning is returned as a summary.
    """
    content = message.content
    if isinstance(content, AssistantResponseContent):
        if content.reasoning:
            yield reasoning_item(message.id.hex, content.reasoning, summary=summary)
        if content.assistant_response:
            yield text_item(message.id.hex, content.assistant_response)
    elif isinstance(content, ActionRequestContent):
        yield call_item(message, custom)
    elif isinstance(content, ActionResponseContent):
        yield {
            "id": f"fco_{message.id.hex}",
            "type": "function_call_output",
            "status": "completed",
            "call_id": content.request_id or "",
            "output": tool_text(content),
        }
    elif isinstance(content, InstructionContent):
        yield _input_item(message, "user", _input_parts(content))
    elif isinstance(content, SystemContent):
        yield _input_item(message, "system", [_input_text(content.system_message or "")])
    elif content.from_assistant and not content.empty:
        yield text_item(message.id.hex, content.words)
    elif not content.empty:
        yield _input_item(message, content.chat_role, [_input_text(content.words)])


def _input_item(message: Message, role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{message.id.hex}",
        "type": "message",
        "status": "completed",
        "role": role,
        "content": parts,
    }


def _input_parts(content: InstructionContent) -> list[dict[str, Any]]:
    detail = content.image_detail or "auto"
    images = [
        {"type": "input_image", "image_url": url, "detail": detail, "file_id": None}
        for url in content.images or ()
    ]
    return [_input_text(content.instruction or ""), *images]


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def text_part(text: str) -> dict[str, Any]:
    """Return text of a model as a content part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def text_item(name: str, text: str | None) -> dict[str, Any]:
    """Return a message item with text of a model; in progress if the text is None."""
    return {
        "id": f"msg_{name}",
        "type": "message",
        "status": "in_progress" if text is None else "completed",
        "role": "assistant",
        "content": [] if text is None else [text_part(text)],
    }


def reasoning_item(name: str, text: str | None, *, summary: bool = False) -> dict[str, Any]:
    """Return a reasoning item; in progress if the text is None."""
    parts = [] if text is None else [reasoning_part(text, summary=summary)]
    return {
        "id": f"rs_{name}",
        "type": "reasoning",
        "status": "in_progress" if text is None else "completed",
        "summary": parts if summary else [],
        "content": [] if summary else parts,
    }


def reasoning_part(text: str, *, summary: bool = False) -> dict[str, Any]:
    """Return reasoning as a part of its item."""
    return {"type": "summary_text" if summary else "reasoning_text", "text": text}


def call_item(
    message: Message, custom: Container[str], *, in_progress: bool = False
) -> dict[str, Any]:
    """Return the item of a call; one that is `in_progress` has no arguments yet."""
    call = ClientToolCall.of(message)
    is_custom = call.name in custom
    kind, prefix = ("custom_tool_call", "ctc") if is_custom else ("function_call", "fc")
    name, text = ("input", call.input) if is_custom else ("arguments", call.arguments)
    return {
        "id": f"{prefix}_{message.id.hex}",
        "type": kind,
        "status": "in_progress" if in_progress else "completed",
        "call_id": call.id,
        "name": call.name,
        name: "" if in_progress else text,
    }

"""Translation between OpenAI messages and ours; pure functions.

An assistant message with text and tool calls is one message there and several here; `ModelAnswer`
joins those that a model sent in one turn, from a run or from a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

from sennit.errors import CodecError, ValidationError, listed
from sennit.messages.codec import dumps, loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.messages.unset import Unset
from sennit.server.http.errors import bad_param
from sennit.server.openai.chat_schemas import (
    AnswerFormat,
    AssistantMessage,
    ChatFile,
    ChatMessage,
    ChatTextPart,
    ChatToolCall,
    DeveloperMessage,
    ImageAddress,
    ImageUrlPart,
    InputAudio,
    JsonObjectFormat,
    JsonSchema,
    RefusalPart,
    SystemMessage,
    ToolMessage,
    UserMessage,
    UserPart,
)
from sennit.server.openai.files import audio_part, file_part
from sennit.server.openai.tool_schemas import Function
from sennit.services.models.reply import Usage
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.tool import Tool

PHASE = "phase"
"""The key of the phase in the metadata of an assistant's message, and in a message item."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ClientMessages:
    """The messages that a client sent, and the system message."""

    system: str | None
    messages: tuple[Message, ...]
    lasting: str | None = None
    """The part of the system text that also applies to later requests."""

    @property
    def has_assistant(self) -> bool:
        """True if there are assistant messages: then it is a history, not only new messages."""
        return any(message.role is MessageRole.ASSISTANT for message in self.messages)

    @property
    def has_results(self) -> bool:
        """True if there are tool results."""
        return any(message.role is MessageRole.TOOL for message in self.messages)


def parse_chat(messages: Sequence[ChatMessage]) -> ClientMessages:
    """Parse the messages of a chat completion; raise HTTPError 400, naming the message."""
    system: list[str] = []
    parsed: list[Message] = []
    for at, message in enumerate(messages):
        try:
            if isinstance(message, SystemMessage | DeveloperMessage):
                system.append(_text(message.content))
            else:
                parsed += _parse_message(message)
        except ValidationError as error:
            raise bad_param(f"messages[{at}]", str(error)) from None
    if not parsed:
        raise bad_param("messages", "'messages' must contain at least one message with content.")
    text = "\n\n".join(system) or None
    return ClientMessages(text, tuple(parsed), text)


def _parse_message(message: UserMessage | AssistantMessage | ToolMessage) -> Iterator[Message]:
    if isinstance(message, UserMessage):
        yield Message(_instruction(message.content), sender=message.name or MessageRole.USER)
    elif isinstance(message, ToolMessage):
        texts, images, files = _sorted_parts(message.content)
        pictures = [ImagePart(image.url, image.detail or "auto") for image in images]
        yield tool_result(message.tool_call_id, "\n".join(texts), [*pictures, *files])
    else:
        if message.function_call is not None:
            raise ValidationError("'function_call' is not supported; send 'tool_calls'.")
        text = _text(message.content or ()) or message.refusal or ""
        if text:
            yield answer_message(text)
        for call in message.tool_calls or ():
            yield _call_of(call)


def _instruction(content: str | list[UserPart]) -> InstructionContent:
    return instruction(*_sorted_parts(content))


def _sorted_parts(
    content: str | list[UserPart],
) -> tuple[list[str], list[ImageAddress], list[FilePart | AudioPart]]:
    """Return the texts, the images and the other files of a content."""
    texts: list[str] = []
    images: list[ImageAddress] = []
    files: list[FilePart | AudioPart] = []
    for part in [ChatTextPart(content)] if isinstance(content, str) else content:
        match part:
            case ChatTextPart():
                texts.append(part.text)
            case ImageUrlPart():
                images.append(part.image_url)
            case ChatFile():
                files.append(file_part(part.file))
            case InputAudio():
                files.append(audio_part(part.input_audio))
    return texts, images, files


def instruction(
    texts: Sequence[str], images: Sequence[Any], files: Sequence[FilePart | AudioPart] = ()
) -> InstructionContent:
    """Return a user's message of several parts; images have a `url` and a `detail`."""
    text = "\n".join(texts)
    if not images and not files:
        return InstructionContent(instruction=text)
    details = [image.detail for image in images if image.detail is not None]
    return InstructionContent.create(
        instruction=text or None,
        images=[image.url for image in images] or None,
        image_detail=details[0] if details else None,
        files=files or None,
    )


def _text(content: str | Iterable[ChatTextPart | RefusalPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        part.text if isinstance(part, ChatTextPart) else part.refusal for part in content
    )


def answer_message(text: str, phase: str | None = None) -> Message:
    """Return an assistant message; `phase` is that of a message item."""
    metadata = None if phase is None else {PHASE: phase}
    return Message(AssistantResponseContent(text), sender=MessageRole.ASSISTANT, metadata=metadata)


def tool_result(call_id: str, text: str, files: Sequence[MediaPart] = ()) -> Message:
    """Return the result of a tool call; raise ValidationError for an empty id."""
    if not call_id:
        raise ValidationError("A tool result needs the id of its call, got an empty id.")
    return Message(
        ActionResponseContent.create(request_id=call_id, result=text, files=files or None)
    )


def _call_of(call: ChatToolCall) -> Message:
    if call.custom is not None:
        return custom_call_message(call.id, call.custom.name, call.custom.input)
    if call.function is None:
        raise ValidationError(f"The call {call.id!r} needs a 'function' or a 'custom' tool.")
    return call_message(call.id, call.function.name, call.function.arguments)


def custom_call_message(call_id: str, name: str, input: str) -> Message:
    """Return the call of a custom tool, as one of the function that stands for it."""
    return call_message(call_id, name, dumps({"input": input}).decode())


def call_message(call_id: str, name: str, arguments: str) -> Message:
    """Return a tool call message; arguments that are not a JSON object are stored as text."""
    try:
        parsed: Any = loads(arguments) if arguments.strip() else {}
    except CodecError:
        parsed = None
    is_object = isinstance(parsed, dict)
    value: Any = cast("Any", parsed) if is_object else Unset
    content = ActionRequestContent(function=name, arguments=value, call_id=call_id or Unset)
    metadata = None if is_object else {"arguments_text": arguments}
    return Message(content, sender=MessageRole.ASSISTANT, metadata=metadata)


def check_calls(
    messages: Sequence[Message], open_calls: Iterable[str] = (), *, may_wait: bool = False
) -> None:
    """Raise HTTPError 400 unless every call has its result before the next user message.

    `open_calls` are those without a result on the branch. With `may_wait` calls may stay open, and
    only a result without a call is rejected.
    """
    waiting = set(open_calls)
    for message in messages:
        content = message.content
        if isinstance(content, ActionResponseContent):
            if content.request_id not in waiting:
                reason = f"The result of {content.request_id!r} belongs to no open call."
                raise bad_param("messages", reason)
            waiting.discard(content.request_id)
        elif isinstance(content, ActionRequestContent):
            waiting.add(content.call_id or "")
        elif isinstance(content, InstructionContent) and not may_wait:
            _require_no_open_calls(waiting)
    if not may_wait:
        _require_no_open_calls(waiting)


def _require_no_open_calls(waiting: set[str]) -> None:
    if waiting:
        message = (
            f"Every tool call needs its result in the next messages; missing: {listed(waiting)}."
        )
        raise bad_param("messages", message)


class ClientTool(ToolBackend):
    """A tool that the client runs; the server only offers it to the model."""

    def __init__(self, function: Function) -> None:
        self._schema = ToolSchema(
            function.name, function.description or "", function.parameters or _NO_PARAMETERS
        )

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    def bind(self, arguments: Mapping[str, Any]) -> Any:
        return arguments

    async def call(self, bound: Any, context: ToolContext) -> Any:  # noqa: ARG002 - never called
        raise ValidationError(f"{self._schema.name!r} is run by the client, not by the server.")


def client_tools(functions: Iterable[Function]) -> list[Tool]:
    """Return the tools that the client runs; raise HTTPError 400 for an invalid or repeated one."""
    tools: dict[str, Tool] = {}
    for at, function in enumerate(functions):
        try:
            tool = Tool(ClientTool(function))
        except ValidationError as error:
            raise bad_param(f"tools[{at}]", str(error)) from None
        if tool.name in tools:
            raise bad_param(f"tools[{at}]", f"Duplicate tool name {tool.name!r}; rename it.")
        tools[tool.name] = tool
    return list(tools.values())


def output_schema(format: AnswerFormat | None) -> ModelSchema | None:
    """Return the schema of an answer, None for plain text; raise HTTPError 400 if it is invalid."""
    if isinstance(format, JsonObjectFormat):
        return ModelSchema("ModelAnswer", {"type": "object"})
    if not isinstance(format, JsonSchema):
        return None
    try:
        return ModelSchema(format.name, format.schema or {"type": "object"})
    except ValidationError as error:
        raise bad_param("response_format", str(error)) from None


@dataclass(frozen=True, slots=True)
class ClientToolCall:
    """A tool call that the client runs."""

    message: Message
    id: str
    name: str
    arguments: str
    """JSON text, or the model's own text if that was not a JSON object."""

    @property
    def input(self) -> str:
        """The input of a custom tool; the arguments if the model sent something else."""
        content = self.message.content
        assert isinstance(content, ActionRequestContent)
        input = (content.arguments or {}).get("input")
        return input if isinstance(input, str) else self.arguments

    @classmethod
    def of(cls, message: Message) -> ClientToolCall:
        """Return the call of a message."""
        content = message.content
        assert isinstance(content, ActionRequestContent)
        return cls(
            message,
            content.call_id or str(message.id),
            content.function or "",
            arguments_of(message, content),
        )


def arguments_of(message: Message, content: ActionRequestContent) -> str:
    """Return the arguments of a call as JSON, or the model's text if it was not a JSON object."""
    written = message.metadata.get("arguments_text")
    return written if isinstance(written, str) else dumps(content.arguments or {}).decode()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The messages of a model in one turn."""

    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The text, without reasoning and calls."""
        return "".join(_assistant_text(message.content) for message in self.messages)

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        contents = (message.content for message in self.messages)
        return "".join(
            content.reasoning or ""
            for content in contents
            if isinstance(content, AssistantResponseContent)
        )

    @property
    def calls(self) -> list[ClientToolCall]:
        """The tool calls."""
        return [
            ClientToolCall.of(message)
            for message in self.messages
            if isinstance(message.content, ActionRequestContent)
        ]

    @property
    def _metadata(self) -> Mapping[str, Any]:
        return self.messages[-1].metadata if self.messages else {}

    @property
    def model(self) -> str | None:
        """The name of the model, as its provider gave it; None if unknown."""
        return self._metadata.get("model")

    @property
    def finish_reason(self) -> str | None:
        """The finish reason that the model gave; None if unknown."""
        return self._metadata.get("finish_reason")

    @property
    def is_final(self) -> bool:
        """True if no more messages follow: the last one of a reply has the usage."""
        return "usage" in self._metadata

    @property
    def is_complete(self) -> bool:
        """True if there is an answer that was not cut off."""
        reasons = {message.metadata.get("finish_reason") for message in self.messages}
        return bool(reasons) and reasons.isdisjoint(("cancelled", "interrupted"))

    @property
    def usage(self) -> Usage:
        """The token usage."""
        return Usage(**self._metadata.get("usage", {}))


def answer_at(messages: Iterable[Message]) -> ModelAnswer:
    """Return the answer that messages begin with; empty if the first has another role."""
    answer: list[Message] = []
    for message in takewhile(lambda message: message.role is MessageRole.ASSISTANT, messages):
        answer.append(message)
        if "usage" in message.metadata:  # the last message of a turn
            break
    return ModelAnswer(tuple(answer))


def answer_at_end(messages: Sequence[Message]) -> list[Message]:
    """Return the assistant's messages that messages end with."""
    own = takewhile(lambda message: message.role is MessageRole.ASSISTANT, reversed(messages))
    return list(own)[::-1]


def _assistant_text(content: MessageContent) -> str:
    return content.words if content.from_assistant else ""


def system_message(text: str, notes: Mapping[str, Any] | None = None) -> Message:
    """Return the system message of a branch."""
    return Message(SystemContent(system_message=text), metadata=notes)

"""Translation between OpenAI messages and ours; pure functions.

An assistant's message with text and calls is several messages here, and what a model said in one
turn is one message there; `ModelAnswer` is that turn, whether it has just been said or stands on a
branch already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

from sennit.errors import CodecError, ValidationError
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
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.messages.unset import Unset
from sennit.server.openai.chat_schemas import (
    AssistantMessage,
    ChatMessage,
    ChatTextPart,
    ChatToolCall,
    DeveloperMessage,
    Function,
    ImageUrlPart,
    JsonObjectFormat,
    JsonSchema,
    JsonSchemaFormat,
    RefusalPart,
    SystemMessage,
    TextFormat,
    ToolMessage,
    UserMessage,
    bad,
)
from sennit.services.models.reply import Usage
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.tool import Tool

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ClientMessages:
    """The messages that a client sent, and the system message."""

    system: str | None
    messages: tuple[Message, ...]
    lasting: str | None = None
    """As much of the system text as holds for what follows."""

    @property
    def speaks(self) -> bool:
        """True if the assistant has a part in it: then it is a history, not only what is new."""
        return any(message.role is MessageRole.ASSISTANT for message in self.messages)

    @property
    def answers(self) -> bool:
        """True if results of calls are among it."""
        return any(message.role is MessageRole.TOOL for message in self.messages)


def sent(messages: Sequence[ChatMessage]) -> ClientMessages:
    """The messages of a chat completion; raises HTTPError 400, naming the message."""
    system: list[str] = []
    parsed: list[Message] = []
    for at, message in enumerate(messages):
        try:
            if isinstance(message, SystemMessage | DeveloperMessage):
                system.append(_text(message.content))
            else:
                parsed += _said(message)
        except ValidationError as error:
            raise bad(f"messages[{at}]", str(error)) from None
    if not parsed:
        raise bad("messages", "There must be at least one message that says something.")
    text = "\n\n".join(system) or None
    return ClientMessages(text, tuple(parsed), text)


def _said(message: UserMessage | AssistantMessage | ToolMessage) -> Iterator[Message]:
    if isinstance(message, UserMessage):
        yield Message(_instruction(message.content), sender=message.name or MessageRole.USER)
    elif isinstance(message, ToolMessage):
        yield tool_result(message.tool_call_id, _text(message.content))
    else:
        if message.function_call is not None:
            raise ValidationError("'function_call' is not supported here; send 'tool_calls'.")
        text = _text(message.content or ()) or message.refusal or ""
        if text:
            yield answer_message(text)
        for call in message.tool_calls or ():
            yield _asked(call)


def _instruction(content: str | list[ChatTextPart | ImageUrlPart]) -> InstructionContent:
    if isinstance(content, str):
        return InstructionContent(instruction=content)
    images = [part.image_url for part in content if isinstance(part, ImageUrlPart)]
    return instruction([part.text for part in content if isinstance(part, ChatTextPart)], images)


def instruction(texts: Sequence[str], images: Sequence[Any]) -> InstructionContent:
    """Return a user's message of several parts; images have a `url` and a `detail`."""
    if not images:
        return InstructionContent(instruction="\n".join(texts))
    details = [image.detail for image in images if image.detail is not None]
    return InstructionContent(
        instruction="\n".join(texts) or Unset,
        images=[image.url for image in images],
        image_detail=details[0] if details else Unset,
    )


def _text(content: str | Iterable[ChatTextPart | RefusalPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, ChatTextPart) else part.refusal for part in content)


def answer_message(text: str) -> Message:
    """Return an assistant's message that a client sent."""
    return Message(AssistantResponseContent(text), sender=MessageRole.ASSISTANT)


def tool_result(call_id: str, text: str) -> Message:
    """Return the result of a call that the client made."""
    if not call_id:
        raise ValidationError("A tool result needs the id of its call; the id is empty.")
    return Message(ActionResponseContent(request_id=call_id, result=text))


def _asked(call: ChatToolCall) -> Message:
    return call_message(call.id, call.function.name, call.function.arguments)


def call_message(call_id: str, name: str, arguments: str) -> Message:
    """A call that a model asked for; arguments that are no JSON object are kept as they are."""
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
    """Raise HTTPError 400 unless every call has its result before something else is said.

    `open_calls` are those that wait on the branch already. With `may_wait` calls may stay open, and
    only a result that answers none is refused.
    """
    waiting = set(open_calls)
    for message in messages:
        content = message.content
        if isinstance(content, ActionResponseContent):
            if content.request_id not in waiting:
                reason = f"The result of {content.request_id!r} answers no call made just before it."
                raise bad("messages", reason)
            waiting.discard(content.request_id)
        elif isinstance(content, ActionRequestContent):
            waiting.add(content.call_id or "")
        elif isinstance(content, InstructionContent) and not may_wait:
            _refuse_open(waiting)
    if not may_wait:
        _refuse_open(waiting)


def _refuse_open(waiting: set[str]) -> None:
    if waiting:
        message = f"Every call needs a message of the role 'tool'; missing: {sorted(waiting)}."
        raise bad("messages", message)


class ClientTool(ToolBackend):
    """A tool that the client calls itself; here it is only offered to the model."""

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
        raise ValidationError(f"The client calls {self._schema.name!r} itself.")


def offered(functions: Iterable[Function]) -> list[Tool]:
    """Tools that the client calls itself; raises HTTPError 400."""
    tools: dict[str, Tool] = {}
    for at, function in enumerate(functions):
        try:
            tool = Tool(ClientTool(function))
        except ValidationError as error:
            raise bad(f"tools[{at}]", str(error)) from None
        if tool.name in tools:
            raise bad(f"tools[{at}]", f"There are two tools {tool.name!r}.")
        tools[tool.name] = tool
    return list(tools.values())


def wanted_form(
    format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None,
) -> ModelSchema | None:
    """The form an answer has to have; None for any."""
    if isinstance(format, JsonObjectFormat):
        return ModelSchema("ModelAnswer", {"type": "object"})
    return schema_form(format.json_schema) if isinstance(format, JsonSchemaFormat) else None


def schema_form(schema: JsonSchema) -> ModelSchema:
    """The form that a schema of the client's asks for; raises HTTPError 400."""
    try:
        return ModelSchema(schema.name, schema.schema or {"type": "object"})
    except ValidationError as error:
        raise bad("response_format", str(error)) from None


@dataclass(frozen=True, slots=True)
class ClientToolCall:
    """A call that the client is to make."""

    message: Message
    id: str
    name: str
    arguments: str
    """As JSON text; as the model wrote it, if that was no JSON."""

    @classmethod
    def of(cls, message: Message) -> ClientToolCall:
        """The call in a message that asks for one."""
        content = message.content
        assert isinstance(content, ActionRequestContent)
        return cls(
            message,
            content.call_id or str(message.id),
            content.function or "",
            arguments_of(message, content),
        )


def arguments_of(message: Message, content: ActionRequestContent) -> str:
    """The arguments of a call as JSON text, or as the model wrote them if they are none."""
    written = message.metadata.get("arguments_text")
    return written if isinstance(written, str) else dumps(content.arguments or {}).decode()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """All that a model said in one turn."""

    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The text, without reasoning and calls."""
        return "".join(_words(message.content) for message in self.messages)

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        contents = (message.content for message in self.messages)
        return "".join(
            content.reasoning or "" for content in contents if isinstance(content, AssistantResponseContent)
        )

    @property
    def calls(self) -> list[ClientToolCall]:
        """The calls it asks for."""
        return [
            ClientToolCall.of(message)
            for message in self.messages
            if isinstance(message.content, ActionRequestContent)
        ]

    @property
    def _noted(self) -> Mapping[str, Any]:
        return self.messages[-1].metadata if self.messages else {}

    @property
    def finish(self) -> str | None:
        """The finish reason that the model gave; None if unknown."""
        return self._noted.get("finish_reason")

    @property
    def whole(self) -> bool:
        """True if there is one and it was not cut off."""
        reasons = {message.metadata.get("finish_reason") for message in self.messages}
        return bool(reasons) and reasons.isdisjoint(("cancelled", "interrupted"))

    @property
    def usage(self) -> Usage:
        """The usage."""
        return Usage(**self._noted.get("usage", {}))


def answer_at(messages: Iterable[Message]) -> ModelAnswer:
    """Return the model's answer at the beginning of messages; empty if another role speaks
    there.
    """
    answer: list[Message] = []
    for message in takewhile(lambda message: message.role is MessageRole.ASSISTANT, messages):
        answer.append(message)
        if "usage" in message.metadata:  # the last of what was said in one turn
            break
    return ModelAnswer(tuple(answer))


def _words(content: MessageContent) -> str:
    return content.words if content.from_assistant else ""


def system_message(text: str, notes: Mapping[str, Any] | None = None) -> Message:
    """Return the system message of a branch."""
    return Message(SystemContent(system_message=text), metadata=notes)

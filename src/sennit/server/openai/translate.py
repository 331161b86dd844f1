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
        return any(one.role is MessageRole.ASSISTANT for one in self.messages)

    @property
    def answers(self) -> bool:
        """True if results of calls are among it."""
        return any(one.role is MessageRole.TOOL for one in self.messages)


def sent(messages: Sequence[ChatMessage]) -> ClientMessages:
    """The messages of a chat completion; raises HTTPError 400, naming the message."""
    system: list[str] = []
    said: list[Message] = []
    for at, one in enumerate(messages):
        try:
            if isinstance(one, SystemMessage | DeveloperMessage):
                system.append(_text(one.content))
            else:
                said += _said(one)
        except ValidationError as error:
            raise bad(f"messages[{at}]", str(error)) from None
    if not said:
        raise bad("messages", "There must be at least one message that says something.")
    told = "\n\n".join(system) or None
    return ClientMessages(told, tuple(said), told)


def _said(one: UserMessage | AssistantMessage | ToolMessage) -> Iterator[Message]:
    if isinstance(one, UserMessage):
        yield Message(_instruction(one.content), sender=one.name or MessageRole.USER)
    elif isinstance(one, ToolMessage):
        yield tool_result(one.tool_call_id, _text(one.content))
    else:
        if one.function_call is not None:
            raise ValidationError("'function_call' is not supported here; send 'tool_calls'.")
        said = _text(one.content or ()) or one.refusal or ""
        if said:
            yield answer_message(said)
        for call in one.tool_calls or ():
            yield _asked(call)


def _instruction(content: str | list[ChatTextPart | ImageUrlPart]) -> InstructionContent:
    if isinstance(content, str):
        return InstructionContent(instruction=content)
    images = [one.image_url for one in content if isinstance(one, ImageUrlPart)]
    return instruction([one.text for one in content if isinstance(one, ChatTextPart)], images)


def instruction(texts: Sequence[str], images: Sequence[Any]) -> InstructionContent:
    """Return a user's message of several parts; images have a `url` and a `detail`."""
    if not images:
        return InstructionContent(instruction="\n".join(texts))
    details = [one.detail for one in images if one.detail is not None]
    return InstructionContent(
        instruction="\n".join(texts) or Unset,
        images=[one.url for one in images],
        image_detail=details[0] if details else Unset,
    )


def _text(content: str | Iterable[ChatTextPart | RefusalPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(one.text if isinstance(one, ChatTextPart) else one.refusal for one in content)


def answer_message(said: str) -> Message:
    """Return an assistant's message that a client sent."""
    return Message(AssistantResponseContent(said), sender=MessageRole.ASSISTANT)


def tool_result(call_id: str, said: str) -> Message:
    """Return the result of a call that the client made."""
    if not call_id:
        raise ValidationError("A tool result needs the id of its call; the id is empty.")
    return Message(ActionResponseContent(request_id=call_id, result=said))


def _asked(call: ChatToolCall) -> Message:
    return call_message(call.id, call.function.name, call.function.arguments)


def call_message(call_id: str, name: str, arguments: str) -> Message:
    """A call that a model asked for; arguments that are no JSON object are kept as they are."""
    try:
        read: Any = loads(arguments) if arguments.strip() else {}
    except CodecError:
        read = None
    sound = isinstance(read, dict)
    kept: Any = cast("Any", read) if sound else Unset
    content = ActionRequestContent(function=name, arguments=kept, call_id=call_id or Unset)
    note = None if sound else {"arguments_text": arguments}
    return Message(content, sender=MessageRole.ASSISTANT, metadata=note)


def check_calls(
    said: Sequence[Message], open_calls: Iterable[str] = (), *, may_wait: bool = False
) -> None:
    """Raise HTTPError 400 unless every call has its result before something else is said.

    `open_calls` are those that wait on the branch already. With `may_wait` calls may stay open, and
    only a result that answers none is refused.
    """
    waiting = set(open_calls)
    for message in said:
        content = message.content
        if isinstance(content, ActionResponseContent):
            if content.request_id not in waiting:
                told = f"The result of {content.request_id!r} answers no call made just before it."
                raise bad("messages", told)
            waiting.discard(content.request_id)
        elif isinstance(content, ActionRequestContent):
            waiting.add(content.call_id or "")
        elif isinstance(content, InstructionContent) and not may_wait:
            _refuse_open(waiting)
    if not may_wait:
        _refuse_open(waiting)


def _refuse_open(waiting: set[str]) -> None:
    if waiting:
        told = f"Every call needs a message of the role 'tool'; missing: {sorted(waiting)}."
        raise bad("messages", told)


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
    for at, one in enumerate(functions):
        try:
            tool = Tool(ClientTool(one))
        except ValidationError as error:
            raise bad(f"tools[{at}]", str(error)) from None
        if tool.name in tools:
            raise bad(f"tools[{at}]", f"There are two tools {tool.name!r}.")
        tools[tool.name] = tool
    return list(tools.values())


def wanted_form(
    given: TextFormat | JsonObjectFormat | JsonSchemaFormat | None,
) -> ModelSchema | None:
    """The form an answer has to have; None for any."""
    if isinstance(given, JsonObjectFormat):
        return ModelSchema("ModelAnswer", {"type": "object"})
    return schema_form(given.json_schema) if isinstance(given, JsonSchemaFormat) else None


def schema_form(given: JsonSchema) -> ModelSchema:
    """The form that a schema of the client's asks for; raises HTTPError 400."""
    try:
        return ModelSchema(given.name, given.schema or {"type": "object"})
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
        return "".join(_words(one.content) for one in self.messages)

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        contents = (one.content for one in self.messages)
        return "".join(
            one.reasoning or "" for one in contents if isinstance(one, AssistantResponseContent)
        )

    @property
    def calls(self) -> list[ClientToolCall]:
        """The calls it asks for."""
        return [
            ClientToolCall.of(one)
            for one in self.messages
            if isinstance(one.content, ActionRequestContent)
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
        reasons = {one.metadata.get("finish_reason") for one in self.messages}
        return bool(reasons) and reasons.isdisjoint(("cancelled", "interrupted"))

    @property
    def usage(self) -> Usage:
        """The usage."""
        return Usage(**self._noted.get("usage", {}))


def answer_at(messages: Iterable[Message]) -> ModelAnswer:
    """Return the model's answer at the beginning of messages; empty if another role speaks
    there.
    """
    found: list[Message] = []
    for one in takewhile(lambda one: one.role is MessageRole.ASSISTANT, messages):
        found.append(one)
        if "usage" in one.metadata:  # the last of what was said in one turn
            break
    return ModelAnswer(tuple(found))


def _words(content: MessageContent) -> str:
    return content.words if content.from_assistant else ""


def system_message(said: str, notes: Mapping[str, Any] | None = None) -> Message:
    """Return the system message of a branch."""
    return Message(SystemContent(system_message=said), metadata=notes)

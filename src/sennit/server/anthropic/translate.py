"""Translation between the messages of Anthropic's API and ours; pure functions.

A user message holds tool results, texts, images and documents in blocks; here each result is a
message with its own files, and the rest one instruction. Thinking and blocks of tools that a
provider ran belong to the model that wrote them: only the thinking is kept, as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from sennit.errors import ValidationError
from sennit.messages.codec import dumps, loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    MessageRole,
)
from sennit.messages.media import FilePart, ImagePart, MediaPart
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.server.anthropic.message_schemas import InputMessage
from sennit.server.http.errors import bad_param
from sennit.server.openai.chat_schemas import ImageAddress
from sennit.server.openai.translate import (
    ClientMessages,
    ClientToolCall,
    ModelAnswer,
    call_message,
    instruction,
    tool_result,
)

_Blocks = Sequence[Mapping[str, Any]]
_PDF = "application/pdf"


def parse_messages(
    system: str | _Blocks | None, messages: Sequence[InputMessage]
) -> ClientMessages:
    """Parse the messages of a request; raise HTTPError 400, naming the message."""
    instructions = [] if system is None else [_parse("system", _system_text, system)]
    parsed: list[Message] = []
    for at, message in enumerate(messages):
        blocks = _blocks(message.content)
        if message.role == "system":
            instructions.append(_parse(f"messages[{at}]", _system_text, blocks))
        else:
            read = _user if message.role == "user" else _assistant
            parsed += _parse(f"messages[{at}]", read, blocks)
    if not parsed:
        raise bad_param("messages", "'messages' must contain at least one message with content.")
    if parsed[-1].role is MessageRole.ASSISTANT:
        message = "The last message must be of the role 'user': answers cannot be prefilled."
        raise bad_param("messages", message)
    text = "\n\n".join(filter(None, instructions)) or None
    return ClientMessages(text, tuple(parsed), text)


def _parse(param: str, read: Any, blocks: str | _Blocks) -> Any:
    try:
        return read(_blocks(blocks))
    except ValidationError as error:
        raise bad_param(param, str(error)) from None


def _blocks(content: Any) -> _Blocks:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):  # pyright: ignore
        raise ValidationError("A content must be a text, or a list of blocks.")
    return cast("_Blocks", content)


def _system_text(blocks: _Blocks) -> str:
    texts, media = _texts_and_media(blocks)
    if media:
        raise ValidationError("A system text must not contain images or files; send them as user.")
    return "\n".join(texts)


def _user(blocks: _Blocks) -> list[Message]:
    results: list[Message] = []
    rest: list[Mapping[str, Any]] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            results.append(_result(block))
        else:
            rest.append(block)
    texts, media = _texts_and_media(rest)
    if not texts and not media:
        return results
    images = [ImageAddress(part.url) for part in media if isinstance(part, ImagePart)]
    files = [part for part in media if not isinstance(part, ImagePart)]
    return [*results, Message(instruction(texts, images, files), sender=MessageRole.USER)]


def _result(block: Mapping[str, Any]) -> Message:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise ValidationError("A 'tool_result' needs the 'tool_use_id' of its call.")
    texts, media = _texts_and_media(_blocks(block.get("content") or ""))
    text = "\n".join(texts)
    if not block.get("is_error"):
        return tool_result(call_id, text, media)
    content = ActionResponseContent.create(call_id, error=text or "failed", files=media or None)
    return Message(content)


def _assistant(blocks: _Blocks) -> list[Message]:
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[Message] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(text)}:
                reasoning.append(text)
            case {"type": "tool_use", "id": str(id), "name": str(name), "input": input}:
                calls.append(call_message(id, name, dumps(input).decode()))
            case {"type": str(kind)} if kind == "redacted_thinking" or kind.startswith("server_"):
                pass
            case {"type": str(kind), "tool_use_id": str()} if kind.endswith("_tool_result"):
                pass
            case _:
                raise _unsupported(block)
    if not any(texts) and not any(reasoning):
        return calls
    content = AssistantResponseContent("".join(texts) or Unset, "\n\n".join(reasoning) or Unset)
    return [Message(content, sender=MessageRole.ASSISTANT), *calls]


def _texts_and_media(blocks: _Blocks) -> tuple[list[str], list[MediaPart]]:
    """Return the texts of blocks, those of documents too, and the images and files."""
    texts: list[str] = []
    media: list[MediaPart] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image"}:
                media.append(ImagePart(_image_url(block)))
            case {"type": "document", "source": {"type": "text", "data": str(text)}}:
                texts.append(_titled(block, [text]))
            case {"type": "document", "source": {"type": "content", "content": str() | [*_]}}:
                inner, files = _texts_and_media(_blocks(block["source"]["content"]))
                texts.append(_titled(block, inner))
                media += files
            case {"type": "document"}:
                media.append(_document(block))
            case {"type": "search_result", "content": [*content]}:
                texts.append(_titled(block, _texts_and_media(_blocks(content))[0]))
            case _:
                raise _unsupported(block)
    return [text for text in texts if text], media


def _document(block: Mapping[str, Any]) -> FilePart:
    """Return a PDF; its title is its name."""
    title = block.get("title")
    name = title if isinstance(title, str) else None
    match block.get("source"):
        case {"type": "url", "url": str(url)}:
            return FilePart(url, name, _PDF)
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return FilePart(f"data:{kind};base64,{data}", name)
        case _:
            raise ValidationError(
                "The source of a document must be a 'text', 'content', a 'url', or 'base64' data; "
                "files by id are not supported."
            )


def _titled(block: Mapping[str, Any], texts: Iterable[str]) -> str:
    """Return the text of a document or a search result, below its title and source."""
    heads = (block.get("title"), block.get("source"), block.get("context"))
    return "\n".join([*(head for head in heads if isinstance(head, str) and head), *texts])


def _image_url(block: Mapping[str, Any]) -> str:
    match block.get("source"):
        case {"type": "url", "url": str(url)}:
            return url
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case _:
            raise ValidationError("The source of an image must be a 'url', or 'base64' data.")


def _unsupported(block: Mapping[str, Any]) -> ValidationError:
    kind = block.get("type")
    if not isinstance(kind, str):
        return ValidationError("Every block needs a 'type'.")
    return ValidationError(f"A block {kind[:100]!r} is not supported here, or lacks a field.")


def answer_blocks(answer: ModelAnswer, *, thinking: bool) -> list[dict[str, Any]]:
    """Return the blocks of an answer, with its thinking if the client asked for it."""
    return [block for message in answer.messages for block in _message_blocks(message, thinking)]


def _message_blocks(message: Message, thinking: bool) -> Iterator[dict[str, Any]]:
    content = message.content
    if isinstance(content, ActionRequestContent):
        yield tool_use_block(message)
    elif isinstance(content, AssistantResponseContent):
        if thinking and content.reasoning:
            yield thinking_block(content.reasoning, signature_of(message.id.hex))
        if content.words:
            yield text_block(content.words)
    elif content.from_assistant and content.words:
        yield text_block(content.words)


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def thinking_block(text: str, signature: str) -> dict[str, Any]:
    """Return a block of thinking."""
    return {"type": "thinking", "thinking": text, "signature": signature}


def signature_of(message_id: str) -> str:
    """Return the signature of thinking: what the model signed is stored with the message."""
    return f"sennit:{message_id}"


def tool_use_block(message: Message) -> dict[str, Any]:
    """Return a tool call; arguments that are not a JSON object are under `invalid_json`."""
    call = ClientToolCall.of(message)
    is_object = "arguments_text" not in message.metadata
    input = loads(call.arguments) if is_object else {"invalid_json": call.arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": input}

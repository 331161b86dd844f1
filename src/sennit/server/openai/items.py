"""Items of /v1/responses: their translation to messages, and messages as items."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from sennit.errors import ValidationError, listed
from sennit.messages.codec import loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.media import AudioPart, FilePart, ImagePart, part_of_record
from sennit.messages.message import Message
from sennit.messages.openai_responses import input_part
from sennit.messages.prompt.tool_chat import tool_text
from sennit.messages.provider_state import STATE_KEY
from sennit.server.http.errors import bad_param
from sennit.server.openai.chat_schemas import InputAudio, RefusalPart
from sennit.server.openai.compaction import summary_message
from sennit.server.openai.files import audio_part, file_part
from sennit.server.openai.item_schemas import (
    ITEMS,
    CallItem,
    CompactionItem,
    CustomCallItem,
    InputFile,
    InputImage,
    InputText,
    MessageItem,
    OutputText,
    Part,
    ReasoningItem,
    ResultItem,
)
from sennit.server.openai.sealed_replies import unseal
from sennit.server.openai.translate import (
    PHASE,
    ClientMessages,
    ClientToolCall,
    ModelAnswer,
    answer_at_end,
    answer_message,
    call_message,
    custom_call_message,
    instruction,
    tool_result,
)

_CUT_OFF = ("length", "cancelled", "interrupted")
"""The finish reasons of an item that is incomplete."""


def parse_input(
    items: str | Sequence[Mapping[str, Any]],
    instructions: str | None,
    lasting: str | None = None,
    may_be_empty: bool = False,
) -> ClientMessages:
    """Parse the input of a response; raise HTTPError 400, naming the item.

    `instructions` apply to this response only. System messages among the items also apply to the
    responses that continue it, as does `lasting`, the system text of earlier ones.
    """
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    parsed = parse_items(items, "input", lasting)
    if not parsed.messages and not may_be_empty:
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
            if isinstance(item, ReasoningItem):
                _restore_state(messages, item.encrypted_content)
            elif isinstance(item, MessageItem) and item.role in ("system", "developer"):
                system.append("\n".join(_texts(item.content)))
            else:
                messages += _item_messages(item)
        except (ValidationError, msgspec.ValidationError) as error:
            raise bad_param(f"{param}[{at}]", str(error)) from None
    text = "\n\n".join(system) or None
    return ClientMessages(text, tuple(messages), text)


def _restore_state(messages: list[Message], sealed: str | None) -> None:
    """Replace the reply that messages end with by its sealed messages, if they are the same."""
    if sealed is not None:
        sent = answer_at_end(messages)
        if (reply := unseal(sealed, sent)) is not None:
            messages[len(messages) - len(sent) :] = reply


def _decode_item(item: Mapping[str, Any]) -> msgspec.Struct:
    kind = item.get("type", "message")
    shape = ITEMS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise ValidationError(f"'type' must be one of {listed(ITEMS)}, got {kind!r}.")
    return msgspec.convert(item, shape)


def _item_messages(item: msgspec.Struct) -> Iterator[Message]:
    if isinstance(item, CallItem):
        yield call_message(item.call_id, item.name, item.arguments)
    elif isinstance(item, CustomCallItem):
        yield custom_call_message(item.call_id, item.name, item.input)
    elif isinstance(item, CompactionItem):
        yield summary_message(item.encrypted_content)
    elif isinstance(item, ResultItem):
        pictures = [ImagePart(image.url, image.detail or "auto") for image in _images(item.output)]
        text = "\n".join(_texts(item.output))
        yield tool_result(item.call_id, text, [*pictures, *_files(item.output)])
    elif isinstance(item, MessageItem) and item.role == "assistant":
        if text := "".join(_texts(item.content)):
            yield answer_message(text, item.phase)
    elif isinstance(item, MessageItem):
        content = instruction(_texts(item.content), _images(item.content), _files(item.content))
        yield Message(content, sender=MessageRole.USER)


def _images(content: str | Sequence[Part]) -> list[InputImage]:
    return [part for part in content if isinstance(part, InputImage)]


def _files(content: str | Sequence[Part]) -> list[FilePart | AudioPart]:
    files: list[FilePart | AudioPart] = []
    for part in content:
        if isinstance(part, InputFile):
            files.append(file_part(part, part.file_url))
        elif isinstance(part, InputAudio):
            files.append(audio_part(part.input_audio))
    return files


def _texts(content: str | Sequence[Part]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [
        part.refusal if isinstance(part, RefusalPart) else part.text
        for part in content
        if isinstance(part, InputText | OutputText | RefusalPart)
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
            yield reasoning_item(message.id.hex, content.reasoning, message, summary=summary)
        if content.assistant_response:
            yield text_item(message.id.hex, content.assistant_response, message)
    elif isinstance(content, ActionRequestContent):
        yield call_item(message, custom)
    elif isinstance(content, ActionResponseContent):
        yield {
            "id": f"fco_{message.id.hex}",
            "type": "function_call_output",
            "status": "completed",
            "call_id": content.request_id or "",
            "output": _output(content),
        }
    elif isinstance(content, InstructionContent):
        yield _input_item(message, "user", _input_parts(content))
    elif isinstance(content, SystemContent):
        yield _input_item(message, "system", [_input_text(content.system_message or "")])
    elif content.from_assistant and not content.empty:
        yield text_item(message.id.hex, content.words, message)
    elif not content.empty:
        yield _input_item(message, content.chat_role, [_input_text(content.words)])


def _output(content: ActionResponseContent) -> str | list[dict[str, Any]]:
    """Return the output of a call: a text, or the text and the files of it."""
    text = tool_text(content)
    if not content.files:
        return text
    files = [input_part(part_of_record(file)) for file in content.files]
    return [_input_text(text), *files] if text else files


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
    files = [input_part(part_of_record(file)) for file in content.files or ()]
    return [_input_text(content.instruction or ""), *images, *files]


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def text_part(text: str) -> dict[str, Any]:
    """Return text of a model as a content part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def text_item(name: str, text: str | None, message: Message | None = None) -> dict[str, Any]:
    """Return a message item with text of a model; in progress if the text is None.

    A stored `message` tells the phase, and whether the text was cut off.
    """
    phase = None if message is None else _phase_of(message)
    return {
        "id": f"msg_{name}",
        "type": "message",
        "status": _status(text, message),
        "role": "assistant",
        "content": [] if text is None else [text_part(text)],
        **({} if phase is None else {PHASE: phase}),
    }


def _status(text: str | None, message: Message | None) -> str:
    if text is None:
        return "in_progress"
    finish = None if message is None else message.metadata.get("finish_reason")
    return "incomplete" if finish in _CUT_OFF else "completed"


def _phase_of(message: Message) -> str | None:
    """Return the phase that the client or the provider gave a message; None if there is none."""
    if isinstance(phase := message.metadata.get(PHASE), str):
        return phase
    match message.metadata.get(STATE_KEY):
        case {"parts": [*parts]}:
            items = (loads(part) for part in cast("list[str]", parts) if f'"{PHASE}"' in part)
            return next((item[PHASE] for item in items if item.get(PHASE)), None)
        case _:
            return None


def reasoning_item(
    name: str, text: str | None, message: Message | None = None, *, summary: bool = False
) -> dict[str, Any]:
    """Return a reasoning item; in progress if the text is None."""
    parts = [] if text is None else [reasoning_part(text, summary=summary)]
    cut_off = message is not None and not message.content.words
    return {
        "id": f"rs_{name}",
        "type": "reasoning",
        "status": _status(text, message if cut_off else None),
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
        "status": _status(None if in_progress else text, message),
        "call_id": call.id,
        "name": call.name,
        name: "" if in_progress else text,
    }

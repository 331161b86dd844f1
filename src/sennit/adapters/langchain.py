"""LangChain chat history, stored on a branch.

    history = SennitChatMessageHistory(client, "chat_001")

Messages are returned exactly as they were added; messages from elsewhere on the branch are
converted. A LangChain message with text and tool calls is stored as several messages. A fork can
cut between them; the rest is then converted from the messages that the fork has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from sennit.adapters.branch_history import BranchHistory
from sennit.adapters.message_mapping import (
    MediaMaker,
    MessageFormat,
    answer,
    call,
    instruction,
    result,
)
from sennit.errors import MissingExtraError
from sennit.messages.content import MessageContent
from sennit.messages.media import AudioPart, FilePart, ImagePart
from sennit.messages.media_types import type_of_name
from sennit.sessions.async_method import async_method

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ToolMessage,
        convert_to_messages,
        message_to_dict,
        messages_from_dict,
    )
except ImportError as error:
    raise MissingExtraError.of("sennit.adapters.langchain", "langchain") from error

__all__ = ["SennitChatMessageHistory"]


def _contents(message: BaseMessage) -> Iterator[MessageContent]:
    """Yield the contents of a message."""
    text = str(message.text)
    match message:
        case AIMessage():
            reasoning = "\n\n".join(_reasoning(message))
            if text or reasoning or not message.tool_calls:
                yield answer(text, reasoning)
            for tool_call in message.tool_calls:
                yield call(tool_call["name"], tool_call["args"], tool_call["id"])
        case ToolMessage():
            media = [*_media(message)]
            is_text = isinstance(message.content, str) or media
            value = text if is_text else cast("Any", message.content)
            yield result(message.tool_call_id, value, media, failed=message.status == "error")
        case _:
            yield instruction(text, _media(message))


def _media(message: BaseMessage) -> Iterator[MediaMaker]:
    for block in cast("list[dict[str, Any]]", message.content_blocks):
        kind = block.get("mime_type")
        url = block.get("url") or f"data:{kind or ''};base64,{block.get('base64')}"
        match block["type"]:
            case "image":
                yield partial(ImagePart, url)
            case "audio":
                yield partial(AudioPart, url, kind)
            case "file":
                extras = cast("dict[str, Any]", block.get("extras") or {})
                name = extras.get("filename") or extras.get("name") or block.get("filename")
                yield partial(FilePart, url, name, kind)
            case _:
                pass


def _reasoning(message: AIMessage) -> Iterator[str]:
    for block in message.content_blocks:
        if block["type"] == "reasoning" and (text := block.get("reasoning")):
            yield text


def _from_dict(data: Any) -> BaseMessage:
    return messages_from_dict([data])[0]


def _from_chat(chat: list[dict[str, Any]]) -> list[BaseMessage]:
    return convert_to_messages(
        [{**message, "content": _from_blocks(message["content"] or "")} for message in chat]
    )


def _from_blocks(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return content with files by address in LangChain's own form, as chat APIs have none."""
    if isinstance(content, str):
        return content
    return [_from_block(block) for block in content]


def _from_block(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "file", "file": {"file_url": url, "media_type": kind}}:
            return {"type": "file", "url": url, "mime_type": kind}
        case {"type": "input_audio", "input_audio": {"url": url, "format": format}}:
            return {"type": "audio", "url": url, "mime_type": type_of_name(f".{format}")}
        case _:
            return block


class SennitChatMessageHistory(BranchHistory[BaseMessage], BaseChatMessageHistory):
    """One branch of one session as a chat history."""

    _format = MessageFormat[BaseMessage](
        "langchain",
        write=message_to_dict,
        read=_from_dict,
        contents=_contents,
        from_chat=_from_chat,
        role=lambda message: message.type,
    )

    @property
    def messages(self) -> list[BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The messages, in order."""
        return self._read()

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none."""
        self._append(messages)

    def clear(self) -> None:
        """Remove all messages from the branch; `client.delete_session` erases them."""
        self._clear()

    def fork(self, name: str | None = None) -> SennitChatMessageHistory:
        """Fork the conversation onto a new branch that shares its history.

        Raises ExistsError if the name is taken.
        """
        return self._fork(name)

    afork: Final = async_method(fork)

"""LangChain chat history, stored on a branch.

    history = SennitChatMessageHistory(client, "chat_001")

Messages are returned exactly as they were added; messages from elsewhere on the branch are
converted. A LangChain message with text and tool calls is stored as several messages. A fork can
cut between them; the rest is then converted from the messages that the fork has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from sennit.adapters.branch_history import BranchHistory
from sennit.adapters.message_mapping import MessageFormat, answer, call, instruction, result
from sennit.errors import MissingExtraError
from sennit.messages.content import MessageContent
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
            value = text if isinstance(message.content, str) else cast("Any", message.content)
            yield result(message.tool_call_id, value, failed=message.status == "error")
        case _:
            yield instruction(text, _images(message))


def _images(message: BaseMessage) -> Iterator[str]:
    for block in message.content_blocks:
        if block["type"] != "image":
            continue
        if "url" in block:
            yield block["url"]
        elif "base64" in block:
            yield f"data:{block.get('mime_type', '')};base64,{block['base64']}"


def _reasoning(message: AIMessage) -> Iterator[str]:
    for block in message.content_blocks:
        if block["type"] == "reasoning" and (text := block.get("reasoning")):
            yield text


def _from_dict(data: Any) -> BaseMessage:
    return messages_from_dict([data])[0]


def _from_chat(chat: list[dict[str, Any]]) -> list[BaseMessage]:
    return convert_to_messages(
        [{**message, "content": message["content"] or ""} for message in chat]
    )


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

    afork = async_method(fork)

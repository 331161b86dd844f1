"""LangChain chat history, stored on a branch.

    history = SennitChatMessageHistory(client, "chat_001")

Messages are returned exactly as they were added; messages from elsewhere on the branch are
converted. A LangChain message with text and tool calls is stored as several messages. A fork can
cut between them; the rest is then converted from the messages that the fork has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from sennit.adapters.branch_handle import BranchHandle
from sennit.adapters.message_mapping import (
    MessageFormat,
    answer,
    call,
    instruction,
    result,
    sender_of_role,
)
from sennit.api.client import Client
from sennit.errors import MissingExtraError
from sennit.messages.content import MessageContent
from sennit.sessions.async_method import async_method
from sennit.sessions.branches import DEFAULT_BRANCH

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

_ROLES = {"human": "user", "system": "system", "chat": "user"}


class SennitChatMessageHistory(BaseChatMessageHistory):
    """One branch of one session as a chat history."""

    def __init__(self, client: Client, session_id: str, *, branch: str = DEFAULT_BRANCH) -> None:
        """Address a session by key; it is created on first use."""
        super().__init__()
        self.session_id = session_id
        self._handle = BranchHandle(client, session_id, branch)

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self._handle.branch

    @property
    def messages(self) -> list[BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The messages, in order."""
        return _FORMAT.from_messages(self._handle.messages())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none."""
        new = [
            ours for message in messages for ours in _FORMAT.to_messages(message, _sender(message))
        ]
        if new:
            self._handle.add(new)

    def clear(self) -> None:
        """Remove all messages from the branch; `client.delete_session` erases them."""
        self._handle.clear()

    def fork(self, name: str | None = None) -> SennitChatMessageHistory:
        """Fork the conversation onto a new branch that shares its history.

        Raises ExistsError if the name is taken.
        """
        handle = self._handle.fork(name=name, at=None)
        return SennitChatMessageHistory(handle.client, handle.session, branch=handle.branch)

    afork = async_method(fork)


def _sender(message: BaseMessage) -> Any:
    return sender_of_role(_ROLES.get(message.type, ""))


def _contents(message: BaseMessage) -> Iterator[MessageContent]:
    """Yield the contents of a message."""
    text = str(message.text)
    match message:
        case AIMessage():
            if text or not message.tool_calls:
                yield answer(text)
            for tool_call in message.tool_calls:
                yield call(tool_call["name"], tool_call["args"], tool_call["id"])
        case ToolMessage():
            value = text if isinstance(message.content, str) else cast("Any", message.content)
            yield result(message.tool_call_id, value, failed=message.status == "error")
        case _:
            yield instruction(text, _images(message))


def _images(message: BaseMessage) -> Iterator[str]:
    for block in message.content_blocks:
        if block["type"] == "image" and "url" in block:
            yield block["url"]


def _from_dict(data: Any) -> BaseMessage:
    return messages_from_dict([data])[0]


def _from_chat(chat: list[dict[str, Any]]) -> list[BaseMessage]:
    return convert_to_messages(
        [{**message, "content": message["content"] or ""} for message in chat]
    )


_FORMAT = MessageFormat[BaseMessage](
    "langchain", write=message_to_dict, read=_from_dict, contents=_contents, from_chat=_from_chat
)

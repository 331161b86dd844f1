"""A LangChain chat history on a branch.

    history = SennitChatMessageHistory(client, "chat_001")

Messages come back exactly as they were added. What was said on the branch by other means comes as
LangChain's messages too. A message with text and tool calls is several of ours, which a fork can
cut apart; what is left of it is then told from those.
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
    speaker,
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

_SPEAKERS = {"human": "user", "system": "system", "chat": "user"}


class SennitChatMessageHistory(BaseChatMessageHistory):
    """One branch of one session as a chat history."""

    def __init__(self, client: Client, session_id: str, *, branch: str = DEFAULT_BRANCH) -> None:
        """The session is made when it is first read or written."""
        super().__init__()
        self.session_id = session_id
        self._place = BranchHandle(client, session_id, branch)

    @property
    def branch(self) -> str:
        """The name of its branch."""
        return self._place.branch

    @property
    def messages(self) -> list[BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The messages, in order."""
        return _FORM.theirs(self._place.said())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Keep messages, all or none."""
        new = [one for message in messages for one in _FORM.ours(message, _sender(message))]
        if new:
            self._place.add(new)

    def clear(self) -> None:
        """Take everything off the branch; `client.delete_session` erases it for good."""
        self._place.clear()

    def fork(self, name: str | None = None) -> SennitChatMessageHistory:
        """The same conversation on a new branch; it shares what was said, at any length.

        Raises ExistsError if the name is taken.
        """
        place = self._place.fork(name=name, at=None)
        return SennitChatMessageHistory(place.client, place.session, branch=place.branch)

    afork = async_method(fork)


def _sender(message: BaseMessage) -> Any:
    return speaker(_SPEAKERS.get(message.type, ""))


def _contents(message: BaseMessage) -> Iterator[MessageContent]:
    """Yield the contents of a message."""
    said = str(message.text)
    match message:
        case AIMessage():
            if said or not message.tool_calls:
                yield answer(said)
            for asked in message.tool_calls:
                yield call(asked["name"], asked["args"], asked["id"])
        case ToolMessage():
            given = said if isinstance(message.content, str) else cast("Any", message.content)
            yield result(message.tool_call_id, given, failed=message.status == "error")
        case _:
            yield instruction(said, _images(message))


def _images(message: BaseMessage) -> Iterator[str]:
    for block in message.content_blocks:
        if block["type"] == "image" and "url" in block:
            yield block["url"]


def _restored(written: Any) -> BaseMessage:
    return messages_from_dict([written])[0]


def _told(chat: list[dict[str, Any]]) -> list[BaseMessage]:
    return convert_to_messages([{**one, "content": one["content"] or ""} for one in chat])


_FORM = MessageFormat[BaseMessage](
    "langchain", write=message_to_dict, read=_restored, contents=_contents, tell=_told
)

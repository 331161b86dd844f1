"""OpenAI Agents SDK sessions, stored on a branch.

    Runner.run(agent, "Hello", session=SennitSession(client, "chat_001"))

Each item is one message. Items are returned exactly as the SDK passed them. Messages from elsewhere
on the branch are converted to items, so an agent can continue any conversation, and an agent's
conversation can be searched, remembered and exported like any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sennit.adapters.branch_history import BranchHistory
from sennit.adapters.message_mapping import (
    MediaMaker,
    MessageFormat,
    answer,
    call,
    instruction,
    result,
)
from sennit.api.client import Client
from sennit.errors import MissingExtraError, ValidationError
from sennit.messages.content import MessageContent
from sennit.messages.media import MediaPart, part_of_block
from sennit.messages.openai_responses import input_part, part_of_input
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branches import DEFAULT_BRANCH

try:
    from agents.memory.session_settings import (
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
except ImportError as error:
    raise MissingExtraError.of("sennit.adapters.openai_agents", "openai-agents") from error

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

__all__ = ["SennitSession"]

_Item = dict[str, Any]


def _contents(item: _Item) -> Iterator[MessageContent]:
    """Yield the contents of an item; provider-specific items have none."""
    match item:
        case {"type": "function_call", "name": str(name), "call_id": str(call_id)}:
            yield call(name, item.get("arguments"), call_id)
        case {"type": "function_call_output", "call_id": str(call_id), "output": [*_] as output}:
            yield result(call_id, _text(output), _media(output))
        case {"type": "function_call_output", "call_id": str(call_id)}:
            yield result(call_id, item.get("output"))
        case {"type": "reasoning"}:
            yield answer("", _text(item.get("summary")))
        case {"role": "assistant"}:
            yield answer(_text(item.get("content")))
        case {"role": "user" | "system" | "developer"}:
            yield instruction(_text(item.get("content")), _media(item.get("content")))
        case _:
            pass


def _blocks(content: Any) -> Iterable[Mapping[str, Any]]:
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    return [cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, dict)]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [block.get("text") or block.get("refusal") for block in _blocks(content)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _media(content: Any) -> Iterator[MediaMaker]:
    for block in _blocks(content):
        if block.get("type") in ("input_image", "input_file", "input_audio"):
            yield partial(_part, block)


def _part(block: Mapping[str, Any]) -> MediaPart:
    part = part_of_input(block)
    if part is None:
        raise ValidationError("A file by its id has neither bytes nor an address.")
    return part


def _items_from_chat(chat: Iterable[Mapping[str, Any]]) -> Iterator[_Item]:
    """Convert chat API messages to items."""
    for message in chat:
        match message:
            case {"role": "tool", "tool_call_id": call_id, "content": content}:
                output = content if isinstance(content, str) else list(map(_input_block, content))
                yield {"type": "function_call_output", "call_id": call_id, "output": output}
            case {"role": "assistant"}:
                if message.get("content"):
                    yield {"role": "assistant", "content": message["content"]}
                for tool_call in message.get("tool_calls") or ():
                    yield {
                        "type": "function_call",
                        "call_id": tool_call["id"],
                        **tool_call["function"],
                    }
            case {"role": role, "content": str(text)}:
                yield {"role": role, "content": text}
            case _:
                blocks = [_input_block(block) for block in message["content"]]
                yield {"role": message["role"], "content": blocks}


def _input_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    part = part_of_block(block)
    assert part is not None  # the blocks of a stored message are these
    return input_part(part)


def _to_json_data(item: _Item) -> Any:
    """Return an item as JSON data; it may contain pydantic models of the openai package."""
    return json.loads(json.dumps(item, default=_dump_model))


def _dump_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(
            f"An item contains a {type(value).__name__}, which cannot be encoded as JSON."
        )
    return dump(mode="json", exclude_unset=True)


class SennitSession(BranchHistory[_Item]):
    """A `Session` of the Agents SDK on one branch of one session."""

    _format = MessageFormat[_Item](
        "openai_agents",
        write=_to_json_data,
        read=lambda item: item,
        contents=_contents,
        from_chat=_items_from_chat,
        role=lambda item: str(item.get("role")),
    )

    def __init__(
        self,
        client: Client,
        session_id: str,
        *,
        branch: str = DEFAULT_BRANCH,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Address a session by key; it is created on first use."""
        super().__init__(client, session_id, branch=branch)
        settings = None if session_settings is None else coerce_session_settings(session_settings)
        self.session_settings = settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order; with a limit, the newest ones."""
        max_items = resolve_session_limit(limit, self.session_settings)
        if max_items is not None and max_items <= 0:
            return []
        items = await asyncio.to_thread(self._read, max_items)
        return cast("list[TResponseInputItem]", items if max_items is None else items[-max_items:])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        await asyncio.to_thread(self._append, cast("list[_Item]", items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the newest item; forks of the branch keep it."""
        return await asyncio.to_thread(self._retry, self._pop)

    def _pop(self) -> TResponseInputItem | None:
        branch = self._open()
        with branch.session.lock:
            while len(branch) > (branch.system is not None):
                [newest] = inline_blobs(branch.session, [branch.session.messages.get(branch[-1])])
                branch.pop()
                # A call without a result is converted to two items, of which the call is first.
                items = self._format.from_messages([newest]) or list(
                    self._format.from_chat([newest.chat_msg])
                )
                if items:
                    return cast("TResponseInputItem", items[0])
        return None

    async def clear_session(self) -> None:
        """Remove all items from the branch; `client.delete_session` erases them."""
        await asyncio.to_thread(self._clear)

    async def fork(self, name: str | None = None, *, at: int | None = None) -> SennitSession:
        """Fork the conversation up to and including item `at` onto a new branch.

        The fork shares its history, so the cost does not depend on the length. Raises ExistsError
        if the name is taken, OutOfRangeError if there is no such item.
        """
        return await asyncio.to_thread(self._fork, name, at, session_settings=self.session_settings)

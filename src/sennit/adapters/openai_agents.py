"""A session of the OpenAI Agents SDK on a branch.

    Runner.run(agent, "Hello", session=SennitSession(client, "chat_001"))

Each item is one message. Items come back exactly as the SDK gave them; what was said on the branch
by other means comes as items too, so that an agent can go on with any conversation, and a
conversation that an agent had is searched, remembered and exported like any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

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
from sennit.messages.message import Message
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


class SennitSession:
    """A `Session` of the Agents SDK: one branch of one session."""

    def __init__(
        self,
        client: Client,
        session_id: str,
        *,
        branch: str = DEFAULT_BRANCH,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """The session is made when something is first said."""
        self.session_id = session_id
        settings = None if session_settings is None else coerce_session_settings(session_settings)
        self.session_settings = settings
        self._place = BranchHandle(client, session_id, branch)

    @property
    def branch(self) -> str:
        """The name of its branch."""
        return self._place.branch

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order; with a limit, the newest ones."""
        most = resolve_session_limit(limit, self.session_settings)
        if most is not None and most <= 0:
            return []
        items = _FORM.theirs(await asyncio.to_thread(self._place.said, most))
        return cast("list[TResponseInputItem]", items if most is None else items[-most:])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Keep items, all or none."""
        messages = [one for item in cast("list[_Item]", items) for one in _ours(item)]
        if messages:
            await asyncio.to_thread(self._place.add, messages)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item off the branch; forks of it keep theirs."""
        return await asyncio.to_thread(self._place.take_off, self._pop)

    def _pop(self) -> TResponseInputItem | None:
        branch = self._place.open()
        with branch.session.lock:
            while last := self._place.said(1):
                branch.pop()
                # A call alone is told with a result that it lacks; it is the first of the two.
                items = _FORM.theirs(last) or list(_FORM.tell([last[0].chat_msg]))
                if items:
                    return cast("TResponseInputItem", items[0])
        return None

    async def clear_session(self) -> None:
        """Take everything off the branch; `client.delete_session` erases it for good."""
        await asyncio.to_thread(self._place.clear)

    async def fork(self, name: str | None = None, *, at: int | None = None) -> SennitSession:
        """The same conversation on a new branch, up to and including item `at`.

        It shares what was said and costs the same at any length. Raises ExistsError if the name is
        taken, OutOfRangeError if there is no such item.
        """
        place = await asyncio.to_thread(self._place.fork, name=name, at=at)
        return SennitSession(
            place.client,
            place.session,
            branch=place.branch,
            session_settings=self.session_settings,
        )


def _ours(item: _Item) -> list[Message]:
    return _FORM.ours(item, speaker(str(item.get("role"))))


def _contents(item: _Item) -> Iterator[MessageContent]:
    """Yield the contents of an item; provider-specific items have none."""
    match item:
        case {"type": "function_call", "name": str(name), "call_id": str(call_id)}:
            yield call(name, item.get("arguments"), call_id)
        case {"type": "function_call_output", "call_id": str(call_id)}:
            yield result(call_id, item.get("output"))
        case {"type": "reasoning"}:
            yield answer("", _words(item.get("summary")))
        case {"role": "assistant"}:
            yield answer(_words(item.get("content")))
        case {"role": "user" | "system" | "developer"}:
            yield instruction(_words(item.get("content")), _images(item.get("content")))
        case _:
            pass


def _blocks(content: Any) -> Iterable[Mapping[str, Any]]:
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    return [cast("Mapping[str, Any]", one) for one in listed if isinstance(one, dict)]


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    told = [block.get("text") or block.get("refusal") for block in _blocks(content)]
    return "\n\n".join(text for text in told if isinstance(text, str))


def _images(content: Any) -> list[str]:
    found = [block.get("image_url") for block in _blocks(content)]
    return [url for url in found if isinstance(url, str)]


def _items(chat: Iterable[Mapping[str, Any]]) -> Iterator[_Item]:
    """The items for messages of a chat API."""
    for message in chat:
        match message:
            case {"role": "tool", "tool_call_id": call_id, "content": said}:
                yield {"type": "function_call_output", "call_id": call_id, "output": said}
            case {"role": "assistant"}:
                if message.get("content"):
                    yield {"role": "assistant", "content": message["content"]}
                for asked in message.get("tool_calls") or ():
                    yield {"type": "function_call", "call_id": asked["id"], **asked["function"]}
            case {"role": role, "content": str(said)}:
                yield {"role": role, "content": said}
            case _:
                blocks = [_input_block(block) for block in message["content"]]
                yield {"role": message["role"], "content": blocks}


def _input_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    image = block["image_url"]
    return {"type": "input_image", "image_url": image["url"], "detail": image["detail"]}


def _written(item: _Item) -> Any:
    """An item as it is; some come as models of the provider's package."""
    return json.loads(json.dumps(item, default=_dumped))


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(
            f"An item contains a {type(value).__name__}, which cannot be encoded as JSON."
        )
    return dump(mode="json", exclude_unset=True)


def _same(item: Any) -> _Item:
    return item


_FORM = MessageFormat[_Item](
    "openai_agents", write=_written, read=_same, contents=_contents, tell=_items
)

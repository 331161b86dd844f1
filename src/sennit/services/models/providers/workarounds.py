"""Workarounds for what pydantic-ai 2.66 to 2.68 loses of replies, in both directions.

Its own types of replies lack what is new or rare, its translation of them back into a request
lacks more, and it raises on some of it. So the events of a reply are taken from the SDK below
it, and its items go back as they came. Only methods of one model or its SDK client are wrapped,
not of the package:

- `_process_response` and `_process_streamed_response` return the JSON of the reply;
- the method that translates messages puts the items of a reply in place of a text that marks them;
- the same method names files, which it calls "filename.pdf" or leaves without a title;
- the SDK of Google drops fields that it does not know, so its JSON is passed around it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from json import dumps, loads
from typing import Any, Literal, TypeAlias

from sennit.errors import ModelError
from sennit.services.models.providers.items import (
    Item,
    array,
    client_call,
    items_to_send,
    mapping,
    message_of_blocks,
    message_to_send,
    result_of,
)
from sennit.services.models.providers.translate import ITEMS_MARK, layer

API: TypeAlias = Literal["chat", "responses", "anthropic", "google"]
"""The API of a provider."""
_REPLY = "reply"
"""The key of a reply's JSON in the metadata of a pydantic-ai response."""
_APIS: Mapping[str, tuple[API, str]] = {
    "_completions_create": ("chat", "_map_messages"),
    "_responses_create": ("responses", "_map_messages"),
    "_messages_create": ("anthropic", "_map_message"),
    "_generate_content": ("google", "_map_messages"),
}
"""The APIs and the methods that translate messages, by a method that only such a model has."""
_ERROR_MAPPERS: Mapping[API, Sequence[tuple[str, str]]] = {
    "chat": [("openai._errors", "map_api_errors"), ("openai", "_map_api_errors")],
    "responses": [("openai._errors", "map_api_errors"), ("openai", "_map_api_errors")],
    "anthropic": [("anthropic._errors", "map_api_errors")],
    "google": [("google", "_map_api_errors")],
}
"""The functions that turn the errors of an SDK into those of pydantic-ai."""


def pass_json_through(model: Any, provider: str) -> API:
    """Make a model of pydantic-ai return and send the JSON of replies; return its API."""
    api, mapper = next(_APIS[name] for name in _APIS if hasattr(model, name))
    model._process_response = _whole_reply
    model._process_streamed_response = partial(_streamed_reply, model, api)
    setattr(model, mapper, partial(_map_with_items, getattr(model, mapper), api, provider))
    if api == "google":
        client = model.client._api_client
        client.async_request = partial(_google_request, client.async_request)
        client.async_request_streamed = partial(_google_stream, client.async_request_streamed)
    return api


# Replies


async def _streamed_reply(model: Any, api: API, response: Any, *_: Any, **__: Any) -> ReplyEvents:
    return ReplyEvents(response, _error_mapper(model, api))


def _whole_reply(response: Any, *_: Any, **__: Any) -> layer.ModelResponse:
    return layer.ModelResponse(parts=[], metadata={_REPLY: _as_json(response)})


def whole_reply(response: layer.ModelResponse) -> tuple[Any, Sequence[Any]]:
    """Return the JSON of a whole reply, or the events of one that was streamed internally."""
    match (response.metadata or {}).get(_REPLY):
        case [*events]:
            return None, events
        case body:
            return body, ()


def _as_json(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise ModelError("Expected a JSON response.", kind="malformed")
    if hasattr(value, "to_dict"):
        return value.to_dict(mode="json", warnings=False)
    return loads(value.candidates[0].content.parts[0].text)  # of Google


class ReplyEvents:
    """The events of a streamed reply as JSON."""

    def __init__(self, events: Any, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._events = aiter(events)
        self._errors = errors
        self._read: list[Any] = []

    async def read(self) -> AsyncIterator[Any]:
        """Yield the events."""
        is_empty = True
        while True:
            with self._errors():
                event = await anext(self._events, None)
            if event is None:
                break
            is_empty = False
            yield _as_json(event)
        if is_empty:
            raise ModelError("the reply is empty.", kind="malformed")

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield the events and keep them: pydantic-ai streams some whole replies internally."""
        async for event in self.read():
            self._read.append(event)
            yield event

    def get(self) -> layer.ModelResponse:
        """Return the events that were kept."""
        return layer.ModelResponse(parts=[], metadata={_REPLY: self._read})


def _error_mapper(model: Any, api: API) -> Callable[[], AbstractContextManager[None]]:
    for module, name in _ERROR_MAPPERS[api]:
        try:
            mapper = getattr(import_module(f"pydantic_ai.models.{module}"), name)
        except (ImportError, AttributeError):
            continue
        return partial(mapper, model.model_name, model._provider.model_id_namespace)
    raise AssertionError(f"pydantic-ai maps no errors of {api!r}")


# Google's SDK


async def _google_request(send: Callable[..., Awaitable[Any]], *request: Any) -> Any:
    response = await send(*_google_items(request))
    response.body = _wrapped(response.body)
    return response


async def _google_stream(send: Callable[..., Awaitable[Any]], *request: Any) -> Any:
    return _wrapped_events(await send(*_google_items(request)))


async def _wrapped_events(responses: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for response in responses:
        response.body = _wrapped(response.body)
        yield response


def _wrapped(body: str) -> str:
    """Return a response whose only text is the JSON of a response.

    The SDK needs the reason to continue a reply, and nothing else of it.
    """
    candidate = mapping(next(iter(array(loads(body or "{}").get("candidates"))), None))
    names = ("finishReason", "continuationToken")
    more = {name: candidate[name] for name in names if name in candidate}
    content = {"role": "model", "parts": [{"text": body or "{}"}]}
    return dumps({"candidates": [{"content": content, **more}]})


def _google_items(request: Sequence[Any]) -> Sequence[Any]:
    """Return a request with items in place of their marks, and results without unknown ids."""
    method, path, body, *options = request
    contents = [_google_content(content) for content in body.get("contents") or ()]
    ids: set[Any] = set()
    for content in contents:
        for part in content.get("parts") or ():
            result: dict[str, Any] = part.get("functionResponse") or {}
            if content.get("role") == "model":
                ids.add(mapping(part.get("functionCall")).get("id"))
            elif result.get("id") not in ids:
                result.pop("id", None)
    return method, path, {**body, "contents": contents}, *options


def _google_content(content: Any) -> Any:
    match content:
        case {"parts": [{"text": str(mark)}]} if mark.startswith(ITEMS_MARK):
            return {**content, "parts": _items(mark)}
        case _:
            return content


# Requests


def _items(mark: str) -> list[Any]:
    return loads(mark.removeprefix(ITEMS_MARK))


async def _map_with_items(
    map_messages: Callable[..., Awaitable[Any]], api: API, provider: str, *args: Any, **options: Any
) -> Any:
    """Translate messages, with the items of replies in place of the texts that mark them."""
    mapped = await map_messages(*args, **options)
    _name_files(args[0], mapped)
    if api == "google":  # its SDK would drop fields
        return mapped
    system, messages = (None, mapped) if api == "chat" else mapped
    calls: dict[str, Item] = {}
    sent = [one for each in messages for one in _with_items(each, api, provider, calls)]
    if api == "anthropic":
        sent = [message_of_blocks(one) for one in sent[:-1]] + sent[-1:]  # the last is continued
    return sent if api == "chat" else (system, sent)


def _with_items(message: Any, api: API, provider: str, calls: dict[str, Item]) -> list[Any]:
    """Return what is sent for a message; `calls` are those of OpenAI so far, by id."""
    match message:
        case {"role": "assistant", "content": str(mark) | [{"text": str(mark)}]} if mark.startswith(
            ITEMS_MARK
        ):
            items = _items(mark)
        case {"type": "function_call_output", "call_id": id} if id in calls:
            return [result_of(calls[id], message)]
        case _:
            return [message]
    if api == "chat":
        return [message_to_send(items, provider)]
    if api == "anthropic":
        return [{**message, "content": items}]
    for item in items:
        if client_call(item) or item.get("type") == "function_call":
            calls[item["call_id"]] = item
    return items_to_send(items)


def _name_files(messages: Sequence[layer.ModelMessage], mapped: Any) -> None:
    """Name the files in a request of OpenAI's and Anthropic's APIs."""
    contents = [getattr(part, "content", None) for message in messages for part in message.parts]
    lists = [array(content) for content in contents if isinstance(content, list)]
    files = [item for items in lists for item in items if isinstance(item, layer.BinaryContent)]
    if names := {file.base64: file.identifier for file in files if "." in file.identifier}:
        _name_blocks(mapped, names)


def _name_blocks(value: Any, names: Mapping[str, str]) -> None:
    """Name the files with these bytes, in base64."""
    match value:
        case [*items]:
            for item in items:
                _name_blocks(item, names)
        case {"type": "document", "source": {"type": "base64", "data": str(data)}}:
            if data in names:
                value["title"] = names[data]
        case {"file_data": str(url), "filename": str()}:
            value["filename"] = names.get(url.partition(",")[2], value["filename"])
        case {"file": inner} | {"content": [*_] as inner} | {"output": [*_] as inner}:
            _name_blocks(inner, names)
        case _:
            pass

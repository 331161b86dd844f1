"""/v1/responses over a WebSocket: one connection for many responses.

    {"type": "response.create", "model": "…", "input": "…"}  ->  the events of a response's stream

Each event of the client becomes a request to POST /v1/responses of this app, so authentication,
limits, quotas and validation are those of HTTP, for each response anew. Beside them the connection
counts as a stream of its token. Responses of one `stream_id` follow each other, those of several
run at the same time. A response that is not stored can be continued on its connection, as long as
it is among the last ones there.
"""

from __future__ import annotations

from asyncio import Event, Lock, Task, create_task, gather
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from sennit import clock
from sennit.ids import new_id
from sennit.server.http.endpoint import decode_json
from sennit.server.http.errors import HTTPError, bad_param
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Message, Receive, Send
from sennit.server.openai.item_schemas import ResponsesRequest
from sennit.server.openai.response_builder import ResponseHead, echoed_params, usage
from sennit.services.models.reply import Usage

PATH = "/v1/responses"
MAX_PENDING = 64
"""The maximum number of responses that a connection generates, or has waiting, at once."""

_MAX_STREAM_ID_CHARS = 64  # it is repeated in each event
_MAX_REMEMBERED = 16  # responses of a connection that are not stored
_FORWARDED_HEADERS = (b"host", b"origin", b"sec-fetch-site", b"authorization", b"x-api-key")
# Close codes: the token was revoked; an event is too large; a response was cut off.
_GONE, _TOO_LARGE, _FAILED = 1008, 1009, 1011
_ENDS = {b"response.completed", b"response.incomplete", b"response.failed"}
_Fields = dict[str, msgspec.Raw]


class RecentDict(OrderedDict[str, Any]):
    """A dict that keeps the values added last."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > _MAX_REMEMBERED:
            self.popitem(last=False)


async def serve_websocket(app: ASGIApp, scope: HttpScope, receive: Receive, send: Send) -> None:
    """Serve a connection with the responses of an app; raise HTTPError 429 for too many."""
    await _Connection(app, scope, receive, send).run()


class _Connection:
    """A connection, the responses under way on it, and those that it remembers."""

    def __init__(self, app: ASGIApp, scope: HttpScope, receive: Receive, send: Send) -> None:
        self._app, self._scope, self._receive, self._send = app, scope, receive, send
        self._gone = Event()
        self._tasks: set[Task[None]] = set()
        self._lanes: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._prepared: RecentDict = RecentDict()
        """The inputs that a client sent ahead with `generate: false`, by response id."""
        self.unstored: RecentDict = RecentDict()
        """The sessions of responses that are not stored, by response id."""

    async def run(self) -> None:
        """Answer events until the client disconnects; then stop the responses under way."""
        share = self._scope["state"]["share"]
        share.open_stream()
        await self._receive()  # "websocket.connect"
        await self._send({"type": "websocket.accept"})
        share.attach(self)
        try:
            while (message := await self._receive())["type"] != "websocket.disconnect":
                data: str | bytes = message.get("text") or message.get("bytes") or b""
                data = data.encode() if isinstance(data, str) else data
                if len(data) > share.caller.limits.body_bytes:
                    await self._close(_TOO_LARGE, "An event is larger than a body may be.")
                    return
                self._begin(data)
        finally:
            self._gone.set()
            await gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Close the connection: its token was revoked or changed."""
        self._spawn(self._close(_GONE, "The token was revoked or changed."))

    def _begin(self, data: bytes) -> None:
        """Start to answer an event of the client."""
        if len(self._tasks) >= MAX_PENDING:
            message = f"A connection may have {MAX_PENDING} responses at once; wait for some."
            self._spawn(self._refuse(HTTPError(429, "too_many_responses", message), None))
        else:
            self._spawn(self._handle(data))

    def _spawn(self, work: Any) -> None:
        task = create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, code: int, reason: str) -> None:
        with suppress(OSError):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _handle(self, data: bytes) -> None:
        lane: str | None = None
        try:
            fields = decode_json(data, _Fields, 400)
            kind = _text(fields, "type")
            lane = _stream_id(fields)
            if kind == "response.steer":
                await self._refuse_steering(fields)
                return
            if kind != "response.create":
                message = f"'type' must be 'response.create', got {(kind or '')[:100]!r}."
                raise bad_param("type", message)
            async with self._lanes.setdefault(lane or "", Lock()):
                await self._create(fields, lane)
        except HTTPError as problem:
            await self._refuse(problem, lane)

    async def _create(self, fields: _Fields, lane: str | None) -> None:
        if _value(fields, "background"):
            raise bad_param("background", "A response over a WebSocket is not in the background.")
        self._merge_prepared(fields)
        generates = _value(fields, "generate") is not False
        for name in ("type", "stream_id", "generate", "background", "stream"):
            fields.pop(name, None)
        if not generates:
            await self._prepare(fields, lane)
            return
        body = msgspec.json.encode({**fields, "stream": True})
        response = _Response(self, lane)
        await self._ask(PATH, body, response.send)
        if not response.ended and not self._gone.is_set():
            await self._close(_FAILED, "A response was cut off.")

    async def _prepare(self, fields: _Fields, lane: str | None) -> None:
        """Check an input, keep it for the next response, and answer with an empty response."""
        body = msgspec.json.encode(fields)
        answer = _Response(self, lane)
        await self._ask(f"{PATH}/input_tokens", body, answer.send)
        if answer.status != 200:
            return
        params = echoed_params(decode_json(body, ResponsesRequest, 400))
        head = ResponseHead(f"resp_{new_id().hex}", clock.now_us() // 1_000_000, params)
        self._prepared[head.id] = fields
        done = head.build("completed", [], usage=usage(Usage()), completed_at=head.created)
        for number, response in enumerate((head.build("in_progress", []), done)):
            kind = "response.completed" if response is done else "response.created"
            event = {"type": kind, "sequence_number": number, "response": response}
            await self.send_event(msgspec.json.encode(event), lane)

    def _merge_prepared(self, fields: _Fields) -> None:
        """Put an input that was sent ahead before that of the response which continues it."""
        previous = self._prepared.get(_text(fields, "previous_response_id") or "")
        if previous is None:
            return
        fields["input"] = msgspec.Raw(msgspec.json.encode([*_items(previous), *_items(fields)]))
        del fields["previous_response_id"]
        for name in ("previous_response_id", "conversation"):
            if name in previous:
                fields[name] = previous[name]

    async def _ask(self, path: str, body: bytes, send: Send) -> None:
        """Send a request to the app, with the headers of the connection."""
        sent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if sent:
                return sent.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        headers = [
            (name, value)
            for name, value in self._scope["headers"]
            if name in _FORWARDED_HEADERS or name.startswith(b"x-sennit-")
        ]
        length = str(len(body)).encode()
        headers += [(b"content-type", b"application/json"), (b"content-length", length)]
        scope: dict[str, Any] = {
            **{name: self._scope[name] for name in ("asgi", "http_version", "server", "client")},
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "state": {"unstored": self.unstored},
        }
        await self._app(scope, receive, send)

    async def send_event(self, event: bytes, lane: str | None) -> None:
        """Send an event, with the `stream_id` that the client gave."""
        if lane is not None:
            event = b'{"stream_id":' + msgspec.json.encode(lane) + b"," + event[1:]
        with suppress(OSError):  # the client has disconnected, which `run` sees
            await self._send({"type": "websocket.send", "text": event.decode()})

    async def _refuse(self, problem: HTTPError, lane: str | None) -> None:
        headers = {"retry-after": "2"} if problem.status == 429 else {}
        await self.send_error(problem.status, problem.to_dict()["error"], headers, lane)

    async def send_error(
        self, status: int, error: Mapping[str, Any], headers: Mapping[str, str], lane: str | None
    ) -> None:
        """Send an error event."""
        event = {"type": "error", "status": status, "error": {**error, "headers": headers}}
        await self.send_event(msgspec.json.encode(event), lane)

    async def _refuse_steering(self, fields: _Fields) -> None:
        """Return the input of a `response.steer`: no response can be steered."""
        message = "Responses cannot be steered here; send the input with the next response."
        error = {"type": "invalid_request_error", "code": "steering_not_supported"}
        steer = {name: fields[name] for name in ("previous_response_id", "input") if name in fields}
        event = {
            "type": "response.steer.failed",
            "sequence_number": 0,
            "error": {**error, "message": message},
            "steer": steer,
        }
        await self.send_event(msgspec.json.encode(event), None)


class _Response:
    """The ASGI `send` of a request for a response, which passes its events on."""

    def __init__(self, connection: _Connection, lane: str | None) -> None:
        self._connection, self._lane = connection, lane
        self.status = 200
        self.ended = False
        """Whether the client knows how the response ended."""
        self._headers: dict[str, str] = {}
        self._body = b""

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [
                (name.decode(), value.decode("latin-1")) for name, value in message["headers"]
            ]
            self._headers = {name: value for name, value in headers if name == "retry-after"}
        elif self.status != 200:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                error = msgspec.json.decode(self._body)["error"]
                self.ended = True
                status, headers = self.status, self._headers
                await self._connection.send_error(status, error, headers, self._lane)
        else:
            for block in message.get("body", b"").split(b"\n\n"):
                await self._send_event(block)

    async def _send_event(self, block: bytes) -> None:
        """Pass on one server-sent event, which may be a comment or the end of the stream."""
        head, _, data = block.partition(b"\ndata: ")
        kind = head.removeprefix(b"event: ")
        if data:
            self.ended = self.ended or kind in _ENDS
            await self._connection.send_event(data, self._lane)


def _value(fields: _Fields, name: str) -> Any:
    return decode_json(bytes(fields[name]), object, 400) if name in fields else None


def _text(fields: _Fields, name: str) -> str | None:
    value = _value(fields, name)
    if value is not None and not isinstance(value, str):
        raise bad_param(name, f"{name!r} must be a text.")
    return value


def _stream_id(fields: _Fields) -> str | None:
    lane = _text(fields, "stream_id")
    if lane is not None and len(lane) > _MAX_STREAM_ID_CHARS:
        message = (
            f"'stream_id' may have at most {_MAX_STREAM_ID_CHARS} characters, got {len(lane):,}."
        )
        raise bad_param("stream_id", message)
    return lane


def _items(fields: _Fields) -> list[Any]:
    """Return the items of an input, which may be the text of a user."""
    text = _value(fields, "input")
    if isinstance(text, str):
        return [{"role": "user", "content": text}]
    return decode_json(bytes(fields.get("input", b"[]")), list[Any], 400)

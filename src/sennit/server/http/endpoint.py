"""Endpoints: a route with its method, scope, request and response models.

A handler is decorated with all of them, and the checks, the OpenAPI description and the
documentation are made from that one place, so they cannot disagree. The handler gets an HTTPRequest
whose query and body are validated already, and returns a value or a Response.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
)

import msgspec

from sennit.server.http.errors import JSON, PRIVATE, HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.http.tokens import Scope

if TYPE_CHECKING:
    from sennit.server.http.callers import Caller
    from sennit.server.http.starlette_imports import HttpScope, Receive
    from sennit.server.settings import Limits
    from sennit.server.state import ServerState

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
_T = TypeVar("_T")
_A = TypeVarTuple("_A")
FEW = 64
SMALL = 16_384
"""Bytes of a body up to which it is decoded on the event loop."""

_encoder = msgspec.json.Encoder()
# A string that does not end reaches to the end of the body. If the closing quote were required, the
# search would start again at each quote inside: in quadratic time, with the interpreter locked.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{,])', re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class ResponseModel(msgspec.Struct):
    """Something that is answered; a field that is UNSET is left out."""


class RequestModel(msgspec.Struct, forbid_unknown_fields=True):
    """Something that is asked: a body or a query. What it does not name is refused."""


@dataclass(slots=True)
class HTTPRequest:
    """One request, as a handler sees it."""

    server: ServerState
    caller: Caller
    path: dict[str, str]
    """What stands in the braces of the path, decoded."""
    query: Any
    """The query, as the endpoint's `query` says."""
    body: Any
    """The body, as the endpoint's `body` says."""
    http: HttpScope
    receive: Receive
    headers: dict[bytes, bytes]
    """The headers by their names in small letters; of several the first."""

    @property
    def limits(self) -> Limits:
        """The limits per request of whoever asks."""
        return self.server.limits_of(self.caller)

    @property
    def is_large(self) -> bool:
        """True if the body is too large to be worked on by the event loop."""
        length = self.header("content-length")
        return length is None or not length.isdigit() or int(length) > SMALL

    async def build(self, size: int, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Do work on that many things: at once if they are few, else in a thread."""
        if size <= FEW:
            return work(*args)
        return await self.server.work.run(self.caller, work, *args)

    def check_count(self, count: int, limit: int, unit: str) -> None:
        """Raise HTTPError 413 for a request with too many of something."""
        if count > limit:
            message = f"A request may have {limit:,} {unit}, got {count:,}; send fewer at a time."
            raise HTTPError(413, "too_many", message, param=unit)

    def open_stream(self) -> None:
        """Take one of the caller's places for event streams; raises HTTPError 429."""
        self.http["state"]["share"].open_stream()

    def header(self, name: str) -> str | None:
        """A header, if it was sent."""
        value = self.headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")


Handler: TypeAlias = Callable[[HTTPRequest], Awaitable[Any]]
_H = TypeVar("_H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method and a path, who may use it, what it takes and what it gives."""

    method: Method
    path: str
    handle: Handler
    scope: Scope | None
    """What a token must allow; None if nobody has to say who they are."""
    summary: str
    """What it does, in a few words."""
    query: type[RequestModel] | None = None
    body: type[RequestModel] | None = None
    misfit: int = 422
    """The status for a body that is JSON but does not fit."""
    answer: Any = None
    """The type of what it gives; None if that is nothing, or no JSON."""
    status: int = 200
    media: str = JSON
    stops: bool = False
    """Whether it only stops something, which a full quota must not prevent."""

    @property
    def adds(self) -> bool:
        """True if it may store something, for which the caller's quota is asked."""
        changes = self.scope in ("write", "run") and self.method in ("POST", "PUT")
        return changes and not self.stops


class EndpointOptions(TypedDict, total=False):
    """The fields of an Endpoint beside its method, path and handler."""

    scope: Required[Scope | None]
    summary: Required[str]
    query: type[RequestModel]
    body: type[RequestModel]
    misfit: int
    answer: Any
    status: int
    media: str
    stops: bool


class Routes(list[Endpoint]):
    """The endpoints of a module, added by decorating their handlers."""

    def get(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[_H], _H]:
        """Add a GET endpoint."""
        return self._adder("GET", path, options)

    def post(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[_H], _H]:
        """Add a POST endpoint."""
        return self._adder("POST", path, options)

    def put(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[_H], _H]:
        """Add a PUT endpoint."""
        return self._adder("PUT", path, options)

    def delete(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[_H], _H]:
        """Add a DELETE endpoint."""
        return self._adder("DELETE", path, options)

    def _adder(self, method: Method, path: str, options: EndpointOptions) -> Callable[[_H], _H]:
        def add(handler: _H) -> _H:
            self.append(Endpoint(method=method, path=path, handle=handler, **options))
            return handler

        return add


def ok(value: Any, status: int = 200, headers: Mapping[str, str] = PRIVATE) -> Response:
    """A value as JSON."""
    return Response(_encoder.encode(value), status, headers, JSON)


def within(values: Iterable[_T], max_bytes: int) -> Iterator[_T]:
    """As many values as fit into an answer of so many bytes, and at least one."""
    remaining = max_bytes
    for number, value in enumerate(values):
        remaining -= len(_encoder.encode(value))
        if remaining < 0 and number:
            return
        yield value


def read_json(data: bytes, kind: type[_T], status: int = 422) -> _T:
    """Parse the body; raises HTTPError 400 for invalid JSON, `misfit` if it does not fit."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _does_not_fit(error, status) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HTTPError(400, "malformed", f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise HTTPError(400, "too_deep", "The body is nested too deeply.") from None


def read_large(data: bytes, kind: type[_T], status: int, max_values: int) -> _T:
    """The same for a body of any size; raises HTTPError 413 for one with too many JSON values."""
    check_values(data, max_values)
    return read_json(data, kind, status)


def check_values(data: bytes, max_values: int) -> None:
    """Raise HTTPError 413 for JSON with too many values, without decoding it."""
    # Counting all separators is quick; only if there are many, those in strings are left out.
    if sum(map(data.count, (b"{", b"[", b","))) > max_values:
        separators = (match for match in _TOKEN.finditer(data) if match[1])
        if next(islice(separators, max_values, None), None) is not None:
            message = f"A body may hold {max_values:,} JSON values; send fewer at a time."
            raise HTTPError(413, "too_many", message, param="values")


def read_query(params: dict[str, Any], kind: type[_T]) -> _T:
    """The query as a shape; raises HTTPError 422 for what does not fit."""
    try:
        return msgspec.convert(params, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _does_not_fit(error) from None


def _does_not_fit(error: msgspec.ValidationError, status: int = 422) -> HTTPError:
    reason, _, path = str(error).partition(" - at `$")
    param = path.rstrip("`").lstrip(".") or None
    if (unknown := _UNKNOWN.fullmatch(reason)) is not None:
        name = ".".join(part for part in (param, unknown[1]) if part)
        return HTTPError(status, "invalid", f"Unknown field {name!r}.", param=name)
    message = f"{reason} in {param!r}." if param else f"{reason}."
    return HTTPError(status, "invalid", message, param=param)

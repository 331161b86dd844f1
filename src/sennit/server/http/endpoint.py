"""Endpoints: a route with its method, scope, request and response models.

The decorator and the signature of a handler declare all of them; validation, the OpenAPI document
and the docs are generated from these, so they cannot disagree. A handler gets an HTTPRequest, then
its validated `query` and `body` if it has such parameters, and returns a value or a Response.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
    get_type_hints,
)

import msgspec

from sennit.server.http.errors import JSON, PRIVATE, HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.http.tokens import Scope

if TYPE_CHECKING:
    from sennit.api.session import Session
    from sennit.server.http.callers import Caller
    from sennit.server.http.starlette_imports import HttpScope, Receive
    from sennit.server.settings import Limits
    from sennit.server.state import ServerState
    from sennit.sessions.branch import Branch

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
_T = TypeVar("_T")
_A = TypeVarTuple("_A")
MAX_INLINE_ITEMS = 64
MAX_INLINE_BYTES = 16_384
"""The size up to which a body is decoded on the event loop."""

_encoder = msgspec.json.Encoder()
# The closing quote is optional: an unterminated string then matches to the end of the body instead
# of being retried at each quote inside, in quadratic time and with the GIL held.
_JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{,])', re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class ResponseModel(msgspec.Struct):
    """A JSON response, or a part of one; fields that are UNSET are omitted."""


class RequestModel(msgspec.Struct, forbid_unknown_fields=True):
    """A request body or query, or a part of one; unknown fields are rejected."""

    takes_unknown: ClassVar[bool] = False
    """Whether unknown fields of a body are noted in the response instead, in `x-ignored-fields`."""


@dataclass(slots=True)
class HTTPRequest:
    """A request, as a handler gets it."""

    server: ServerState
    caller: Caller
    path: dict[str, str]
    """The path parameters, decoded."""
    http: HttpScope
    receive: Receive
    headers: dict[bytes, bytes]
    """The headers by their lowercase names; the first of duplicates."""
    ignored: Sequence[str] = ()
    """The unknown fields of the body."""

    async def session(self) -> Session:
        """Return the session in the path, up to date; raise NotFoundError if there is none."""
        return await self.caller.session(self.path["session"])

    async def branch(self) -> Branch:
        """Return the branch in the path, up to date; raise NotFoundError if there is none."""
        return await self.caller.branch(self.path["session"], self.path["branch"])

    @property
    def limits(self) -> Limits:
        """The limits per request of the caller."""
        return self.caller.limits

    @property
    def is_large(self) -> bool:
        """True if the body is too large, or of unknown size, to process on the event loop."""
        length = self.header("content-length")
        return length is None or not length.isdigit() or int(length) > MAX_INLINE_BYTES

    async def build(self, size: int, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Do work on `size` items: directly if they are few, else in a thread."""
        if size <= MAX_INLINE_ITEMS:
            return work(*args)
        return await self.server.work.run(self.caller, work, *args)

    def check_count(self, count: int, limit: int, unit: str) -> None:
        """Raise HTTPError 413 if a request has more items than the limit."""
        if count > limit:
            message = f"A request may have {limit:,} {unit}, got {count:,}; send fewer at a time."
            raise HTTPError(413, "too_many", message, param=unit)

    def open_stream(self) -> None:
        """Count an event stream of the caller; raise HTTPError 429 if it has too many."""
        self.http["state"]["share"].open_stream()

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if it was not sent."""
        value = self.headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")


Handler: TypeAlias = Callable[..., Awaitable[Any]]
_H = TypeVar("_H", bound=Handler)


class EndpointOptions(TypedDict, total=False):
    """The fields of an Endpoint that its decorator sets."""

    scope: Required[Scope | None]
    answer: Any
    status: int
    media: str
    stops: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method and a path, with the scope, the models and the handler."""

    method: Method
    path: str
    handle: Handler
    scope: Scope | None
    """The scope that a token needs; None for a public endpoint."""
    summary: str
    """The summary in the OpenAPI document."""
    query: type[RequestModel] | None = None
    body: type[RequestModel] | None = None
    answer: Any = None
    """The type of the response; None if there is no body, or it is not JSON."""
    status: int = 200
    media: str = JSON
    stops: bool = False
    """Whether it only stops something, so an exhausted quota must not prevent it."""

    @classmethod
    def of(cls, method: Method, path: str, handle: Handler, options: EndpointOptions) -> Endpoint:
        """Return the endpoint of a handler: its models are its annotations, its summary its doc."""
        hints, doc = get_type_hints(handle), handle.__doc__ or ""
        fields: dict[str, Any] = {
            "summary": doc.partition("\n")[0].rstrip("."),
            "query": hints.get("query") or hints.get("_query"),
            "body": hints.get("body"),
            "answer": hints["return"],
            "status": 204 if hints["return"] is type(None) else 200,
            **options,
        }
        return cls(method=method, path=path, handle=handle, **fields)

    @property
    def adds(self) -> bool:
        """True if it may store something, so the caller's quota is checked."""
        changes = self.scope in ("write", "run") and self.method in ("POST", "PUT")
        return changes and not self.stops

    @property
    def validation_status(self) -> int:
        """The status for a body that is JSON but does not match the model."""
        return 400 if self.path.startswith("/v1/") else 422  # OpenAI's clients expect 400


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
            self.append(Endpoint.of(method, path, handler, options))
            return handler

        return add


def ok(value: Any, status: int = 200, headers: Mapping[str, str] = PRIVATE) -> Response:
    """Return a JSON response."""
    return Response(_encoder.encode(value), status, headers, JSON)


def fitting(values: Iterable[_T], max_bytes: int) -> Iterator[_T]:
    """Yield as many values as fit into `max_bytes` of JSON, and at least one."""
    remaining = max_bytes
    for number, value in enumerate(values):
        remaining -= len(_encoder.encode(value))
        if remaining < 0 and number:
            return
        yield value


def decode_json(data: bytes, kind: type[_T], status: int = 422) -> _T:
    """Decode a body; raise HTTPError 400 for invalid JSON, `status` for another structure."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _validation_error(error, status) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise HTTPError(400, "malformed", f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise HTTPError(400, "too_deep", "The body is nested too deeply.") from None


def decode_body(
    data: bytes, kind: type[RequestModel], status: int, max_values: int | None = None
) -> tuple[RequestModel, list[str]]:
    """Decode a body and return the names of its unknown fields, if its model takes any.

    Raises HTTPError as `decode_json`, and 413 if it has more than `max_values` JSON values.
    """
    if max_values is not None:
        check_value_count(data, max_values)
    try:
        return decode_json(data, kind, status), []
    except HTTPError:
        fields = _top_level_fields(data) if kind.takes_unknown else {}
        known = kind.__struct_encode_fields__
        ignored = [name for name in fields if name not in known]
        if not ignored:
            raise
        rest = {name: value for name, value in fields.items() if name in known}
        return decode_json(_encoder.encode(rest), kind, status), ignored


def _top_level_fields(data: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def check_value_count(data: bytes, max_values: int) -> None:
    """Raise HTTPError 413 for JSON with too many values, without decoding it."""
    # Counting all separators is fast; only if there are many, those in strings are excluded.
    if sum(map(data.count, (b"{", b"[", b","))) > max_values:
        separators = (match for match in _JSON_TOKEN.finditer(data) if match[1])
        if next(islice(separators, max_values, None), None) is not None:
            message = f"A body may have at most {max_values:,} JSON values; send fewer at a time."
            raise HTTPError(413, "too_many", message, param="values")


def decode_query(params: dict[str, Any], kind: type[_T]) -> _T:
    """Convert the query to its model; raise HTTPError 422 if it does not match."""
    try:
        return msgspec.convert(params, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_error(error) from None


def _validation_error(error: msgspec.ValidationError, status: int = 422) -> HTTPError:
    reason, _, path = str(error).partition(" - at `$")
    param = path.rstrip("`").lstrip(".") or None
    if (unknown := _UNKNOWN_FIELD.fullmatch(reason)) is not None:
        name = ".".join(part for part in (param, unknown[1]) if part)
        return HTTPError(status, "invalid", f"Unknown field {name!r}.", param=name)
    message = f"{reason} in {param!r}." if param else f"{reason}."
    return HTTPError(status, "invalid", message, param=param)

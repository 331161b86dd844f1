"""HTTP errors in one JSON shape, without tracebacks.

    {"error": {"message": "…", "type": "…", "code": "…", "param": null}}

`message` is for people, `code` for programs; `type` is the class of the error and `param` the field
that caused it. Below /v1/messages the error has the shape and the types of Anthropic's API.
Sennit's exceptions bring their message and get their status here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from traceback import format_tb
from typing import Any

from sennit import telemetry
from sennit.errors import (
    AccessError,
    ConflictError,
    ExistsError,
    MissingExtraError,
    ModelError,
    NotFoundError,
    OutOfRangeError,
    SennitError,
    ServiceError,
    StoreError,
    ValidationError,
)
from sennit.messages.codec import dumps
from sennit.server.http.starlette_imports import HttpScope, Response

JSON = "application/json"
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""The headers of every response: it is not cached, and its media type is not guessed."""

INTERNAL_ERROR = "Internal server error; see the server's log."
"""The message for an unexpected exception, without its details."""

_log = logging.getLogger(__name__)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {413: "request_too_large", 408: "timeout_error", 504: "timeout_error"}
_ANTHROPIC_PATH = "/v1/messages"
# The first match counts, so a subclass comes before its base.
_STATUSES: tuple[tuple[type[SennitError], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (OutOfRangeError, 404, "out_of_range"),
    (ExistsError, 409, "exists"),
    (ConflictError, 409, "busy"),
    (AccessError, 403, "access"),
    (ValidationError, 422, "invalid"),
    (ModelError, 502, "model"),
    (ServiceError, 502, "service"),
    (MissingExtraError, 501, "missing_extra"),
    (StoreError, 503, "store"),
)


class HTTPError(Exception):
    """An error that is sent as the response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """`details` are for programs, and only sent if they are given."""
        super().__init__(message)
        self.status: int = status
        self.code: str = code
        self.message: str = message
        self.param: str | None = param
        self.details: Mapping[str, Any] | None = details
        self.headers: dict[str, str] = {**PRIVATE, **(headers or {})}

    @property
    def type(self) -> str:
        """The class of the error, from its status."""
        name = _TYPES.get(self.status)
        return name or ("server_error" if self.status >= 500 else "invalid_request_error")

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the response."""
        body: dict[str, Any] = {
            "message": self.message,
            "type": self.type,
            "code": self.code,
            "param": self.param,
        }
        if self.details is not None:
            body["details"] = self.details
        return {"error": body}

    def to_anthropic(self) -> dict[str, Any]:
        """Return the body of the response in Anthropic's form, with the code and the field."""
        if self.code == "overloaded":
            kind = "overloaded_error"
        else:
            kind = _ANTHROPIC_TYPES.get(
                self.status, "api_error" if self.status >= 500 else self.type
            )
        return {"type": "error", "error": {**self.to_dict()["error"], "type": kind}}

    def response(self, path: str = "") -> Response:
        """Return the response to a request for a path."""
        body = self.to_anthropic() if path.startswith(_ANTHROPIC_PATH) else self.to_dict()
        return Response(dumps(body), self.status, headers=self.headers, media_type=JSON)


def bad_param(param: str | None, message: str, code: str = "invalid_value") -> HTTPError:
    """Return an HTTPError 400 for a parameter."""
    return HTTPError(400, code, message, param=param)


def error_for(error: SennitError) -> HTTPError:
    """Return the HTTPError for one of our exceptions."""
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return HTTPError(status, code, str(error))
    return HTTPError(500, "internal", str(error))


def stopping() -> HTTPError:
    """Return the HTTPError for a request that comes while the server shuts down."""
    message = "The server is shutting down; try again in a moment."
    return HTTPError(503, "stopping", message, headers={"retry-after": "2"})


def response_for(error: Exception, scope: HttpScope) -> Response:
    """Return the response to a request that failed; log an unexpected exception."""
    if isinstance(error, SennitError):
        error = error_for(error)
    elif not isinstance(error, HTTPError):
        log_unexpected(_log, scope["method"], error)
        error = HTTPError(500, "internal", INTERNAL_ERROR)
    return error.response(scope["path"])


def log_unexpected(log: logging.Logger, where: str, error: BaseException) -> None:
    """Log the type and the traceback of an unexpected exception.

    Its message may contain user data, so it is logged only with SENNIT_TELEMETRY_CONTENT.
    """
    if telemetry.content():
        log.error("%s in %s", type(error).__name__, where, exc_info=error)
    else:
        traceback = "".join(format_tb(error.__traceback__))
        log.error("%s in %s\n%s", type(error).__name__, where, traceback)

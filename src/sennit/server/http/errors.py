"""HTTP errors in one JSON shape, without tracebacks.

    {"error": {"message": "…", "type": "…", "code": "…", "param": null}}

`message` is for people, `code` for programs; `type` is the class of the error and `param` the field
that caused it. Sennit's exceptions bring their message and get their status here.
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
from sennit.server.http.starlette_imports import Response

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
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = {**PRIVATE, **(headers or {})}

    @property
    def type(self) -> str:
        """The class of the error, from its status."""
        name = _TYPES.get(self.status)
        return name or ("server_error" if self.status >= 500 else "invalid_request_error")

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the response."""
        body = {
            "message": self.message,
            "type": self.type,
            "code": self.code,
            "param": self.param,
        }
        return {"error": body}

    def response(self) -> Response:
        """Return the response."""
        return Response(dumps(self.to_dict()), self.status, headers=self.headers, media_type=JSON)


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


def response_for(error: Exception, where: str) -> Response:
    """Return the response to a request that failed; log an unexpected exception."""
    if isinstance(error, HTTPError):
        return error.response()
    if isinstance(error, SennitError):
        return error_for(error).response()
    log_unexpected(_log, where, error)
    return HTTPError(500, "internal", INTERNAL_ERROR).response()


def log_unexpected(log: logging.Logger, where: str, error: BaseException) -> None:
    """Log the type and the traceback of an unexpected exception.

    Its message may contain user data, so it is logged only with SENNIT_TELEMETRY_CONTENT.
    """
    if telemetry.content():
        log.error("%s in %s", type(error).__name__, where, exc_info=error)
    else:
        traceback = "".join(format_tb(error.__traceback__))
        log.error("%s in %s\n%s", type(error).__name__, where, traceback)

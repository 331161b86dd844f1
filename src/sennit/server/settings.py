"""Settings of a server, fixed while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sennit.errors import ValidationError, short_repr

if TYPE_CHECKING:
    from sennit.services.models.protocol import Model
    from sennit.services.tools.mcp import MCPServer
    from sennit.services.tools.tool import Tool

LOOPBACK = "127.0.0.1"
PORT = 8765
_LOCAL_USER_LIMITS = {
    "body_bytes": 8 * 1024 * 1024,
    "values": 100_000,
    "parts": 1_000,
    "items": 10_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits per request, per token and per owner, and for the server as a whole.

    An owner is a user of a tenant; all tokens of an owner together get `owner_factor` times the
    limits of one token. Without a token file everyone is the local user, for whom only the limits
    per request and for the server apply, and some of those are larger; see `for_local_user`.
    """

    body_bytes: int = 1024 * 1024
    """Maximum size of a request body."""
    body_seconds: float = 30.0
    """Maximum time for a body to arrive; of an upload, for each MiB."""
    blob_bytes: int = 512 * 1024 * 1024
    """Maximum size of an uploaded blob."""
    head_seconds: float = 30.0
    """Maximum time for the head of a request, from the first byte or a new connection on."""
    values: int = 20_000
    """Maximum number of JSON values in a body."""
    parts: int = 500
    """Maximum number of parts in one message."""
    items: int = 1_000
    """Maximum number of items or messages in one request."""
    answer_bytes: int = 1024 * 1024
    """Size at which a page of results is cut; the rest is on the next page."""
    lines: int = 1_000
    """Maximum number of lines in one answer of grep."""
    line_chars: int = 400
    """Number of characters after which grep cuts a line."""
    rate: float | None = 100.0
    """Requests per second and token, in the long run; None for no limit."""
    burst: int = 200
    """Number of requests a token may send at once before the rate applies."""
    byte_rate: float | None = 16.0 * 1024 * 1024
    """Bytes per second and token, sent and received, in the long run; None for no limit."""
    byte_burst: int = 128 * 1024 * 1024
    """Number of bytes a token may transfer at once before the byte rate applies."""
    token_requests: int = 256
    """Maximum number of requests under way per token, streams included."""
    token_streams: int = 128
    """Maximum number of open event streams per token."""
    token_runs: int = 64
    """Maximum number of runs under way per token."""
    token_threads: int = 8
    """Maximum number of requests per token that read or write at once; others wait their turn."""
    owner_factor: int = 2
    """How many times the limits of one token apply to all tokens of an owner together."""
    owner_bytes: int | None = 10 * 1024**3
    """Maximum number of bytes that an owner may store; None for no limit."""
    owner_sessions: int | None = 1_000_000
    """Maximum number of sessions that an owner may have; None for no limit."""
    requests: int = 2000
    """Maximum number of requests under way, streams included; public paths are not counted."""
    heartbeat: float = 15.0
    """Seconds of silence after which an event stream sends a comment."""
    send_seconds: float = 60.0
    """Maximum time that a client may leave an answer unread before its connection is dropped."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValidationError(f"{name} must be more than 0, got {short_repr(value)}.")

    def for_local_user(self) -> Limits:
        """Return the limits of the local user, whose large requests delay no one else.

        A limit that was set to another value than its default is the same for everyone.
        """
        defaults = {limit.name: limit.default for limit in fields(self)}
        raised = {
            name: value
            for name, value in _LOCAL_USER_LIMITS.items()
            if getattr(self, name) == defaults[name]
        }
        return replace(self, **raised)


def parse_limits(texts: Iterable[str], **more: Any) -> Limits:
    """Parse limits such as "parts=500" or "owner_bytes=none"; raise ValidationError."""
    limits = {limit.name: limit for limit in fields(Limits)}
    values = dict(more)
    for text in texts:
        name, _, value = text.partition("=")
        if name not in limits:
            message = f"Unknown limit {short_repr(name)}; expected one of: {', '.join(limits)}."
            raise ValidationError(message)
        kind = str(limits[name].type)
        try:
            if value == "none" and "None" in kind:
                values[name] = None
            else:
                values[name] = float(value) if "float" in kind else int(value)
        except ValueError:
            raise ValidationError(f"{name} must be a number, got {short_repr(value)}.") from None
    return Limits(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of a server: address, store, models and tokens."""

    url: str | PathLike[str] | None = None
    """The store, as for `sennit.open`."""
    host: str = LOOPBACK
    """The address to listen at; any but loopback needs tokens."""
    port: int = PORT
    """The port; 0 for a free one."""
    models: tuple[Model, ...] = ()
    """The models, the default first; if empty, the embedded model."""
    tools: tuple[Tool, ...] = ()
    """The tools that models may call."""
    servers: tuple[MCPServer, ...] = ()
    """MCP servers whose tools models may call too; connected at startup."""
    tokens: Path | None = None
    """The token file; without one, every local client is the local user."""
    allow_hosts: tuple[str, ...] = ()
    """Host names, besides those of loopback, that requests may use."""
    memory: bool = True
    """Whether memories are added to prompts, unless a run overrides it."""
    shared_spaces: tuple[str, ...] = ()
    """Tenants whose users read what the tenant shares; a token with "admin" writes it."""
    limits: Limits = field(default_factory=Limits)
    """The limits of requests, runs and sizes."""
    embedder: Any = None
    """The embedder for semantic search; see `sennit.open`."""
    retention: timedelta | None = None
    """How long removed messages are kept before they are erased; see `sennit.open`."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValidationError(f"The port must be from 0 to 65535, got {short_repr(self.port)}.")

    @property
    def on_loopback(self) -> bool:
        """True if only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

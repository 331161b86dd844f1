"""What a server is told when it starts; nothing of it changes while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sennit.errors import ValidationError, shown

if TYPE_CHECKING:
    from sennit.services.mcp import MCPServer
    from sennit.services.model import Model
    from sennit.services.tools import Tool

LOOPBACK = "127.0.0.1"
PORT = 8765


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one caller may ask of the server."""

    body_bytes: int = 8 * 1024 * 1024
    """The largest body of a request."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    head_seconds: float = 30.0
    """How long the head of a request may take, from the first byte or a new connection on."""
    rate: float | None = 100.0
    """Requests per second and token, in the long run; None for no limit."""
    burst: int = 200
    """How many requests may come at once before the rate counts."""
    heartbeat: float = 15.0
    """Seconds of silence after which an event stream shows that it is alive."""
    send_seconds: float = 60.0
    """How long a client may leave what it is sent unread before it is let go of."""
    requests: int = 2000
    """How many requests may be under way at once, streams included."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValidationError(f"{name} must be more than 0, got {shown(value)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where a server listens, what it keeps, who answers, and who may come in."""

    url: str | PathLike[str] | None = None
    """The store, as for `sennit.open`."""
    host: str = LOOPBACK
    """The address to listen at; any but loopback needs tokens."""
    port: int = PORT
    models: tuple[Model, ...] = ()
    """Who answers; the first is asked unless another is named. None: the embedded model."""
    tools: tuple[Tool, ...] = ()
    """What models may call."""
    servers: tuple[MCPServer, ...] = ()
    """MCP servers whose tools they may call too; connected when the server starts."""
    tokens: Path | None = None
    """The file of those who may come in; while there is none, everyone on this machine may."""
    allow_hosts: tuple[str, ...] = ()
    """Names besides loopback's under which the server may be reached."""
    memory: bool = True
    """Whether models are told what is remembered, unless a run says otherwise."""
    limits: Limits = field(default_factory=Limits)
    embedder: Any = None
    """With one, things are found by meaning too; see `sennit.open`."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValidationError(f"A port is a number from 0 to 65535, got {shown(self.port)}.")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

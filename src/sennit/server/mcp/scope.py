"""McpScope: the client, the scopes and the runs that MCP tools, resources and prompts work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.server.active_runs import ActiveRuns
from sennit.server.http.callers import Caller
from sennit.server.http.tokens import Scope
from sennit.services.models.protocol import Model
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH

MAX_ANSWER_CHARS = 24_000
"""The maximum length of all texts in one result."""


@dataclass(frozen=True, slots=True)
class McpScope:
    """The client and scopes that a caller's tools work with."""

    client: Client
    """The client whose sessions and memories are served."""
    scopes: frozenset[Scope]
    """What the tools may do: "read", "write", "run", "admin"."""
    model: Model | None = None
    """The model of continue_session; None if there is none."""
    runs: ActiveRuns = field(default_factory=ActiveRuns)
    """The registry of runs to suspend when the server stops."""
    check_quota: Callable[[], Awaitable[None]] | None = None
    """Called before a tool stores something; raises HTTPError if the quota is exhausted."""
    tools: Sequence[Tool] = ()
    """The tools that the model of continue_session may call."""
    caller: Caller | None = None
    """The caller whose limits count the runs; None without limits."""

    def allows(self, scope: Scope) -> bool:
        """Return whether the caller may use tools of a scope."""
        return scope in self.scopes or "admin" in self.scopes


def branch_of(session: Session, name: str | None) -> Branch:
    """Return a branch by name, else main or the first; raise NotFoundError if there is none."""
    if name is not None:
        return session.get_branch(name)
    branch = session.get_branch(DEFAULT_BRANCH, None)
    if branch is None:
        branch = next(iter(session.branches), None)
    if branch is None:
        raise NotFoundError("The session has no messages yet; add one with add_message.")
    return branch


def cut(text: str, max_chars: int) -> str:
    """Return a text with at most so many characters, and how many more there are."""
    more = len(text) - max_chars
    return text if more <= 0 else f"{text[:max_chars]}… ({more} letters more)"

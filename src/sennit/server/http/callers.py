"""Callers: the owner behind a token, their client and their scopes.

Routes reach the store only through their Caller's client, which sees the data of one owner: another
owner's session is not found, whatever id is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sennit.api.client import Client
from sennit.api.client_pool import ClientPool
from sennit.api.session import Session
from sennit.server.http.caches import FairCache
from sennit.server.http.errors import HTTPError
from sennit.server.http.tokens import SCOPES, Scope, Token
from sennit.server.settings import Limits
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.client import cached_session, evict_session

_ALL_SCOPES = frozenset(SCOPES)
_MAX_OPEN_SESSIONS = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and its scopes."""

    client: Client
    """The client for the data of the owner, and of no one else."""
    scopes: frozenset[Scope]
    name: str
    """The key of the caller's limits: the public id of the token."""
    limits: Limits
    """The limits per request."""
    sessions: FairCache[UUID, Session]
    """The recently used sessions of all tenants, kept open for the next request."""
    token: Token | None = None
    """The token; None for the local user."""

    def hold(self, session: Session) -> Session:
        """Keep a session open for the next request, and return it."""
        self.sessions.put(self.client.tenant, session.id, session)
        return session

    def drop(self, session: UUID) -> None:
        """Keep a session open no longer."""
        self.sessions.pop(self.client.tenant, session)

    def evict(self, session: UUID) -> None:
        """Remove a stale session from all caches, so that it is next read from the store."""
        self.drop(session)
        evict_session(self.client, session)

    def require(self, scope: Scope) -> None:
        """Raise HTTPError 403 unless the caller has a scope; "admin" includes all."""
        if scope not in self.scopes and "admin" not in self.scopes:
            granted = ", ".join(name for name in SCOPES if name in self.scopes)
            message = f"This request needs a token with the scope {scope!r}; yours has: {granted}."
            raise HTTPError(403, "scope", message)

    async def session(self, key: str) -> Session:
        """Return a session by id or key, up to date; raise NotFoundError if there is none."""
        return self.hold(await self.client.asession(key, create=False))

    async def branch(self, session: str, branch: str) -> Branch:
        """Return a branch by id or name, of a session by id or key; raise NotFoundError."""
        return (await self.session(session)).get_branch(branch)

    def cached_branch(self, session: str, branch: str) -> Branch | None:
        """Return a branch of an open session, without reading the store; None if unsure.

        Ids and the name "main" are stable; any other name may have moved to another branch.
        """
        cached = cached_session(self.client, session)
        match = None if cached is None else cached.get_branch(branch, None)
        if cached is None or match is None or branch not in (DEFAULT_BRANCH, str(match.id)):
            return None
        self.hold(cached)
        return match


class CallerResolver:
    """Maps tokens to callers."""

    def __init__(self, clients: ClientPool, limits: Limits) -> None:
        self._clients, self._limits = clients, limits
        self._sessions = FairCache[UUID, Session](_MAX_OPEN_SESSIONS)
        self._local: Caller | None = None

    def local(self) -> Caller:
        """Return the local user: the same owner as on the command line."""
        if self._local is None:
            client, limits = self._clients.of(), self._limits.for_local_user()
            self._local = Caller(client, _ALL_SCOPES, "local", limits, self._sessions)
        return self._local

    def of_token(self, token: Token) -> Caller:
        """Return the caller with a token."""
        client = self._clients.of(tenant=token.tenant, user=token.user, agent=token.agent)
        return Caller(client, token.scopes, token.id, self._limits, self._sessions, token)

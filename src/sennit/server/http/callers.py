"""Callers: the owner behind a token, their client and their scopes.

All that a route reaches it reaches through its Caller: other owners' things are not there at all,
so they are not found, whatever id is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from uuid import UUID

from sennit.api.client import Client
from sennit.api.client_pool import ClientPool
from sennit.api.session import Session
from sennit.server.http.errors import HTTPError
from sennit.server.http.fair_cache import FairCache
from sennit.server.http.tokens import SCOPES, Scope, Token
from sennit.server.openai.branch_cache import BranchCache
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH

_EVERYTHING = frozenset(SCOPES)
_MOST_OPEN = 256


class OpenSessions:
    """The sessions of a tenant used last, held so that the next request finds them open."""

    def __init__(self, tenant: str, sessions: FairCache[UUID, Session], lock: Lock) -> None:
        self._tenant, self._held, self._lock = tenant, sessions, lock

    def hold(self, session: Session) -> Session:
        """Keep a session open for a while."""
        with self._lock:
            self._held.put(self._tenant, session.id, session)
        return session

    def drop(self, session: UUID) -> None:
        """Let go of a session."""
        with self._lock:
            self._held.pop(self._tenant, session)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and its scopes."""

    client: Client
    """Reaches what belongs to the owner, and nothing else."""
    scopes: frozenset[Scope]
    name: str
    """What they are counted under: the public id of their token."""
    open: OpenSessions
    known: BranchCache
    """Where the conversations of clients that name no session stand."""
    token: Token | None = None
    """The token they hold; None for the local user."""

    def lose(self, session: UUID) -> None:
        """Look for a session in the store when it is next asked for: it is not as it was."""
        self.open.drop(session)
        self.client.let_go(session)

    def require(self, scope: Scope) -> None:
        """Raise HTTPError 403 unless they may do that; "admin" may do all."""
        if scope not in self.scopes and "admin" not in self.scopes:
            granted = ", ".join(name for name in SCOPES if name in self.scopes)
            message = f"This needs a token with the scope {scope!r}; yours has: {granted}."
            raise HTTPError(403, "scope", message)

    async def session(self, key: str) -> Session:
        """The session with that id or key, as it is now; raises NotFoundError."""
        return self.open.hold(await self.client.asession(key, create=False))

    async def branch(self, session: str, branch: str) -> Branch:
        """A branch by the id or key of its session and its own id or name; NotFoundError."""
        return (await self.session(session)).get_branch(branch)

    def seen_branch(self, session: str, branch: str) -> Branch | None:
        """The same as it was last seen here, without asking the store; None if that is not sure.

        An id stays, and so does the name "main"; any other may be another branch's by now.
        """
        cached = self.client.opened(session)
        match = None if cached is None else cached.get_branch(branch, None)
        if cached is None or match is None or branch not in (DEFAULT_BRANCH, str(match.id)):
            return None
        self.open.hold(cached)
        return match


class CallerResolver:
    """From tokens to callers."""

    def __init__(self, clients: ClientPool) -> None:
        self._clients = clients
        self._held, self._lock = FairCache[UUID, Session](_MOST_OPEN), Lock()
        self._known = BranchCache()
        self._local: Caller | None = None

    def local(self) -> Caller:
        """Whoever sits at this machine: the owner that the command line has too."""
        if self._local is None:
            client = self._clients.of()
            sessions = self._open(client)
            self._local = Caller(client, _EVERYTHING, "local", sessions, self._known)
        return self._local

    def holder(self, token: Token) -> Caller:
        """Whoever holds a token."""
        client = self._clients.of(tenant=token.tenant, user=token.user, agent=token.agent)
        sessions = self._open(client)
        return Caller(client, token.scopes, token.id, sessions, self._known, token)

    def _open(self, client: Client) -> OpenSessions:
        return OpenSessions(client.tenant, self._held, self._lock)

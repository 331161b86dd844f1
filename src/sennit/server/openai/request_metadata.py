"""Request metadata: the named session, memory and the idempotency key.

Their protocol has no word for sessions and branches, so those are named in headers, or in
`metadata`, which every client can send. What else stands there is the client's own and kept with
what it says. An Idempotency-Key becomes the id of what is said: saying it again finds it there, in
any process, and two at once wait for each other.
"""

from __future__ import annotations

from asyncio import Lock, sleep, to_thread
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec

from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest
from sennit.server.http.errors import HTTPError
from sennit.server.openai.chat_schemas import CommonRequest, bad
from sennit.server.openai.derived_sessions import derived_id
from sennit.server.openai.locate import NamedSession, asked_in
from sennit.server.openai.stored_responses import StoredResponse, stored_in
from sennit.server.openai.translate import ClientMessages
from sennit.sessions.run_repository import RunRepository
from sennit.turns.subscription import is_under_way

_OURS = ("session", "branch", "history", "memory")
_LOOK = 0.1  # seconds between two looks at a run of another server
_TRUTH = {"true": True, "false": False}
_locks: WeakValueDictionary[tuple[int, UUID], Lock] = WeakValueDictionary()


def told(request: HTTPRequest, body: CommonRequest, name: str) -> str | None:
    """One of our words, from its header or from `metadata`."""
    header = request.header(f"x-sennit-{name}")
    if header is None:
        return (body.metadata or {}).get(name)
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def named_by(request: HTTPRequest, body: CommonRequest) -> NamedSession | None:
    """The session that a request names; raises HTTPError 400."""
    session, branch = told(request, body, "session"), told(request, body, "branch")
    history = told(request, body, "history")
    if history not in (None, "whole", "new"):
        raise bad("metadata.history", f"'history' is 'whole' or 'new', got {history[:100]!r}.")
    if session is None:
        if branch is not None or history is not None:
            raise bad("metadata.session", "'branch' and 'history' need a 'session'.")
        return None
    if not session:
        raise bad("metadata.session", "The name of a session must not be empty.")
    return NamedSession(session=session, branch=branch, history=history)


def remembers(request: HTTPRequest, body: CommonRequest) -> bool:
    """Return whether the model is told what is remembered, which has to be asked for.

    Raises HTTPError 400.
    """
    value = told(request, body, "memory")
    if value is None:
        return False
    if value not in _TRUTH:
        raise bad("metadata.memory", f"'memory' is 'true' or 'false', got {value[:100]!r}.")
    return _TRUTH[value]


def notes_of(body: CommonRequest) -> dict[str, Any]:
    """Return a client's metadata as it is stored."""
    notes = {key: value for key, value in (body.metadata or {}).items() if key not in _OURS}
    return {"client": notes} if notes else {}


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request that must not be answered twice."""

    uid: UUID
    """The id of the first thing it says."""
    digest: str
    """What it asks for: another request under the same key is a mistake."""
    lock: Lock
    caller: Caller

    def note(self, session: UUID) -> None:
        """Remember where the request is taken in."""
        self.caller.known.note_once(self.caller.client, self.uid, session, self.digest)

    async def kept(self, sent: ClientMessages, named: NamedSession | None) -> StoredResponse | None:
        """Return the stored response to it; raises HTTPError 422 for another request.

        While another server answers it, that is waited for.
        """
        if (record := self.caller.known.once(self.caller.client, self.uid)) is not None:
            self.check(record[1])
        ended = False
        while True:
            stored = await to_thread(self._said, sent, named)
            if stored is None:
                return None
            self.check(stored.first.metadata.get("request"))
            if ended or stored.answer.whole:
                return stored
            ended = not await to_thread(is_under_way, RunRepository(stored.branch))
            if not ended:
                await sleep(_LOOK)

    def _said(self, sent: ClientMessages, named: NamedSession | None) -> StoredResponse | None:
        sessions = asked_in(self.caller, sent, named, self.uid)
        return next(filter(None, (stored_in(session, self.uid) for session in sessions)), None)

    def check(self, digest: Any) -> None:
        """Raise HTTPError 422 if the key was used for another request."""
        if digest != self.digest:
            message = "This Idempotency-Key was used for another request; make a new one for each."
            raise HTTPError(422, "idempotency_key_reused", message)

    @property
    def notes(self) -> dict[str, Any]:
        """The metadata stored with the messages."""
        return {"request": self.digest}


def once_of(request: HTTPRequest) -> IdempotentRequest | None:
    """Return the idempotency key of a request, if its client sent one."""
    key = request.header("idempotency-key")
    if not key:
        return None
    uid = derived_id(request.caller.client, "once", request.http["path"], key)
    # Only one server's requests meet here; those of others meet in the store.
    lock = _locks.setdefault((id(request.server), uid), Lock())
    headers = [request.header(f"x-sennit-{name}") for name in _OURS]
    payload = msgspec.json.encode([headers, request.body] if any(headers) else request.body)
    return IdempotentRequest(uid, blake2b(payload, digest_size=16).hexdigest(), lock, request.caller)

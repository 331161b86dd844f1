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


def told(call: HTTPRequest, ask: CommonRequest, name: str) -> str | None:
    """One of our words, from its header or from `metadata`."""
    header = call.header(f"x-sennit-{name}")
    if header is None:
        return (ask.metadata or {}).get(name)
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def named_by(call: HTTPRequest, ask: CommonRequest) -> NamedSession | None:
    """The session that a request names; raises HTTPError 400."""
    session, branch = told(call, ask, "session"), told(call, ask, "branch")
    history = told(call, ask, "history")
    if history not in (None, "whole", "new"):
        raise bad("metadata.history", f"'history' is 'whole' or 'new', got {history[:100]!r}.")
    if session is None:
        if branch is not None or history is not None:
            raise bad("metadata.session", "'branch' and 'history' need a 'session'.")
        return None
    if not session:
        raise bad("metadata.session", "The name of a session must not be empty.")
    return NamedSession(session=session, branch=branch, history=history)


def remembers(call: HTTPRequest, ask: CommonRequest) -> bool:
    """Return whether the model is told what is remembered, which has to be asked for.

    Raises HTTPError 400.
    """
    given = told(call, ask, "memory")
    if given is None:
        return False
    if given not in _TRUTH:
        raise bad("metadata.memory", f"'memory' is 'true' or 'false', got {given[:100]!r}.")
    return _TRUTH[given]


def notes_of(ask: CommonRequest) -> dict[str, Any]:
    """Return a client's metadata as it is stored."""
    notes = {key: value for key, value in (ask.metadata or {}).items() if key not in _OURS}
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
        if (known := self.caller.known.once(self.caller.client, self.uid)) is not None:
            self.check(known[1])
        over = False
        while True:
            kept = await to_thread(self._said, sent, named)
            if kept is None:
                return None
            self.check(kept.first.metadata.get("request"))
            if over or kept.answer.whole:
                return kept
            over = not await to_thread(is_under_way, RunRepository(kept.branch))
            if not over:
                await sleep(_LOOK)

    def _said(self, sent: ClientMessages, named: NamedSession | None) -> StoredResponse | None:
        sessions = asked_in(self.caller, sent, named, self.uid)
        return next(filter(None, (stored_in(one, self.uid) for one in sessions)), None)

    def check(self, noted: Any) -> None:
        """Raise HTTPError 422 if the key was used for another request."""
        if noted != self.digest:
            known = "This Idempotency-Key was used for another request; make a new one for each."
            raise HTTPError(422, "idempotency_key_reused", known)

    @property
    def notes(self) -> dict[str, Any]:
        """The metadata stored with the messages."""
        return {"request": self.digest}


def once_of(call: HTTPRequest) -> IdempotentRequest | None:
    """Return the idempotency key of a request, if its client sent one."""
    key = call.header("idempotency-key")
    if not key:
        return None
    uid = derived_id(call.caller.client, "once", call.http["path"], key)
    # Only one server's requests meet here; those of others meet in the store.
    lock = _locks.setdefault((id(call.server), uid), Lock())
    where = [call.header(f"x-sennit-{name}") for name in _OURS]
    asked = msgspec.json.encode([where, call.body] if any(where) else call.body)
    return IdempotentRequest(uid, blake2b(asked, digest_size=16).hexdigest(), lock, call.caller)

"""Request metadata: the named session, memory and the idempotency key.

OpenAI's protocol has no sessions and branches, so they are named in headers or in `metadata`, which
every client can send. Other metadata is the client's own and is stored with its messages. The id of
the first message is hashed from the Idempotency-Key: a retry finds it in the store, from any
process, and concurrent retries wait for each other.
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
from sennit.server.openai.chat_schemas import CommonRequest, bad_param
from sennit.server.openai.derived_sessions import derived_id
from sennit.server.openai.locate import NamedSession, sessions_to_search
from sennit.server.openai.stored_responses import StoredResponse, stored_in
from sennit.server.openai.translate import ClientMessages
from sennit.sessions.run_repository import RunRepository
from sennit.turns.subscription import has_active_run

_METADATA_KEYS = ("session", "branch", "history", "memory")
_POLL_SECONDS = 0.1  # between checks of a run in another process
_BOOLEANS = {"true": True, "false": False}
_locks: WeakValueDictionary[tuple[int, UUID], Lock] = WeakValueDictionary()


def _parameter(request: HTTPRequest, body: CommonRequest, name: str) -> str | None:
    """Return one of our parameters, from its header or from `metadata`."""
    header = request.header(f"x-sennit-{name}")
    if header is None:
        return (body.metadata or {}).get(name)
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def named_session(request: HTTPRequest, body: CommonRequest) -> NamedSession | None:
    """Return the session that a request names; raise HTTPError 400 for an invalid combination."""
    session, branch = _parameter(request, body, "session"), _parameter(request, body, "branch")
    history = _parameter(request, body, "history")
    if history not in (None, "whole", "new"):
        message = f"'history' must be 'whole' or 'new', got {history[:100]!r}."
        raise bad_param("metadata.history", message)
    if session is None:
        if branch is not None or history is not None:
            raise bad_param("metadata.session", "'branch' and 'history' need a 'session'.")
        return None
    if not session:
        raise bad_param("metadata.session", "The name of a session must not be empty.")
    return NamedSession(session=session, branch=branch, history=history)


def wants_memory(request: HTTPRequest, body: CommonRequest) -> bool:
    """Return whether the request asks for memories in the prompt; raise HTTPError 400."""
    value = _parameter(request, body, "memory")
    if value is None:
        return False
    if value not in _BOOLEANS:
        raise bad_param(
            "metadata.memory", f"'memory' must be 'true' or 'false', got {value[:100]!r}."
        )
    return _BOOLEANS[value]


def stored_metadata(body: CommonRequest) -> dict[str, Any]:
    """Return the client's own metadata, as it is stored."""
    notes = {
        key: value for key, value in (body.metadata or {}).items() if key not in _METADATA_KEYS
    }
    return {"client": notes} if notes else {}


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an Idempotency-Key, which is answered once."""

    uid: UUID
    """The id of its first message."""
    digest: str
    """The hash of its body: another body under the same key is an error."""
    lock: Lock
    caller: Caller

    def record(self, session: UUID) -> None:
        """Cache the session of the request."""
        self.caller.branch_cache.add_request(self.caller.client, self.uid, session, self.digest)

    async def find_stored(
        self, sent: ClientMessages, named: NamedSession | None
    ) -> StoredResponse | None:
        """Return the stored response, waiting while another process answers the request.

        Raises HTTPError 422 if the key was used for another request.
        """
        record = self.caller.branch_cache.find_request(self.caller.client, self.uid)
        if record is not None:
            self.check(record[1])
        ended = False
        while True:
            stored = await to_thread(self._find_stored, sent, named)
            if stored is None:
                return None
            self.check(stored.first.metadata.get("request"))
            if ended or stored.answer.is_complete:
                return stored
            ended = not await to_thread(has_active_run, RunRepository(stored.branch))
            if not ended:
                await sleep(_POLL_SECONDS)

    def _find_stored(
        self, sent: ClientMessages, named: NamedSession | None
    ) -> StoredResponse | None:
        sessions = sessions_to_search(self.caller, sent, named, self.uid)
        return next(filter(None, (stored_in(session, self.uid) for session in sessions)), None)

    def check(self, digest: Any) -> None:
        """Raise HTTPError 422 if the key was used for another request."""
        if digest != self.digest:
            message = "This Idempotency-Key was used for another request; send a new key with each."
            raise HTTPError(422, "idempotency_key_reused", message)

    @property
    def notes(self) -> dict[str, Any]:
        """The metadata stored with the messages."""
        return {"request": self.digest}


def idempotent_request(request: HTTPRequest) -> IdempotentRequest | None:
    """Return the request with its idempotency key; None if the client sent no key."""
    key = request.header("idempotency-key")
    if not key:
        return None
    uid = derived_id(request.caller.client, "once", request.http["path"], key)
    # Serializes the retries within this process; those of others meet in the store.
    lock = _locks.setdefault((id(request.server), uid), Lock())
    headers = [request.header(f"x-sennit-{name}") for name in _METADATA_KEYS]
    payload = msgspec.json.encode([headers, request.body] if any(headers) else request.body)
    digest = blake2b(payload, digest_size=16).hexdigest()
    return IdempotentRequest(uid, digest, lock, request.caller)

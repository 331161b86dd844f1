"""The core of a client: one owner's sessions in a store.

It opens, lists, searches and deletes the sessions of one owner and no others. A session's id is
derived from owner and key: two processes of one user that open "chat_001" get the same session, two
users different ones. Opening a session twice returns the same object.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from os import PathLike
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from sennit import clock
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    did_you_mean,
    short_repr,
)
from sennit.messages.json_values import plain_dict, validate_text
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method
from sennit.sessions.blobs import Blobs
from sennit.sessions.branch import Branch, LeaseTerms
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.grants import Capabilities, Resources
from sennit.sessions.plan import BranchPlan
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import ASSISTANT, SessionCore, service_registry
from sennit.sessions.title import stored_title
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import (
    MAX_NAME_BYTES,
    Owner,
    SessionRecord,
    owner_name,
    session_key,
)
from sennit.stores.session_ids import session_id

if TYPE_CHECKING:
    from sennit.services.registry import ServiceRegistry

_S = TypeVar("_S", bound=SessionCore)
_MAX_INLINE_TEXTS = 16  # of metadata copied on the event loop
_MAX_LIMIT = 2**31 - 1  # the largest LIMIT that every store accepts


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """An entry in a list of sessions."""

    id: UUID
    """The id of the session."""
    key: str | None
    """The key it was opened with, if it has one."""
    created_at: datetime
    """When the session was created."""
    updated_at: datetime
    """When the session last changed."""
    metadata: Mapping[str, Any]
    """The metadata given when the session was created."""

    @property
    def title(self) -> str | None:
        """The title that was set, if any; `session.title` has the first words otherwise."""
        return stored_title(self.metadata)


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message in search results."""

    session: UUID
    """The id of the session."""
    message: UUID
    """The id of the message."""
    snippet: str
    """The text around the first match."""
    score: float
    """Higher is better; comparable within one search only."""


class ClientCore(Generic[_S]):
    """One owner's sessions in one store."""

    def __init__(
        self,
        store: Store,
        *,
        session_type: type[_S],
        tenant: str,
        user: str,
        agent: str = ASSISTANT,
        services: ServiceRegistry | None = None,
        group: GroupCommitter | None = None,
    ) -> None:
        """Open a store for one owner; with a shared `group`, `close` leaves the store open."""
        if isinstance(store, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"A client needs a Store, got {short_repr(store)}; sennit.open(…) takes a file "
                f"or a URL."
            )
        self._store = store
        self._shares = group is not None
        self._group = GroupCommitter(store) if group is None else group
        self._session_type = session_type
        self._owner = Owner(owner_name(tenant, "tenant"), "user", owner_name(user, "user"))
        self._agent = owner_name(agent, "agent")
        self._open: WeakValueDictionary[UUID, _S] = WeakValueDictionary()
        self._lock = RLock()
        self._own_services = None if services is None else service_registry(services)

    @cached_property
    def services(self) -> ServiceRegistry:
        """The models and tools of all sessions it opens."""
        return self._own_services or service_registry(None)

    @property
    def tenant(self) -> str:
        """The tenant of this client."""
        return self._owner.tenant

    @property
    def user(self) -> str:
        """The user whose sessions this client reaches."""
        return self._owner.name

    @property
    def agent(self) -> str:
        """The sender of messages added with the role "assistant" and of model replies."""
        return self._agent

    def session(
        self,
        session_id: str | UUID,
        *,
        system: str | Message | None = None,
        resources: Resources | None = None,
        capabilities: Capabilities | None = None,
        metadata: Mapping[str, Any] | None = None,
        create: bool = True,
    ) -> _S:
        """Create or open the session with that key or id.

        Sets the `system` message of its branch "main", a text or a Message, unless it is the same,
        and grants that branch `resources` and `capabilities`. `metadata` is stored only with a new
        session. With `create=False`, raises NotFoundError if the session does not exist.
        """
        uid, key = self._identify(session_id)
        session = self._open.get(uid)
        if session is None or not _is_stored(session):
            record = self._store.find_session(self._owner, uid)
            if record is None and not create:
                raise self._no_session(session_id)
            if record is None:
                record = self._store.create_session(self._owner, _new_record(uid, key, metadata))
            session = self._cache_session(uid, session, self._opened(record, self._repository(uid)))
        if system is not None:
            session._ensure_branch_system(session.default_branch, system)
        if resources is not None or capabilities is not None:
            session.default_branch.grant(resources=resources, capabilities=capabilities)
        return session

    def _opened(self, record: SessionRecord, repository: SessionRepository, **options: Any) -> _S:
        return self._session_type._from_store(
            record, repository, services=self.services, agent=self._agent, **options
        )

    def _cache_session(self, session: UUID, stale: _S | None, opened: _S) -> _S:
        """Cache a session just loaded, unless another thread has cached it; return the cached."""
        with self._lock:  # event loops take it too, so never read the store under it
            cached = self._open.get(session)
            if cached is None or cached is stale:
                cached = self._open[session] = opened
            return cached

    def sessions(
        self,
        *,
        contains: str | None = None,
        before: SessionInfo | None = None,
        limit: int = 50,
    ) -> list[SessionInfo]:
        """List the owner's sessions, the last changed first.

        `contains` filters by a part of the key or title; `before` is the last entry of the
        previous page.
        """
        cursor = None if before is None else _cursor(before)
        part = None if contains is None else validate_text(contains, "contains")
        records = self._store.list_sessions(
            self._owner, contains=part, before=cursor, limit=_check_limit(limit)
        )
        return [_info(record) for record in records]

    def session_info(self, session_id: str | UUID) -> SessionInfo:
        """Return the list entry of one session, without opening it; raises NotFoundError."""
        record = self._store.find_session(self._owner, self._identify(session_id)[0])
        if record is None:
            raise self._no_session(session_id)
        return _info(record)

    def _no_session(self, session_id: str | UUID) -> NotFoundError:
        recent = [info.key for info in self.sessions() if info.key is not None]
        return NotFoundError(
            f"There is no session {short_repr(session_id)} of this user; sessions() lists "
            f"them.{did_you_mean(session_id, recent)}"
        )

    def delete_session(self, session_id: str | UUID) -> bool:
        """Erase a session and everything in it; return False if there was none."""
        uid, _ = self._identify(session_id)
        evict_session(self, uid)
        return self._store.delete_session(self._owner, uid)

    def search_messages(
        self, text: str, *, session: str | UUID | None = None, limit: int = 10
    ) -> list[MessageHit]:
        """Search messages for words of `text`, in all sessions or in one, best match first."""
        session_uid = None if session is None else self._identify(session)[0]
        hits = self._store.search(
            self._owner, _query_text(text), session=session_uid, limit=_check_limit(limit)
        )
        return [MessageHit(hit.session, hit.message, hit.snippet, hit.score) for hit in hits]

    def close(self) -> None:
        """Flush pending async writes, then close the store, unless it is shared."""
        if not self._shares:
            self._group.close()
            self._store.close()

    asession: Final = async_method(session)
    asessions: Final = async_method(sessions)
    asession_info: Final = async_method(session_info)
    adelete_session: Final = async_method(delete_session)
    asearch_messages: Final = async_method(search_messages)
    aclose: Final = async_method(close)

    def _repository(self, session: UUID, new: SessionRecord | None = None) -> SessionRepository:
        return SessionRepository(self._store, self._group, self._owner, session, new)

    def _identify(self, session: Any) -> tuple[UUID, str | None]:
        """Return the id and key of a session; an id has no key. Raises ValidationError."""
        if isinstance(session, UUID):
            return session, None
        if not (key := validate_text(session, "session key")):
            raise ValidationError("session key must not be empty.")
        if len(key) > MAX_NAME_BYTES:  # not worth a place in the cache
            return session_id(self._owner, key), key
        return _parse_key(self._owner, key)


def cached_session(client: ClientCore[_S], session_id: str | UUID) -> _S | None:
    """Return a session that is open in this process, without reading the store."""
    return client._open.get(client._identify(session_id)[0])


def evict_session(client: ClientCore[_S], session_id: UUID) -> None:
    """Drop a session from the cache, so that the next access loads it from the store."""
    with client._lock:
        client._open.pop(session_id, None)


def drop_erased(
    client: ClientCore[Any], owner: Owner, session: UUID, messages: Sequence[UUID]
) -> None:
    """Drop messages that were erased in the store from a session that is open in a client."""
    with client._lock:
        cached = client._open.get(session) if owner == client._owner else None
    if cached is not None:
        cached._lose(messages)


async def begin_session(
    client: ClientCore[_S],
    session_id: str | UUID,
    *,
    system: Message | None = None,
    metadata: Mapping[str, Any] | None = None,
    lease: LeaseTerms | None = None,
) -> Branch | None:
    """Create a session with its main branch in one group commit; return the branch.

    Returns None if the session exists. A `lease` for the first run is acquired in the same write.
    """
    uid, key = client._identify(session_id)
    if (cached := client._open.get(uid)) is not None:
        if await to_thread(_is_stored, cached):
            return None
        evict_session(client, uid)  # deleted by another process
    if _is_short(metadata):
        record = _new_record(uid, key, metadata)
    else:
        record = await to_thread(_new_record, uid, key, metadata)
    session = client._opened(record, client._repository(uid, record))
    try:
        plan = BranchPlan(session, DEFAULT_BRANCH, system=system, lease=lease)
        branch = await session._repository.submit(plan)
    except ExistsError:
        return None
    with client._lock:
        # A session that was opened in the meantime has loaded the branch.
        cached = client._open.setdefault(uid, session)
    main = cached.get_branch(branch.id, None)
    if main is not None:
        main._first_lease = branch._first_lease
    return main


def _is_stored(session: SessionCore) -> bool:
    """Refresh a session; return False if it was deleted from the store."""
    try:
        session.refresh()
    except NotFoundError:
        return False
    return True


@lru_cache(4096)  # servers resolve the same key with every request
def _parse_key(owner: Owner, key: str) -> tuple[UUID, str | None]:
    try:
        return UUID(key), None
    except ValueError:
        return session_id(owner, key), key


def blobs_of(client: ClientCore[Any]) -> Blobs:
    """Return the blobs of the owner of a client."""
    return Blobs(client._store, client._owner)


def _new_record(uid: UUID, key: str | None, metadata: Mapping[str, Any] | None) -> SessionRecord:
    if key is not None:
        session_key(key)
    now = clock.now_us()
    copied = plain_dict(metadata, "metadata") if metadata is not None else {}
    return SessionRecord(uid, key, "user", now, now, copied)


def _is_short(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether metadata is a few texts at most, not worth a worker thread."""
    return not metadata or (
        len(metadata) <= _MAX_INLINE_TEXTS and all(type(text) is str for text in metadata.values())
    )


def _info(record: SessionRecord) -> SessionInfo:
    return SessionInfo(
        record.id,
        record.key,
        clock.to_datetime(record.created),
        clock.to_datetime(record.updated),
        record.metadata,
    )


def _cursor(last: Any) -> tuple[int, UUID]:
    if not isinstance(last, SessionInfo):
        raise InvalidTypeError(
            "before must be a SessionInfo, the last one of the previous page, got "
            f"{short_repr(last)}."
        )
    return clock.from_datetime(last.updated_at), last.id


def _query_text(question: Any) -> str:
    return validate_text(question, "the text to search for")


def _check_limit(limit: Any) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidTypeError(f"limit must be a number, got {short_repr(limit)}.")
    if limit < 1:
        raise ValidationError(f"limit must be at least 1, got {short_repr(limit)}.")
    return min(limit, _MAX_LIMIT)

"""The core of a client: one owner's sessions in a store.

It opens, lists, searches and deletes the owner's sessions and reaches nothing else. A session's id
follows from its owner and key, so two processes that say "chat_001" mean the same session, and two
users who say it do not. Opening a session twice gives the same object.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from sennit import clock
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError, shown
from sennit.messages.json_values import plain_dict, text
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch, LeaseTerms
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.grants import Capabilities, Resources
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import ASSISTANT, SessionCore, service_registry
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import (
    LONGEST_NAME,
    Owner,
    SessionRecord,
    owner_name,
    session_key,
)
from sennit.stores.session_ids import session_id

if TYPE_CHECKING:
    from sennit.services.registry import ServiceRegistry

_S = TypeVar("_S", bound=SessionCore)
_MOST = 2**31 - 1  # more than any list has, and what every store can count to


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list."""

    id: UUID
    key: str | None
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any]

    @property
    def title(self) -> str | None:
        """The display name, if its metadata has a "title"."""
        given = self.metadata.get("title")
        return given if isinstance(given, str) and given else None


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message that a search found."""

    session: UUID
    message: UUID
    snippet: str
    """The words around the first match."""
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
        """With the `group` of other clients it writes together with them, and closes nothing."""
        self._store = store
        self._shares = group is not None
        self._group = GroupCommitter(store) if group is None else group
        self._session_type = session_type
        self._owner = Owner(owner_name(tenant, "tenant"), "user", owner_name(user, "user"))
        self._agent = owner_name(agent, "agent")
        self._open: WeakValueDictionary[UUID, _S] = WeakValueDictionary()
        self._lock = RLock()
        self._given_services = None if services is None else service_registry(services)

    @cached_property
    def services(self) -> ServiceRegistry:
        """The models and tools of all sessions it opens."""
        return self._given_services or service_registry(None)

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
        """The sender of what is added with the role "assistant", and of what models reply."""
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

        Its branch "main" gets the `system` message, a text or a Message, unless it has the same
        already, and is granted `resources` and `capabilities`. `metadata` is stored when the
        session is new. With `create=False` raises NotFoundError if it is not there.
        """
        uid, key = self._identify(session_id)
        found = self._open.get(uid)
        if found is None or not _is_there(found):
            record = self._store.find_session(self._owner, uid)
            if record is None and not create:
                raise NotFoundError(f"There is no session {shown(session_id)} of this user.")
            if record is None:
                record = self._store.create_session(self._owner, _new(uid, key, metadata))
            found = self._put(uid, found, self._opened(record, self._keeper(uid)))
        if system is not None:
            found.ensure_branch_system(found.default_branch, system)
        if resources is not None or capabilities is not None:
            found.default_branch.grant(resources=resources, capabilities=capabilities)
        return found

    async def abegin(
        self,
        session_id: str | UUID,
        *,
        system: Message | None = None,
        resources: Resources | None = None,
        metadata: Mapping[str, Any] | None = None,
        lease: LeaseTerms | None = None,
    ) -> Branch | None:
        """The main branch of a new session, made in one step and together with what others write.

        None if the session is there already. `lease` is as in `acreate_branch`.
        """
        uid, key = self._identify(session_id)
        if (found := self._open.get(uid)) is not None:
            if await to_thread(_is_there, found):
                return None
            self.let_go(uid)  # deleted elsewhere
        record = await to_thread(_new, uid, key, metadata) if metadata else _new(uid, key, None)
        session = self._opened(record, self._keeper(uid, record))
        try:
            branch = await session.acreate_branch(
                DEFAULT_BRANCH, system=system, resources=resources, lease=lease
            )
        except ExistsError:
            return None
        with self._lock:
            # Whoever has opened it meanwhile has found the branch.
            kept = self._open.setdefault(uid, session)
        found = kept.get_branch(branch.id, None)
        if found is not None:
            found.first_lease = branch.first_lease
        return found

    def opened(self, session_id: str | UUID) -> _S | None:
        """The session if it is open here, as it was last seen: the store is not asked."""
        return self._open.get(self._identify(session_id)[0])

    def let_go(self, session_id: UUID) -> None:
        """Have the session read from the store when it is next asked for."""
        with self._lock:
            self._open.pop(session_id, None)

    def _opened(self, record: SessionRecord, keeper: SessionRepository) -> _S:
        return self._session_type.opened(record, keeper, services=self.services, agent=self._agent)

    def _put(self, session: UUID, gone: _S | None, opened: _S) -> _S:
        """Have a session open that was just read, unless someone else was faster."""
        with self._lock:  # which event loops take as well: the store is never asked under it
            there = self._open.get(session)
            if there is None or there is gone:
                there = self._open[session] = opened
            return there

    def sessions(
        self,
        *,
        contains: str | None = None,
        before: SessionInfo | None = None,
        limit: int = 50,
    ) -> list[SessionInfo]:
        """The owner's sessions, the one changed last first.

        `contains` filters by a part of the key or title; `before` is the last one of the page
        before.
        """
        page = None if before is None else _place(before)
        part = None if contains is None else text(contains, "contains")
        found = self._store.list_sessions(
            self._owner, contains=part, before=page, limit=_positive(limit)
        )
        return [_info(record) for record in found]

    def session_info(self, session_id: str | UUID) -> SessionInfo:
        """Return the list entry of one session, without opening it; raises NotFoundError."""
        found = self._store.find_session(self._owner, self._identify(session_id)[0])
        if found is None:
            raise NotFoundError(f"There is no session {shown(session_id)} of this user.")
        return _info(found)

    def delete_session(self, session_id: str | UUID) -> bool:
        """Erase a session and everything in it; False if there was none."""
        uid, _ = self._identify(session_id)
        self.let_go(uid)
        return self._store.delete_session(self._owner, uid)

    def search_messages(
        self, text: str, *, session: str | UUID | None = None, limit: int = 10
    ) -> list[MessageHit]:
        """Messages that hold words of `text`, in all sessions or in one, the best first."""
        inside = None if session is None else self._identify(session)[0]
        found = self._store.search(
            self._owner, _asked(text), session=inside, limit=_positive(limit)
        )
        return [MessageHit(one.session, one.message, one.snippet, one.score) for one in found]

    def close(self) -> None:
        """Finish what async callers have under way, then close the store, unless it is shared."""
        if not self._shares:
            self._group.close()
            self._store.close()

    asession = async_method(session)
    asessions = async_method(sessions)
    asession_info = async_method(session_info)
    adelete_session = async_method(delete_session)
    asearch_messages = async_method(search_messages)
    aclose = async_method(close)

    def _keeper(self, session: UUID, new: SessionRecord | None = None) -> SessionRepository:
        return SessionRepository(self._store, self._group, self._owner, session, new)

    def _identify(self, session: Any) -> tuple[UUID, str | None]:
        """The id a key stands for; an id stands for itself."""
        if isinstance(session, UUID):
            return session, None
        if not (key := text(session, "session key")):
            raise ValidationError("session key must not be empty.")
        if len(key) > LONGEST_NAME:  # no session has it, and it is nothing to remember
            return session_id(self._owner, key), key
        return _identified(self._owner, key)


def _is_there(session: SessionCore) -> bool:
    """Return whether a session is still kept; it is brought up to date then."""
    try:
        session.refresh()
    except NotFoundError:
        return False
    return True


@lru_cache(4096)  # whoever names a session does so with each request
def _identified(owner: Owner, key: str) -> tuple[UUID, str | None]:
    try:
        return UUID(key), None
    except ValueError:
        return session_id(owner, key), key


def _new(uid: UUID, key: str | None, metadata: Mapping[str, Any] | None) -> SessionRecord:
    if key is not None:
        session_key(key)
    now = clock.now_us()
    kept = plain_dict(metadata, "metadata") if metadata is not None else {}
    return SessionRecord(uid, key, "user", now, now, kept)


def _info(record: SessionRecord) -> SessionInfo:
    return SessionInfo(
        record.id,
        record.key,
        clock.to_datetime(record.created),
        clock.to_datetime(record.updated),
        record.metadata,
    )


def _place(last: Any) -> tuple[int, UUID]:
    if not isinstance(last, SessionInfo):
        raise InvalidTypeError(
            f"before must be a SessionInfo, the last one of the previous page, got {shown(last)}."
        )
    return clock.from_datetime(last.updated_at), last.id


def _asked(question: Any) -> str:
    return text(question, "the text to search for")


def _positive(limit: Any) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidTypeError(f"limit must be a number, got {shown(limit)}.")
    if limit < 1:
        raise ValidationError(f"limit must be at least 1, got {shown(limit)}.")
    return min(limit, _MOST)

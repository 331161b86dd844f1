"""The conversation of another framework, stored on one branch of one session.

The session and the branch are created on first use and looked up again on every call, so several
processes can work on the same branch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeVar

from sennit.adapters.message_mapping import MessageFormat
from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branch import Branch, messages_from
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.client import SessionInfo
from sennit.sessions.retry_on_conflict import retry_on_conflict

_Key = TypeVar("_Key", bound=Hashable)
_R = TypeVar("_R")
_T = TypeVar("_T")
_MAX_CACHED = 64
_PAGE_SIZE = 200
_MAX_TRIES = 100


class BranchHistory(Generic[_T]):
    """The messages of a framework on a branch, addressed by session key and branch name."""

    _format: ClassVar[MessageFormat[Any]]

    def __init__(self, client: Client, session_id: str, *, branch: str = DEFAULT_BRANCH) -> None:
        """Address a session by key; it is created on first use."""
        super().__init__()
        self._client = client
        self.session_id, self.branch = session_id, branch

    def _open(self) -> Branch:
        """Return the branch in its current state; create session and branch on first use."""
        return get_or_create_branch(self._client.session(self.session_id), self.branch)

    def _read(self, last: int | None = None) -> list[_T]:
        """Return the messages but the system message; only those of the newest `last` if given."""
        branch = self._open()
        with branch.session.lock:
            first = _first_message_index(branch)
            start = first if last is None else max(first, len(branch) - last)
            messages = messages_from(branch, start)
            return self._format.from_messages(list(inline_blobs(branch.session, messages)))

    def _append(self, originals: Iterable[_T]) -> None:
        """Append messages to the branch, all or none."""
        messages = [
            message for original in originals for message in self._format.to_messages(original)
        ]
        if messages:
            branch = self._open()
            branch.session.add_messages(messages, branches=branch)

    def _clear(self) -> None:
        """Remove all messages but the system message; other branches keep theirs."""
        self._retry(self._clear_once)

    def _clear_once(self) -> None:
        branch = self._open()
        with branch.session.lock:
            del branch[_first_message_index(branch) :]

    def _retry(self, work: Callable[[], _R]) -> _R:
        """Call `work`, and call it again when another process changed the branch first."""
        return retry_on_conflict(work, f"the branch {self.branch!r}", tries=_MAX_TRIES)

    def _fork(self, name: str | None, at: int | None = None, **options: Any) -> Self:
        """Fork the branch up to and including message `at`; `options` are the constructor's."""
        branch = self._open()
        with branch.session.lock:
            index = None if at is None else at + (_first_message_index(branch) if at >= 0 else 0)
            forked = branch.session.fork(branch, at=index, name=name, system=True)
        return type(self)(self._client, self.session_id, branch=forked.name, **options)


def _first_message_index(branch: Branch) -> int:
    """Return the index of the first message after the system message."""
    return int(branch.system is not None)


def get_or_create_branch(session: Session, name: str) -> Branch:
    """Return the branch with this name; create it on first use."""
    with session.lock:
        branch = session.get_branch(name, None)
        if branch is not None:
            return branch
        try:
            return session.create_branch(name)
        except ExistsError:  # another process created it first
            return session.get_branch(name)


def sessions_with_prefix(client: Client, prefix: str) -> Iterator[SessionInfo]:
    """Yield the sessions whose key starts with `prefix`, most recently changed first."""
    page = client.sessions(contains=prefix, limit=_PAGE_SIZE)
    while page:
        yield from (info for info in page if (info.key or "").startswith(prefix))
        page = client.sessions(contains=prefix, limit=_PAGE_SIZE, before=page[-1])


class LruCache(Generic[_Key, _T]):
    """A least-recently-used cache that is safe to use from several threads."""

    def __init__(self, max_size: int = _MAX_CACHED) -> None:
        self._max_size, self._lock = max_size, Lock()
        self._items: OrderedDict[_Key, _T] = OrderedDict()

    def get(self, key: _Key, create: Callable[[], _T]) -> _T:
        """Return the cached value, or cache and return `create()`."""
        with self._lock:
            if key not in self._items:
                self._items[key] = create()
            self._items.move_to_end(key)
            if len(self._items) > self._max_size:
                self._items.popitem(last=False)
            return self._items[key]

    def discard(self, key: _Key) -> None:
        """Remove a key if it is cached."""
        with self._lock:
            self._items.pop(key, None)

    def newest_first(self) -> list[_T]:
        """Return the cached values, most recently used first."""
        with self._lock:
            return list(reversed(self._items.values()))

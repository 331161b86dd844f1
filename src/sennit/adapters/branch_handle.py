"""A branch by name, opened through the client, for adapters to read and write.

Sessions and branches are made when they are first needed, and looked at anew each time, so that
many processes may work on one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.client import SessionInfo
from sennit.sessions.retry_on_conflict import retry_on_conflict

_Key = TypeVar("_Key", bound=Hashable)
_T = TypeVar("_T")
_OPEN = 64
_PAGE = 200
_TRIES = 100


@dataclass(frozen=True, slots=True)
class BranchHandle:
    """A branch of a session, by name: where an adapter reads and writes."""

    client: Client
    session: str
    branch: str = DEFAULT_BRANCH

    def open(self) -> Branch:
        """The branch as it is now, made when it is first needed."""
        return named_branch(self.client.session(self.session), self.branch)

    def said(self, last: int | None = None) -> list[Message]:
        """Return the messages of the branch without its system message; at most the `last` ones."""
        branch = self.open()
        with branch.session.lock:
            first = after_system(branch)
            start = first if last is None else max(first, len(branch) - last)
            return branch.items_of(branch.session.messages, start)

    def add(self, messages: Sequence[Message]) -> None:
        """Put messages at the end of the branch, all or none."""
        branch = self.open()
        branch.session.add_messages(messages, branches=branch)

    def take_off(self, work: Callable[[], _T]) -> _T:
        """Do some work that takes messages off, again where another process was faster."""
        return retry_on_conflict(work, f"the branch {self.branch!r}", tries=_TRIES)

    def clear(self) -> None:
        """Leave nothing on the branch but its system message; other branches keep theirs."""
        self.take_off(self._clear)

    def _clear(self) -> None:
        branch = self.open()
        with branch.session.lock:
            del branch[after_system(branch) :]

    def fork(self, *, name: str | None, at: int | None) -> BranchHandle:
        """A place on a new branch that shares what was said, up to and including index `at`."""
        branch = self.open()
        with branch.session.lock:
            index = None if at is None else at + (after_system(branch) if at >= 0 else 0)
            forked = branch.session.fork(branch, at=index, name=name, system=True)
        return BranchHandle(self.client, self.session, forked.name)


def after_system(branch: Branch) -> int:
    """The index of what was said first."""
    return int(branch.system is not None)


def named_branch(session: Session, name: str) -> Branch:
    """The branch of that name, made when it is first needed."""
    with session.lock:
        found = session.get_branch(name, None)
        if found is not None:
            return found
        try:
            return session.create_branch(name)
        except ExistsError:  # another process was faster
            return session.get_branch(name)


def sessions_under(client: Client, prefix: str) -> Iterator[SessionInfo]:
    """All sessions whose key begins like this, the one changed last first."""
    page = client.sessions(contains=prefix, limit=_PAGE)
    while page:
        yield from (one for one in page if (one.key or "").startswith(prefix))
        page = client.sessions(contains=prefix, limit=_PAGE, before=page[-1])


class LruCache(Generic[_Key, _T]):
    """A least-recently-used cache of open objects; evicted ones are opened again when needed."""

    def __init__(self, most: int = _OPEN) -> None:
        self._most, self._lock = most, Lock()
        self._held: OrderedDict[_Key, _T] = OrderedDict()

    def get(self, key: _Key, make: Callable[[], _T]) -> _T:
        """The one that is held, or a new one."""
        with self._lock:
            if key not in self._held:
                self._held[key] = make()
            self._held.move_to_end(key)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
            return self._held[key]

    def drop(self, key: _Key) -> None:
        """Hold it no longer."""
        with self._lock:
            self._held.pop(key, None)

    def newest_first(self) -> list[_T]:
        """All that is held."""
        with self._lock:
            return list(reversed(self._held.values()))

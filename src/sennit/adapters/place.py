"""Where an adapter reads and writes: a branch, by name, through the client.

Sessions and branches are made when they are first needed, and looked at anew each time, so that
many processes may work on one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError
from sennit.messages.message import Message
from sennit.sessions.braid import DEFAULT_BRANCH
from sennit.sessions.branch import Branch


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a session, by name: where an adapter reads and writes."""

    client: Client
    session: str
    branch: str = DEFAULT_BRANCH

    def open(self) -> Branch:
        """The branch as it is now, made when it is first needed."""
        return named_branch(self.client.session(self.session), self.branch)

    def said(self, last: int | None = None) -> list[Message]:
        """What was said on the branch, without its system message; at most the `last` ones."""
        branch = self.open()
        with branch.session.lock:
            first = after_system(branch)
            start = first if last is None else max(first, len(branch) - last)
            return branch.items_of(branch.session.messages, start)

    def add(self, messages: Sequence[Message]) -> None:
        """Put messages at the end of the branch, all or none."""
        branch = self.open()
        branch.session.add_messages(messages, branches=branch)

    def clear(self) -> None:
        """Leave nothing on the branch but its system message; other branches keep theirs."""
        branch = self.open()
        with branch.session.lock:
            del branch[after_system(branch) :]

    def fork(self, *, name: str | None, at: int | None) -> Place:
        """A place on a new branch that shares what was said, up to and including index `at`."""
        branch = self.open()
        with branch.session.lock:
            index = None if at is None else at + (after_system(branch) if at >= 0 else 0)
            forked = branch.session.fork(branch, at=index, name=name, system=True)
        return Place(self.client, self.session, forked.name)


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

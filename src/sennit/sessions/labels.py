"""Labels of a session's messages.

With a store they are kept there and read anew each time, as others may judge too; a session without
one has them in memory.
"""

# Like a session, this may reach past the guards of what a session has.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence

from sennit.sessions.session import SessionCore
from sennit.stores.records.sessions import LabelRecord, PutLabels


class SessionLabels:
    """The labels of one session."""

    def __init__(self, session: SessionCore) -> None:
        self._session = session

    def put(self, labels: Sequence[LabelRecord]) -> None:
        """Keep labels, all or none, each in place of its judge's last one; NotFoundError."""
        session = self._session
        if session.keeper is not None:
            session.keeper.write([PutLabels(tuple(labels))])
            return
        with session.lock:
            session.messages.pick(one.message for one in labels)
            for one in labels:
                session._labels.pop((one.message, one.judge), None)
                if one.score is not None:
                    session._labels[(one.message, one.judge)] = one

    def all(self) -> list[LabelRecord]:
        """All labels, the oldest first."""
        keeper = self._session.keeper
        if keeper is not None:
            return keeper.store.labels(keeper.owner, keeper.session)
        with self._session.lock:
            return list(self._session._labels.values())

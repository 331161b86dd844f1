"""Labels of a session's messages.

With a store, labels are written to it and read from it every time, as other processes may add some.
A session without a store has them in memory.
"""

# Like a session, this bypasses the guards of branches and piles.
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
        """Store labels, all or none, each replacing its judge's last; raises NotFoundError."""
        session = self._session
        if session.repository is not None:
            session.repository.write([PutLabels(tuple(labels))])
            return
        with session.lock:
            session.messages.pick(label.message for label in labels)
            for label in labels:
                session._labels.pop((label.message, label.judge), None)
                if label.score is not None:
                    session._labels[(label.message, label.judge)] = label

    def all(self) -> list[LabelRecord]:
        """Return all labels, oldest first."""
        keeper = self._session.repository
        if keeper is not None:
            return keeper.store.labels(keeper.owner, keeper.session)
        with self._session.lock:
            return list(self._session._labels.values())

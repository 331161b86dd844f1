"""Labels of one session in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.stores.records.sessions import LabelRecord, PutLabels
from sennit.stores.sqlite import statements as sql


class LabelTable:
    """The labels of one session."""

    def __init__(self, connection: sqlite3.Connection, owner: int, session: int) -> None:
        self._run = connection.execute
        self._key = (owner, session)

    def all(self) -> list[LabelRecord]:
        """Return all labels, oldest first."""
        return [
            LabelRecord(id_from_bytes(uid), judge, score, created)
            for uid, judge, score, created in self._run(sql.LABELS, self._key)
        ]

    def put(self, change: PutLabels, number: Callable[[UUID], int]) -> None:
        """Store or delete labels; `number` returns a message's number or raises NotFoundError."""
        for label in change.labels:
            key = (*self._key, number(label.message), label.judge)
            if label.score is None:
                self._run(sql.DELETE_LABEL, key)
            else:
                self._run(sql.PUT_LABEL, (*key, label.score, label.created))

    def forget_message(self, number: int) -> None:
        """Erase the labels of a message."""
        self._run(sql.DELETE_LABELS_OF, (*self._key, number))

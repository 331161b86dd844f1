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
        """All labels, the oldest first."""
        return [
            LabelRecord(id_from_bytes(uid), judge, score, created)
            for uid, judge, score, created in self._run(sql.LABELS, self._key)
        ]

    def put(self, change: PutLabels, number: Callable[[UUID], int]) -> None:
        """Keep labels; `number` gives that of a message, or raises NotFoundError."""
        for one in change.labels:
            key = (*self._key, number(one.message), one.judge)
            if one.score is None:
                self._run(sql.DELETE_LABEL, key)
            else:
                self._run(sql.PUT_LABEL, (*key, one.score, one.created))

    def forget_message(self, number: int) -> None:
        """Erase what was thought of a message."""
        self._run(sql.DELETE_LABELS_OF, (*self._key, number))

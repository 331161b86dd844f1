"""Batched inserts for SQLite.

Most transactions append messages and events. Their rows are buffered here and flushed before
anything reads them, because each statement releases the GIL and waits to get it back.
"""

from __future__ import annotations

import sqlite3

from sennit.stores.sqlite import statements as sql


class InsertBuffer:
    """Rows that a transaction has yet to insert, of all its sessions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.messages: list[tuple[object, ...]] = []
        self.entries: list[tuple[int, int, int, int, int]] = []
        self.events: list[tuple[object, ...]] = []
        self.runs: dict[tuple[int, int, int], tuple[object, ...]] = {}
        self.leases: dict[tuple[int, int, bytes], tuple[object, ...]] = {}

    def flush_journals(self) -> None:
        """Insert the buffered runs, leases and events."""
        for statement, rows in ((sql.PUT_RUN, self.runs), (sql.PUT_LEASE, self.leases)):
            if rows:
                values = [(*key, *row) for key, row in rows.items()]
                self.connection.executemany(statement, values)
                rows.clear()
        if self.events:
            self.connection.executemany(sql.ADD_EVENT, self.events)
            self.events.clear()

    def flush(self) -> None:
        """Insert the buffered messages and entries; raises IntegrityError if an id exists."""
        for statement, rows in ((sql.ADD_MESSAGE, self.messages), (sql.ADD_ENTRY, self.entries)):
            if rows:
                self.connection.executemany(statement, rows)
                rows.clear()

    def forget(self) -> None:
        """Discard all buffered rows after a rollback."""
        for rows in (self.messages, self.entries, self.events, self.runs, self.leases):
            rows.clear()

"""A connection to PostgreSQL with a short way for what is sent most often.

A cursor costs as much as the statement when the same short statement is sent again and again. Here
each connection prepares such a statement once, and its values go and come in binary form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, LiteralString

try:
    import psycopg
    from psycopg import RawCursor, pq
    from psycopg import errors as pg
    from psycopg.generators import execute
except ImportError as error:
    raise ImportError(
        f"The PostgreSQL store needs an extra ({error}): pip install 'sennit[postgres]'"
    ) from error

_BINARY = pq.Format.BINARY
_SOUND = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

Refused = (pg.UniqueViolation, pg.NotNullViolation)
"""What a statement raises that would have broken a key, or left a column empty."""


class Statement:
    """A statement that each connection prepares once, under a name."""

    def __init__(self, name: str, text: LiteralString, *, parameters: int) -> None:
        self.name, self.text = name.encode(), text.encode()
        self.formats = [pq.Format.BINARY] * parameters


class Line(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a short way for statements sent so often that a cursor would count."""

    @cached_property
    def _statements_known(self) -> set[Statement]:
        return set()

    def ask(self, statement: Statement, values: Sequence[bytes]) -> pq.abc.PGresult:
        """The answer; values go and come in PostgreSQL's binary form."""
        with self.lock:
            if statement in self._statements_known:
                try:
                    return self._asked(statement, values)
                except pg.InvalidSqlStatementName:
                    pass  # after some rollbacks the driver has the server forget all of them
            self.pgconn.send_prepare(statement.name, statement.text)
            self._answer()
            self._statements_known.add(statement)
            return self._asked(statement, values)

    def _asked(self, statement: Statement, values: Sequence[bytes]) -> pq.abc.PGresult:
        self.pgconn.send_query_prepared(statement.name, values, statement.formats, _BINARY)
        return self._answer()

    def _answer(self) -> pq.abc.PGresult:
        result = self.wait(execute(self.pgconn))[-1]
        if result.status not in _SOUND:
            raise pg.error_from_result(result)
        return result

    def ask_each(
        self, statement: Statement, given: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...] | None]:
        """The first row for each of these values, with few round trips for all."""
        rows: list[tuple[Any, ...] | None] = []
        with RawCursor(self) as cursor:
            cursor.executemany(statement.text, given, returning=True)
            for _ in given:
                rows.append(cursor.fetchone())
                cursor.nextset()
        return rows

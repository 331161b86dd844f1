"""A PostgreSQL connection with prepared statements for the most frequent writes.

For a short statement that is sent very often, a cursor costs as much as the statement. Here each
connection prepares such a statement once, and exchanges values in binary format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, LiteralString, TypeAlias

from sennit.stores.postgres.driver import (
    PQGen,
    Ready,
    Wait,
    execute,
    fetch_many,
    pg,
    pipeline_communicate,
    pq,
    psycopg,
)

_BINARY = pq.Format.BINARY
_CONNECTED = pq.ConnStatus.OK
_SUCCESS = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

Answer: TypeAlias = pq.abc.PGresult
Packed: TypeAlias = list[bytes | None]
"""Parameters in PostgreSQL's binary format."""

Refused = (pg.UniqueViolation, pg.NotNullViolation)
"""Constraint violations that make a fast path fall back to the slow one."""


class Statement:
    """A statement that each connection prepares once, under a name."""

    def __init__(self, name: str, text: LiteralString, *, parameters: int) -> None:
        self.name, self.text = name.encode(), text.encode()
        self.formats = [pq.Format.BINARY] * parameters


class PreparedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that runs prepared statements without a cursor."""

    @cached_property
    def _prepared_statements(self) -> set[Statement]:
        return set()

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        # After a rollback the driver deallocates all statements, including these.
        if name is None:
            self._prepared_statements.clear()
        return super()._deallocate(name)

    def ask(self, statement: Statement, values: Packed) -> Answer:
        """Run a prepared statement and return its result, in binary format."""
        with self.lock:
            if statement in self._prepared_statements:
                try:
                    return self._execute(statement, values)
                except pg.InvalidSqlStatementName:
                    pass  # deallocated by another user of the connection
            self._prepare(statement)
            return self._execute(statement, values)

    def _prepare(self, statement: Statement) -> None:
        self.pgconn.send_prepare(statement.name, statement.text)
        self._fetch_result()
        self._prepared_statements.add(statement)

    def _execute(self, statement: Statement, values: Packed) -> Answer:
        self.pgconn.send_query_prepared(statement.name, values, statement.formats, _BINARY)
        return self._fetch_result()

    def _fetch_result(self) -> Answer:
        result = self.wait(execute(self.pgconn))[-1]
        if result.status not in _SUCCESS:
            raise pg.error_from_result(result)
        return result

    def ask_each(self, queries: Sequence[tuple[Statement, Packed]]) -> list[Answer]:
        """Run statements in one round trip, inside a transaction; return their results.

        Raises the error of the first one that fails; those after it are not run.
        """
        with self.lock:
            for statement in {statement for statement, _ in queries} - self._prepared_statements:
                self._prepare(statement)
            self.pgconn.enter_pipeline_mode()
            try:
                answers = self.wait(self._send_pipelined(queries))
            finally:
                if self.pgconn.status == _CONNECTED:
                    self.pgconn.exit_pipeline_mode()
        for (statement, _), answer in zip(queries, answers, strict=True):
            if answer.status not in _SUCCESS:
                error = pg.error_from_result(answer)
                if isinstance(error, pg.InvalidSqlStatementName):
                    self._prepared_statements.discard(statement)  # deallocated
                raise error
        return answers

    def _send_pipelined(self, queries: Sequence[tuple[Statement, Packed]]) -> PQGen[list[Answer]]:
        """Send all statements in pipeline mode, and fetch all results."""
        send, sync = self.pgconn.send_query_prepared, self.pgconn.pipeline_sync
        commands: deque[Callable[[], None]] = deque(
            partial(send, statement.name, values, statement.formats, _BINARY)
            for statement, values in queries
        )
        commands.append(sync)
        results = yield from pipeline_communicate(self.pgconn, commands)
        # It ends when all is queued: the server answers only when the buffer has been flushed.
        while self.pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                self.pgconn.consume_input()
        while len(results) <= len(queries):
            results.append((yield from fetch_many(self.pgconn)))
        return [answers[-1] for answers in results[:-1]]

"""A PostgreSQL connection with prepared statements for the most frequent writes.

A cursor costs as much as the statement when the same short statement is sent again and again. Here
each connection prepares such a statement once, and its values go and come in binary form.
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
"""Values in PostgreSQL's binary form."""

Refused = (pg.UniqueViolation, pg.NotNullViolation)
"""What a statement raises that would have broken a key, or left a column empty."""


class Statement:
    """A statement that each connection prepares once, under a name."""

    def __init__(self, name: str, text: LiteralString, *, parameters: int) -> None:
        self.name, self.text = name.encode(), text.encode()
        self.formats = [pq.Format.BINARY] * parameters


class PreparedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a short way for statements sent so often that a cursor would count."""

    @cached_property
    def _prepared_statements(self) -> set[Statement]:
        return set()

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        # After a rollback the driver has the server forget all statements, ours among them.
        if name is None:
            self._prepared_statements.clear()
        return super()._deallocate(name)

    def ask(self, statement: Statement, values: Packed) -> Answer:
        """The answer; values go and come in PostgreSQL's binary form."""
        with self.lock:
            if statement in self._prepared_statements:
                try:
                    return self._execute(statement, values)
                except pg.InvalidSqlStatementName:
                    pass  # somebody else has had the server forget it
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
        """The answers to several, with one round trip for all; inside a transaction.

        Raises what the first one that fails raises, and then none after it was done.
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
                    self._prepared_statements.discard(statement)  # the server has forgotten it
                raise error
        return answers

    def _send_pipelined(self, queries: Sequence[tuple[Statement, Packed]]) -> PQGen[list[Answer]]:
        """Send all, and take in all answers."""
        send, sync = self.pgconn.send_query_prepared, self.pgconn.pipeline_sync
        commands: deque[Callable[[], None]] = deque(
            partial(send, statement.name, values, statement.formats, _BINARY)
            for statement, values in queries
        )
        commands.append(sync)
        results = yield from pipeline_communicate(self.pgconn, commands)
        # It ends when all is queued: the server answers nothing until the rest is sent too.
        while self.pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                self.pgconn.consume_input()
        while len(results) <= len(queries):
            results.append((yield from fetch_many(self.pgconn)))
        return [answers[-1] for answers in results[:-1]]

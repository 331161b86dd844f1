"""A PostgreSQL server that crashes in mid-write; `make torture` does it more often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from psycopg import OperationalError

from sennit.stores.postgres.prepared_connection import PreparedConnection
from sennit.stores.postgres.store import PostgresStore
from tests.torture import restarts

if TYPE_CHECKING:
    from tests.postgres import OwnServer

pytest_plugins = ("tests.postgres",)


def test_a_server_that_crashes_in_mid_write_loses_and_doubles_nothing(
    own_server: OwnServer, url: str, record_property: Callable[[str, object], None]
) -> None:
    counts = restarts.crash(own_server, url, rounds=2)
    record_property("counted", ["server crashes", counts])
    assert (counts["lost"], counts["doubled"], counts["disordered"]) == (0, 0, 0)
    assert counts["acknowledged"] >= 30


def test_a_write_is_made_again_whose_transaction_number_went_to_someone_else(
    own_server: OwnServer, url: str
) -> None:
    """After a crash the server gives numbers again that it had not yet written down."""
    store = PostgresStore(url)
    attempts = 0

    def work(connection: PreparedConnection) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            connection.execute(
                "INSERT INTO sennit.owners (tenant, kind, name, of_user) "
                "VALUES ('t', 'user', 'n', '')"
            )
            own_server.stop("immediate")
            own_server.start()
            for _ in range(20):
                own_server.execute("SELECT pg_current_xact_id()")  # each is committed
        return attempts

    assert store._database.change(work) == 2
    store.close()


def test_a_write_that_was_made_is_not_made_again_when_its_answer_was_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    attempts = 0

    def work(connection: PreparedConnection) -> int:
        nonlocal attempts
        attempts += 1
        return attempts

    def lost_after_commit(connection: PreparedConnection) -> int:
        result = change(connection)
        if attempts == 1 and not lost:
            lost.append(True)
            connection.close()
            raise OperationalError("the connection was lost")
        return result

    lost: list[bool] = []
    database = store._database
    run = database.run
    change: Callable[[PreparedConnection], int] = work

    def caught(given: Callable[[PreparedConnection], int]) -> int:
        nonlocal change
        change = given
        return run(lost_after_commit)

    monkeypatch.setattr(database, "run", caught)
    monkeypatch.setattr(database, "_drop_old_receipts", lambda: None)
    assert database.change(work) == 1
    assert attempts == 1
    store.close()

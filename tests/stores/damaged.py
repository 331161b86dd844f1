"""Fixtures: a filled store of each kind that lasts, and what does it harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit import Client
from sennit.stores.postgres.store import PostgresStore
from tests.stores.corrupted_stores import DatabaseHarm, FileHarm, Harm, admitted


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def ward(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Client, Harm]]:
    """A client of a filled store, and what does it harm."""
    if request.param == "SQLite":
        path = tmp_path / "sennit.db"
        with sennit.open(path, durability="normal") as client:
            yield admitted(client), FileHarm(path)
    else:
        url = request.getfixturevalue("emptied")
        with Client(PostgresStore(url)) as client:
            yield admitted(client), DatabaseHarm(url)


@pytest.fixture
def client(ward: tuple[Client, Harm]) -> Client:
    return ward[0]


@pytest.fixture
def harm(ward: tuple[Client, Harm]) -> Harm:
    return ward[1]

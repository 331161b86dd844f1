"""What tests of memory share: stores of each kind, and conversations worth remembering."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sennit import Client, Session, clock
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.sqlite.store import SQLiteStore

PROFILE = "viking://user/memories/profile.md"
DAY = timedelta(days=1)
SPRING = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store of each kind."""
    made: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "chat.db"),
        "postgres": lambda: PostgresStore(request.getfixturevalue("emptied")),
    }
    opened = made[request.param]()
    yield opened
    opened.close()


@pytest.fixture
def client(store: Store) -> Client:
    """A client on it."""
    return Client(store, user="ada", agent="helper")


def talk(session: Session, *said: str) -> None:
    """Say these, and answer each."""
    for text in said:
        session.add_message("user", text)
        session.add_message("assistant", "I see.")


def said_on(client: Client, day: datetime, session: str, *said: str) -> str:
    """Say something on a day, and commit it; gives the commit's id."""
    moment = clock.from_datetime(day) * 1000
    ticks = iter(range(10**9))
    with clock.wall_clock_from(lambda: moment + next(ticks) * 1000):
        talk(client.session(session), *said)
        return client.session(session).commit().task_id or ""


def memories(client: Client) -> dict[str, str]:
    """What is remembered, by address."""
    return {one.uri: one.text for one in client.memory.all()}


TALK = (
    "My name is Ada and I live in Lisbon.",
    "I prefer tea to coffee.",
    "My sister is called Grace.",
    "Yesterday I signed the contract for the new flat.",
)

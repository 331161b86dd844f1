"""Values that no store could give back as they were: refused by name, and nothing half written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Client, InstructionContent, Message, SennitError, ValidationError
from sennit.stores.postgres.store import PostgresStore

pytest_plugins = ("tests.postgres",)


@pytest.fixture(params=["memory", "SQLite", "PostgreSQL"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    if request.param == "PostgreSQL":
        opened = Client(PostgresStore(request.getfixturevalue("emptied")))
    else:
        opened = sennit.open(":memory:" if request.param == "memory" else tmp_path / "sennit.db")
    with opened:
        yield opened


TEXTS = ["a\0b", "lone \ud800 surrogate"]
METADATA: list[dict[str, Any]] = [
    {"n": float("nan")},
    {"n": float("inf")},
    {"n": 10**30},
    {"n": [{"deep": -(10**30)}]},
    {"a\0b": 1},
    {"k": "\ud800"},
]


def refused_whole(client: Client, act: Callable[[], object]) -> None:
    """It is refused, nothing has changed, and all goes on."""
    session = client.session("kept")
    session.add_message("user", "before")
    with pytest.raises(ValidationError):
        act()
    session.add_message("user", "after")
    found = Client(client._store).session("kept")
    assert len(found.messages) == len(found.default_branch) == 2
    assert [one.name for one in found.branches] == ["main"]
    assert [info.key for info in client.sessions()] == ["kept"]
    assert client.doctor() == []


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_cannot_be_kept_is_refused_wherever_it_stands(client: Client, text: str) -> None:
    kept = client.session("kept")
    acts: list[Callable[[], object]] = [
        lambda: kept.add_message("user", text),
        lambda: kept.create_branch(text),
        lambda: kept.fork("main", name=text),
        lambda: kept.create_branch("new", resources={text}),
        lambda: client.session(text),
        lambda: kept.default_branch.edit(0, text),
    ]

    def each() -> None:
        for act in acts[1:]:
            with pytest.raises(SennitError):
                act()
        acts[0]()

    refused_whole(client, each)


@pytest.mark.parametrize("metadata", METADATA)
def test_metadata_that_cannot_be_kept_is_refused(client: Client, metadata: dict[str, Any]) -> None:
    def each() -> None:
        with pytest.raises(ValidationError):
            client.session("new", metadata=metadata)
        message = Message(InstructionContent(instruction="x"), metadata=metadata)
        client.session("kept").add_message(message)

    refused_whole(client, each)


@pytest.mark.parametrize("text", [*TEXTS, "'; DROP TABLE messages; --", '"', "*", "NEAR(", "a:b"])
def test_any_text_may_be_searched_for(client: Client, text: str) -> None:
    client.session("kept").add_message("user", "a rope")
    try:
        assert client.search_messages(text) == []
    except ValidationError:
        assert text in TEXTS
    assert len(client.search_messages("ropes")) == 1


def test_a_limit_of_any_size_gives_all_there_is(client: Client) -> None:
    client.session("kept").add_message("user", "a rope")
    assert len(client.sessions(limit=10**30)) == 1
    assert len(client.search_messages("rope", limit=10**30)) == 1


@pytest.mark.parametrize("part", TEXTS)
def test_a_key_is_not_searched_for_what_no_key_can_hold(client: Client, part: str) -> None:
    refused_whole(client, lambda: client.sessions(contains=part))

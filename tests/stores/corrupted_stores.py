"""Stores to be damaged, and what the doctor is asked of them; for every kind that has a disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

import psycopg

from sennit import Client, InstructionContent, Message, Session, SystemContent

MAIN = "(SELECT segment FROM branches WHERE name = 'main' ORDER BY session LIMIT 1)"
LOW = "(SELECT segment FROM branches WHERE name = 'low' ORDER BY session LIMIT 1)"
TOP = "(SELECT segment FROM branches WHERE name = 'top' ORDER BY session LIMIT 1)"
CHAT = "(SELECT no FROM sessions WHERE key = 'chat')"
ADA = "(SELECT no FROM owners)"


def nth(place: int) -> str:
    """The number of a message of the first session, counted from 0, the system message."""
    return f"(SELECT no FROM messages WHERE session = {CHAT} ORDER BY no LIMIT 1 OFFSET {place})"


class Harm(Protocol):
    """Does what nobody should do to the tables; gives the rows of the last statement."""

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]: ...

    def bytes_of(self, text: str) -> str:
        """An expression for the bytes of a text."""
        ...


class FileHarm:
    """Harm to a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._path, isolation_level=None)
        rows = [connection.execute(statement).fetchall() for statement in statements]
        connection.close()
        return rows[-1]

    def bytes_of(self, text: str) -> str:
        return f"CAST('{text}' AS BLOB)"


class DatabaseHarm:
    """Harm to a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SET search_path = sennit")
            cursors = [connection.execute(statement.encode()) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    def bytes_of(self, text: str) -> str:
        return f"convert_to('{text}', 'UTF8')"


def ask(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def filled(client: Client, key: str = "chat") -> Session:
    session = client.session(key)
    main = session.create_branch("main", system=Message(SystemContent("Terse.")))
    for n in range(6):
        session.add_message(ask(f"rope {n}"), branches=main)
    low = session.fork(main, at=2, name="low", system=True)  # system, 0, 1
    session.add_message(ask("low"), branches=low)
    top = session.fork(main, name="top", system=True)
    session.add_message(ask("top"), branches=top)
    return session


def admitted(client: Client) -> Client:
    """The client, with two sessions and a complete index."""
    filled(client)
    filled(client, "other")
    client.search_messages("rope")
    return client


def fresh(client: Client) -> Client:
    """A client that remembers nothing."""
    return Client(client._store)


def texts(session: Session, branch: str) -> list[str]:
    found = (session.messages[uid].content for uid in session.get_branch(branch))
    return [one.instruction if isinstance(one, InstructionContent) else "system" for one in found]  # pyright: ignore


def messages(session: Session) -> list[str]:
    return sorted(one.to_json() for one in session.messages)


def mended(client: Client, kind: str) -> None:
    """It was found, and repair leaves nothing to find, and all other sessions as they were."""
    other = texts(fresh(client).session("other"), "top")
    found = {finding.kind: finding for finding in client.doctor()}
    assert kind in found
    assert found[kind].repairable
    assert found[kind].count >= len(found[kind].rows) > 0
    assert kind in {finding.kind for finding in client.doctor(repair=True)}
    assert client.doctor() == []
    assert client.doctor(repair=True) == []
    assert texts(fresh(client).session("other"), "top") == other
    client.session("chat").add_message("user", "life goes on")


def counted(harm: Harm, *tables: str) -> list[int]:
    """How many rows there are."""
    return [harm(f"SELECT count(*) FROM {table}")[0][0] for table in tables]

"""Odd inputs at every public entry: refused in our own words, and nothing is changed.

A lone surrogate cannot be encoded, a NUL stands in no path or column, a huge integer fits no column
and cannot even be printed, NaN is no number. Whatever takes a value from a program or a request has
to refuse such a one as a SennitError, never as the error of a codec, a driver or Python itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import sennit
from sennit import Client, Message, SennitError, Session, SystemContent
from sennit.stores.postgres.store import PostgresStore

pytest_plugins = ("tests.postgres",)

HOSTILE: dict[str, Any] = {
    "a lone surrogate": "\ud800",
    "a surrogate inside": "knots \udfff and",
    "NUL": "a\0b",
    "nothing": "",
    "a huge integer": 10**5000,
    "a huge negative integer": -(10**5000),
    "more than 64 bits": 2**70,
    "less than nothing": -1,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "None": None,
    "a list": ["x"],
    "bytes": b"\xff",
    "an object": object(),
}

Call: TypeAlias = Callable[[Client, Session, Any], object]
NOTES = "viking://resources/notes.md"

CALLS: dict[str, Call] = {
    "client.session": lambda c, s, v: c.session(v, create=False),
    "client.session(system=)": lambda c, s, v: c.session("chat", system=v),
    "client.sessions(contains=)": lambda c, s, v: c.sessions(contains=v),
    "client.sessions(limit=)": lambda c, s, v: c.sessions(limit=v),
    "client.sessions(before=)": lambda c, s, v: c.sessions(before=v),
    "client.session_info": lambda c, s, v: c.session_info(v),
    "client.delete_session": lambda c, s, v: c.delete_session(v),
    "client.forget(session=)": lambda c, s, v: c.forget(session=v),
    "client.forget(uri=)": lambda c, s, v: c.forget(uri=v),
    "client.get_task": lambda c, s, v: c.get_task(v),
    "client.retry_task": lambda c, s, v: c.retry_task(v),
    "client.undo_commit": lambda c, s, v: c.undo_commit(v),
    "client.find": lambda c, s, v: c.find(v),
    "client.find(limit=)": lambda c, s, v: c.find("knot", limit=v),
    "client.search": lambda c, s, v: c.search(v, session=s),
    "client.search_messages": lambda c, s, v: c.search_messages(v),
    "client.search_messages(limit=)": lambda c, s, v: c.search_messages("knot", limit=v),
    "client.search_messages(session=)": lambda c, s, v: c.search_messages("knot", session=v),
    "client.expire": lambda c, s, v: c.expire(v),
    "client.import_sessions": lambda c, s, v: c.import_sessions(v),
    "client.export(sessions=)": lambda c, s, v: c.export("/nowhere/a.zip", [v]),
    "client.fs.ls": lambda c, s, v: c.fs.ls(v),
    "client.fs.read": lambda c, s, v: c.fs.read(v),
    "client.fs.read(below)": lambda c, s, v: (
        c.fs.read(f"viking://resources/{v}") if isinstance(v, str) else None
    ),
    "client.fs.stat": lambda c, s, v: c.fs.stat(v),
    "client.fs.tree(depth=)": lambda c, s, v: c.fs.tree(depth=v),
    "client.fs.rm": lambda c, s, v: c.fs.rm(v),
    "client.fs.mv": lambda c, s, v: c.fs.mv(NOTES, v),
    "client.fs.write(uri)": lambda c, s, v: c.fs.write(v, "text"),
    "client.fs.glob": lambda c, s, v: c.fs.glob(v),
    "client.fs.grep": lambda c, s, v: c.fs.grep(v),
    "client.fs.exists": lambda c, s, v: c.fs.exists(v),
    "client.fs.abstract": lambda c, s, v: c.fs.abstract(v),
    "client.fs.overview": lambda c, s, v: c.fs.overview(v),
    "client.memory.get": lambda c, s, v: c.memory.get(v),
    "client.memory.history": lambda c, s, v: c.memory.history(v),
    "session.get_branch": lambda c, s, v: s.get_branch(v),
    "session.create_branch": lambda c, s, v: s.create_branch(v) if v not in (None, "") else None,
    "session.remove_branch": lambda c, s, v: s.remove_branch(v),
    "session.rename_branch": lambda c, s, v: s.rename_branch("main", v),
    "session.fork": lambda c, s, v: s.fork(v),
    "session.fork(at=)": lambda c, s, v: s.fork("main", at=v) if v is not None else None,
    "session.fork(name=)": lambda c, s, v: s.fork("main", name=v) if v is not None else None,
    "session.add_message(role)": lambda c, s, v: s.add_message(v, "text"),
    "session.add_message(text)": lambda c, s, v: s.add_message("user", v) if v != "" else None,
    "session.add_message(branches=)": lambda c, s, v: (
        s.add_message("user", "text", branches=v) if v is not None else None
    ),
    "session.remove_message": lambda c, s, v: s.remove_message(v),
    "session.describe": lambda c, s, v: s.describe(v),
    "session.describe(value)": lambda c, s, v: (
        s.describe({"title": v}) if v not in (None, "", ["x"], -1) else None
    ),
    "session.label(message)": lambda c, s, v: s.label(v, 1.0),
    "session.label(score)": lambda c, s, v: s.label(s.default_branch[1], v) if v != -1 else None,
    "session.label(by=)": lambda c, s, v: s.label(s.default_branch[1], 1.0, by=v),
    "session.labels": lambda c, s, v: s.labels(v) if v is not None else None,
    "session.used": lambda c, s, v: s.used(v),
    "session.current": lambda c, s, v: s.current(v),
    "session.diff": lambda c, s, v: s.diff("main", v),
    "session.commit(branch)": lambda c, s, v: s.commit(v) if v is not None else None,
    "session.messages[]": lambda c, s, v: s.messages[v],
    "branch[]": lambda c, s, v: s.default_branch[v] if v != -1 else None,
    "branch[:]": lambda c, s, v: s.default_branch[:v],
    "branch.index": lambda c, s, v: s.default_branch.index(v),
    "branch.append": lambda c, s, v: s.default_branch.append(v),
    "branch.insert(at)": lambda c, s, v: s.default_branch.insert(v, s.default_branch[0]),
    "branch.pop": lambda c, s, v: s.default_branch.pop(v) if v != -1 else None,
    "branch.rename": lambda c, s, v: s.default_branch.rename(v),
    "branch.fork(at=)": lambda c, s, v: s.default_branch.fork(at=v) if v is not None else None,
    "branch.edit(message)": lambda c, s, v: s.default_branch.edit(v, "x") if v != -1 else None,
    "branch.edit(text)": lambda c, s, v: s.default_branch.edit(1, v) if v != "" else None,
    "branch.regenerate": lambda c, s, v: s.default_branch.regenerate(v) if v != -1 else None,
    "branch.grant": lambda c, s, v: s.default_branch.grant(resources=v) if v != ["x"] else None,
    "branch in": lambda c, s, v: v in s.default_branch,
    "sennit.open(user=)": lambda c, s, v: Client(c._store, user=v) if v is not None else None,
    "sennit.open(url)": lambda c, s, v: sennit.open(v) if v is not None else None,
}


@pytest.fixture(params=["memory", "SQLite", "PostgreSQL"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    if request.param == "PostgreSQL":
        opened = Client(PostgresStore(request.getfixturevalue("emptied")))
    else:
        opened = sennit.open(":memory:" if request.param == "memory" else tmp_path / "sennit.db")
    with opened as client:
        furnish(client)
        yield client


def furnish(client: Client) -> Session:
    """Store something that could be changed."""
    session = client.session("chat")
    session.create_branch("main", system=Message(SystemContent("Terse.")))
    session.add_message("user", "Which knot holds?")
    session.add_message("assistant", "A bowline.")
    client.fs.write(NOTES, "A bowline holds.")
    return session


def everything(client: Client) -> str:
    """All that is stored, as text; a query may have indexed words meanwhile."""
    sessions = [
        [
            str(info.key),
            [
                [branch.name, [message.to_json() for message in branch.messages]]
                for branch in client.session(info.id).branches
            ],
        ]
        for info in sorted(client.sessions(), key=lambda info: str(info.id))
    ]
    return json.dumps([sessions, client.fs.tree(), client.fs.read(NOTES)])


@cache
def usual(call: str) -> list[str]:
    """The odd values that an entry takes in memory: odd for one is usual for another."""
    with sennit.open(":memory:") as client:
        session = furnish(client)
        return [name for name in HOSTILE if taken(client, session, call, name)]


def taken(client: Client, session: Session, call: str, name: str) -> bool:
    """Whether an entry takes an odd value; it may refuse it with an error of ours alone."""
    try:
        CALLS[call](client, session, HOSTILE[name])
    except SennitError:
        return False
    except Exception as error:
        raise AssertionError(f"{call} with {name}: {type(error).__name__}: {error}") from error
    return True


@pytest.mark.parametrize("call", CALLS)
def test_odd_values_are_refused_in_our_words_and_change_nothing(client: Client, call: str) -> None:
    session, before = client.session("chat"), everything(client)
    refused = [name for name in HOSTILE if name not in usual(call)]
    assert not [name for name in refused if taken(client, session, call, name)]
    # To read all that is stored takes longest, so it is done once for all of them.
    assert everything(Client(client._store)) == before, f"{call} with one of {refused}"
    for name in usual(call):
        before = everything(Client(client._store))
        if not taken(client, session, call, name):  # which a store with columns may do
            assert everything(Client(client._store)) == before, f"{call} with {name}"


def test_a_huge_position_is_out_of_range_like_any_other(client: Client) -> None:
    branch = client.session("chat").default_branch
    for at in (10**5000, -(10**5000)):
        with pytest.raises(IndexError):
            branch[at]
        with pytest.raises(SennitError):
            client.session("chat").fork("main", at=at)


def test_a_session_is_forgotten_by_a_key_that_cannot_be_one(client: Client) -> None:
    with pytest.raises(SennitError):
        client.forget(session="\ud800")
    with suppress(SennitError):
        client.expire(datetime(1, 1, 1, tzinfo=UTC))

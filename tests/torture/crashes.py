"""Crash an act at each of its points, look at what is left, and finish the act.

An act is rehearsed first: which points it passes, which changes it makes to the store, and how the
store looks before and after each. Then, for each point, a child process does the act on a copy of
the same scene with the same ids and kills itself there. What is found must be one of the rehearsed
states; the same changes made once more must lead to the last of them; the doctor finds nothing, and
the store works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from sennit import Client, ConflictError, NotFoundError, StoreError
from sennit.memory.memory import engine_of
from sennit.stores.base import Store
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.records.files import StoredFile
from sennit.stores.records.sessions import JournalRecord, Owner, SessionDump
from sennit.stores.sqlite.store import SQLiteStore
from sennit.testing import faults
from sennit.testing.conformance.fixtures import View
from tests.torture import acts
from tests.torture.acts import ACTS, Act, replaying
from tests.torture.fork_server import ForkServer, Say
from tests.torture.ground import Databases, Files, opened

CHANGING = {
    "create_session", "write", "write_many", "delete_session", "erase_removed", "acquire", "renew",
    "release", "change_files", "rename", "unname", "erase_uses", "put_blob",
}  # fmt: skip
State = dict[str, Any]
Point = tuple[str, int]
"""A point and how often the act has come by it."""


@dataclass
class Tally:
    """What came of many crashes."""

    killed: int = 0
    cut: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    sick: int = 0
    trouble: list[str] = field(default_factory=list[str])

    def note(self, kind: str, where: str, what: object) -> None:
        """Count something that must not be."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.trouble.append(f"{kind} at {where}: {what!r:.1500}")

    def add(self, other: Tally) -> None:
        """Count what came of others too."""
        for name, count in other.counts.items():
            setattr(self, name, getattr(self, name) + count)
        self.trouble += other.trouble

    @property
    def counts(self) -> dict[str, int]:
        """The numbers, for a summary."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}


def state(client: Client) -> State:
    """All that can be seen of a store's sessions and files, less the time of their last change."""
    sessions, files = everything(client)
    found: State = {"files": files, "leases": leases(client._store)}
    for whole in sessions:
        snapshot = whole.snapshot
        View(snapshot).check_integrity()
        found[snapshot.session.key or str(snapshot.session.id)] = (
            dict(snapshot.session.metadata),
            {one.id: (one.created, one.body) for one in snapshot.messages},
            {one.id: (one.base, one.offset, one.entries) for one in snapshot.segments},
            snapshot.branches,
            {one.branch: (one.runs, one.events) for one in whole.journals if one.runs},
            whole.commits,
            whole.labels,
            {one.message for one in whole.removed},
            whole.starts,
        )
    found["words"] = {hit.message for hit in client.search_messages("knot", limit=500)}
    return found


def everything(client: Client) -> tuple[list[SessionDump], list[StoredFile]]:
    """All sessions and files; from PostgreSQL in one snapshot, as each question takes its time."""
    store, realm = client._store, engine_of(client.memory).scope
    if isinstance(store, PostgresStore):
        return store.with_everything(lambda sessions, files, _: (list(sessions), list(files)))
    sessions = [
        SessionDump(
            client._owner,
            snapshot := store.load(client._owner, info.id),
            [journal(store, client._owner, info.id, one.id) for one in snapshot.branches],
            store.commits(client._owner, info.id),
            store.labels(client._owner, info.id),
            store.removed(client._owner, info.id, 2**62, 1000),
            store.starts(client._owner, info.id, None),
        )
        for info in client.sessions(limit=100)
    ]
    files = [
        StoredFile(file, store.file_versions(file.owner, file.id))
        for owner in realm.owners
        for file in store.list_files(owner, "")
    ]
    return sessions, files


def journal(store: Store, owner: Owner, session: UUID, branch: UUID) -> JournalRecord:
    """What runs have noted on a branch."""
    runs = list(reversed(store.runs(owner, session, branch)))
    return JournalRecord(branch, runs, store.events(owner, session, branch, 0, 1000))


def leases(store: Store) -> list[tuple[bytes, str, bool]]:
    """Who holds which branch; a token may grow when it is taken again."""
    question = "SELECT branch, holder, expires > 0 FROM {}leases ORDER BY branch"
    if isinstance(store, SQLiteStore):
        rows = store._writer.execute(question.format("")).fetchall()
    else:
        assert isinstance(store, PostgresStore)
        asked: Any = question.format("sennit.")
        rows = store._database.run(lambda connection: connection.execute(asked).fetchall())
    return [(bytes(getattr(row[0], "bytes", row[0])), row[1], bool(row[2])) for row in rows]


class Recording:
    """A store that notes which changes are asked of it, to ask for them again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if name not in CHANGING:
            return method

        def noted(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            return method(*arguments)

        return noted


def acknowledged(client: Client) -> Any:
    """What is done and acknowledged just before the act, and must never be lost."""
    with replaying(2):
        session = client.session("chat")
        session.add_message("user", "knot acknowledged", branches="side")
        return session


def acting(act: Act, client: Client, session: Any) -> None:
    """Do an act, with the same ids each time."""
    with replaying(3):
        act.perform(client, session)


@dataclass
class Rehearsal:
    """What is known of an act; it holds for every ground of the same kind."""

    act: str
    points: list[Point]
    calls: list[tuple[str, tuple[Any, ...]]]
    states: list[State]
    """Before the act, and after each of its changes."""
    acknowledged: UUID
    """The message that was acknowledged before it."""


def numbered(points: Iterable[str]) -> list[Point]:
    """Points with how often each was reached so far; a pool's own are left out."""
    seen: Counter[str] = Counter()
    found: list[Point] = []
    for point in points:
        if "SET plan_cache_mode" not in point:
            seen[point] += 1
            found.append((point, seen[point]))
    return found


def share(points: list[Point], every: int, seed: str = "") -> list[Point]:
    """Every so many-th of the points, beginning at one that depends on the seed; at least one."""
    return points[Random(seed).randrange(min(every, len(points))) :: every]


def rehearse(ground: Files | Databases, act: Act) -> Rehearsal:
    """Do an act undisturbed."""
    with ground.scene() as address, faults.record() as reached, opened(address) as client:
        recording = Recording(client._store)
        watched = Client(recording)  # pyright: ignore[reportArgumentType]
        session = acknowledged(watched)
        recording.calls.clear()
        begin = len(reached)
        acting(act, watched, session)
        points, last = numbered(reached[begin:]), state(client)
    with ground.scene() as address, opened(address) as client:
        kept = acknowledged(client).get_branch("side")[-1]
        states = [state(client)]
        for name, arguments in recording.calls:
            getattr(client._store, name)(*arguments)
            states.append(state(client))
    assert states[-1] == last, f"{act.name!r} is not made of its changes"
    assert len(recording.calls) == act.steps, f"{act.name!r} has {len(recording.calls)} steps"
    return Rehearsal(act.name, points, recording.calls, states, kept)


def work(job: dict[str, Any], say: Say) -> None:
    """In a child: do an act, and die at a point of it."""
    with faults.record():
        if job["act"] == acts.OPEN:
            with faults.arm(job["point"], faults.kill, at=job["at"]):
                opened(job["address"]).close()
            say("done")
            return
        client = opened(job["address"])
        session = acknowledged(client)
        say("acknowledged")
        with faults.arm(job["point"], faults.kill, at=job["at"]):
            acting(ACTS[job["act"]], client, session)
        say("done")


def differences(found: State, states: list[State]) -> Any:
    """What a state has that the nearest of others has not, and the other way round."""
    names = found.keys() | {name for one in states for name in one}
    apart = [
        {
            name: (found.get(name), one.get(name))
            for name in names
            if found.get(name) != one.get(name)
        }
        for one in states
    ]
    return min(apart, key=len)


class Crashes:
    """Crashes on one ground, and what came of them."""

    def __init__(self, ground: Files | Databases, fork_server: ForkServer) -> None:
        self.ground, self.fork_server, self.tally = ground, fork_server, Tally()

    def kill(self, rehearsal: Rehearsal, point: Point) -> None:
        """Do an act in a child that dies at a point, and look at what is left."""
        where = f"{rehearsal.act}, {point}"
        with self.ground.scene() as address:
            code, said = self._child(address, rehearsal.act, point)
            self.tally.killed += 1
            if (code, said) != (-9, ["acknowledged"]):
                self.tally.note("sick", where, (code, said))
                return
            with opened(address) as client:
                self._judge(rehearsal, where, client)

    def cut(self, rehearsal: Rehearsal, point: Point) -> None:
        """Do an act whose connections break at a point: it goes on, as if nothing had been."""
        assert isinstance(self.ground, Databases)
        ground, where = self.ground, f"{rehearsal.act}, cut {point}"
        with ground.scene() as address, faults.record():
            client = opened(address, pool_size=2)
            session = acknowledged(client)
            self.tally.cut += 1
            try:
                with faults.arm(point[0], lambda _: ground.cut_off(address), at=point[1]):
                    acting(ACTS[rehearsal.act], client, session)
            except StoreError as error:
                self.tally.note("lost", where, error)
            self._judge(rehearsal, where, client, done=True)
            client.close()

    def kill_opening(self, point: Point) -> None:
        """Open a new store in a child that dies at a point; the next one opens it."""
        where = f"{acts.OPEN}, {point}"
        with self.ground.nothing() as address:
            code, said = self._child(address, acts.OPEN, point)
            self.tally.killed += 1
            if (code, said) != (-9, []):
                self.tally.note("sick", where, (code, said))
            with opened(address) as client:
                self._look_after(where, client)

    def opening_points(self) -> list[Point]:
        """The points of opening a new store."""
        with self.ground.nothing() as address, faults.record() as reached:
            opened(address).close()
        return numbered(reached)

    def _child(self, address: str, act: str, point: Point) -> tuple[int, list[str]]:
        job = {"do": "torture.crashes.work", "address": address, "act": act}
        return self.fork_server.run({**job, "point": point[0], "at": point[1]})

    def _judge(
        self, rehearsal: Rehearsal, where: str, client: Client, *, done: bool = False
    ) -> None:
        """Look at what is left, which is the last state if all was `done`, and finish the act."""
        found, states = state(client), rehearsal.states[-1:] if done else rehearsal.states
        if found not in states:
            held = all(rehearsal.acknowledged in one["words"] for one in states)
            lost = held and rehearsal.acknowledged not in found["words"]
            self.tally.note("lost" if lost else "torn", where, differences(found, states))
        for name, arguments in rehearsal.calls:
            with suppress(*() if found == rehearsal.states[0] else (NotFoundError, ConflictError)):
                getattr(client._store, name)(*arguments)
        if (again := state(client)) != states[-1]:
            self.tally.note("doubled", where, differences(again, states[-1:]))
        self._look_after(where, client)

    def _look_after(self, where: str, client: Client) -> None:
        """The doctor finds nothing, and the store works."""
        if findings := client.doctor():
            self.tally.note("sick", where, findings)
        session = client.session("afterwards")
        session.add_message("user", "on we go")
        if len(client.session("afterwards").default_branch) != 1:
            self.tally.note("sick", where, "it does not work")

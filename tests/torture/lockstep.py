"""Three stores in lock step: whatever is done to one is done to all, and they may not differ.

Memory, SQLite and PostgreSQL each have two clients on the same sessions. Each step is done on all
three with the same clock and the same ids, so that what comes back, what is refused and in which
words, what each client has in memory and what a fresh one finds can be compared to the letter.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID, uuid5

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sennit import (
    AssistantResponseContent,
    Branch,
    Client,
    InstructionContent,
    Message,
    NotFoundError,
    SennitError,
    Session,
    SystemContent,
    TextPart,
    ToolPart,
    clock,
)
from sennit.messages import MessageGroup
from sennit.sessions.records import message_record
from sennit.stores.base import Store
from sennit.stores.doctor.checks import examine
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.records.sessions import (
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    Change,
    EventRecord,
    Lease,
    MessageRecord,
    PutRun,
    RunRecord,
    TakeLease,
    Write,
)
from sennit.stores.sqlite.store import SQLiteStore
from tests.torture.acts import replaying

HOUR = 3_600_000_000  # in microseconds
WORDS = ["oak", "elm", "ash", "fir"]
# To make a failing run smaller takes minutes with three real stores: ask for Phase.shrink by hand.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
_tenants = itertools.count()

who = st.integers(0, 1)
keys = st.sampled_from(["one", "one", "one", "two"])
places = st.integers(-2, 12)
words = st.sampled_from(WORDS)
names = st.none() | st.sampled_from(["main", "left", "right"])
flags = st.booleans()


@dataclass(frozen=True)
class RunStep:
    """A write that turns make: taking a branch, noting what happened there, saying something."""

    kind: str
    holder: str
    messages: int
    events: int
    put: bool
    release: bool
    off: int
    """How far the events are from where they should be."""

    def changes(self, branch: UUID, seq: int, last: int, token: int) -> tuple[Change, ...]:
        """The same for a store: after event `seq` and lease `last`, with the holder's `token`."""
        if self.kind == "take":
            return (TakeLease(branch, self.holder, HOUR),)
        if self.kind == "begin":
            take = TakeLease(branch, self.holder, HOUR)
            return (take, *self._noted(branch, seq, last + 1))
        return self._noted(branch, seq, token)

    def _noted(self, branch: UUID, last: int, token: int) -> tuple[Change, ...]:
        said = [self._message(at) for at in range(self.messages)]
        uids = tuple(one.id for one in said)
        changes: list[Change] = [AddMessages(tuple(said)), Append(branch, uids)] if said else []
        if self.kind == "say":
            return tuple(changes)
        run = uuid5(branch, self.holder)
        if self.put:
            state = "ended" if self.release else "running"
            record = RunRecord(run, branch, state, clock.now_us(), clock.now_us(), b"{}")
            changes.append(PutRun(record, token, self.release))
        if self.events:
            first = last + 1 + self.off
            numbers = range(max(1, first), max(1, first) + self.events)
            events = [EventRecord(seq, run, None, f"event {seq}".encode()) for seq in numbers]
            changes.append(AddEvents(branch, tuple(events), token))
        return tuple(changes)

    def _message(self, at: int) -> MessageRecord:
        message = Message(InstructionContent.create(f"{self.holder} {at}"))
        return message_record(message)


run_steps = st.builds(
    RunStep,
    kind=st.sampled_from(["take", "begin", "begin", "note", "note", "say"]),
    holder=st.sampled_from("ab"),
    messages=st.integers(0, 2),
    events=st.integers(0, 2),
    put=flags,
    release=flags,
    off=st.sampled_from([0, 0, 0, 0, -1, 1]),
)


def shown(result: Any) -> Any:
    """What an act gave back, as something to compare."""
    match result:
        case MessageGroup():
            return [one.to_json() for one in result.messages]
        case Message():
            return result.to_json()
        case Branch():
            return result.name, result.id
        case Session():
            return result.id, result.key, dict(result.metadata)
        case _:
            return result


def without_times(outcome: list[BranchHead] | SennitError) -> Any:
    """The outcome of a write, less the times of leases, which each store tells by its own clock."""
    if isinstance(outcome, SennitError):
        return re.sub(r"expires in \d+ s", "expires in … s", repr(outcome))
    return [re.sub(r"expires=\d+", "expires=…", repr(head)) for head in outcome]


def seen(session: Session) -> dict[str, Any]:
    """All that a session shows."""
    return {
        "messages": sorted(message.to_json() for message in session.messages),
        "branches": {branch.name: _seen(branch) for branch in session.branches},
    }


def _seen(branch: Branch) -> tuple[Any, ...]:
    return (
        branch.id,
        list(branch),
        branch.system and branch.system.id,
        sorted(branch.resources),
        sorted(branch.capabilities),
        dict(branch.metadata),
        branch.created_at,
        branch._version,
    )


class Side:
    """One store, and two clients on it."""

    def __init__(self, name: str, store: Store, tenant: str) -> None:
        self.name, self.store, self.tenant = name, store, tenant
        self.open_again()

    def open_again(self) -> None:
        """Forget all that clients had in memory."""
        self.clients = [self.fresh() for _ in range(2)]
        self.held: dict[tuple[int, str], Session] = {}
        self.leases: dict[str, Lease] = {}

    def fresh(self) -> Client:
        """A client that knows nothing yet."""
        return Client(self.store, tenant=self.tenant)

    def session(self, who: int, key: str) -> Session:
        """A session as that client last saw it, or opened now."""
        if (who, key) not in self.held:
            self.held[who, key] = self.clients[who].session(key)
        return self.held[who, key]

    def last_token(self, key: str, branch: UUID) -> int:
        """The token of the last lease of a branch that was taken here."""
        taken = [one.token for name, one in self.leases.items() if f"{key} {branch} " in name]
        return max(taken, default=0)


class Kit:
    """Opens a store of each kind, each time in place of those opened before."""

    def __init__(self, file: str, database: str) -> None:
        self._file, self._database = file, database
        self._memory = MemoryStore()  # it cannot be opened again, and stays as it is
        self._opened: list[Store] = []

    def open(self) -> dict[str, Store]:
        """The stores, by name."""
        self._close()
        self._opened = [
            SQLiteStore(self._file, durability="normal"),
            PostgresStore(self._database, pool_size=2),
        ]
        return {"memory": self._memory, "SQLite": self._opened[0], "PostgreSQL": self._opened[1]}

    def close(self) -> None:
        """Look once more at the file that so much was done to."""
        findings = examine(self.open()["SQLite"])
        self._close()
        assert findings == []

    def _close(self) -> None:
        for store in self._opened:
            store.close()


Act = Callable[[Session], Any]


class Lockstep(RuleBasedStateMachine):
    """What may be done to sessions; needs its `kit` to be set."""

    kit: ClassVar[Kit]

    @initialize()
    def begin(self) -> None:
        self.steps = itertools.count(1)
        tenant = f"run {next(_tenants)}"
        stores = self.kit.open()
        self.sides = [Side(name, store, tenant) for name, store in stores.items()]

    def together(self, act: Callable[[Side], Any]) -> None:
        """Do something on all sides; it must give or refuse the same."""
        step = next(self.steps)
        outcomes = {side.name: self._outcome(act, side, step) for side in self.sides}
        first = outcomes["memory"]
        for name, outcome in outcomes.items():
            assert outcome == first, f"{name}: {outcome}, but memory: {first}"

    def _outcome(self, act: Callable[[Side], Any], side: Side, step: int) -> Any:
        with replaying(step):
            try:
                return shown(act(side))
            except SennitError as error:
                return type(error).__name__, without_times(error)

    def on(self, who: int, key: str, act: Act) -> None:
        """Do something to a session."""
        self.together(lambda side: act(side.session(who, key)))

    def on_branch(self, who: int, key: str, at: int, act: Callable[[Branch], Any]) -> None:
        """Do something to one of the branches, if there is one."""

        def pick(session: Session) -> Any:
            known = sorted(session.branches, key=lambda branch: branch.name)
            return act(known[at % len(known)]) if known else None

        self.on(who, key, pick)

    @rule(who=who, key=keys, text=words, role=st.sampled_from(["user", "assistant"]))
    def say(self, who: int, key: str, text: str, role: Any) -> None:
        self.on(who, key, lambda session: session.add_message(role, text))

    @rule(who=who, key=keys, text=words, count=st.integers(1, 3))
    def say_parts(self, who: int, key: str, text: str, count: int) -> None:
        tools = [ToolPart(text, {"n": n}, output=n) for n in range(count)]
        parts = [TextPart(text), *tools, TextPart("done")]
        self.on(who, key, lambda session: session.add_message("assistant", parts))

    @rule(
        who=who,
        key=keys,
        text=words,
        on=st.sets(st.integers(0, 3), max_size=3),
        kind=st.integers(0, 2),
    )
    def add(self, who: int, key: str, text: str, on: set[int], kind: int) -> None:
        contents = (InstructionContent(text), AssistantResponseContent(text), SystemContent(text))

        def act(session: Session) -> Any:
            known = sorted(branch.name for branch in session.branches)
            chosen = [known[at % len(known)] for at in on] if known else []
            return session.add_message(Message(contents[kind]), branches=chosen)

        self.on(who, key, act)

    @rule(who=who, key=keys, at=places, message=places)
    def add_again(self, who: int, key: str, at: int, message: int) -> None:
        def act(branch: Branch) -> Any:
            known = sorted(one.id for one in branch.session.messages)
            one = branch.session.messages.get(known[message % len(known)]) if known else None
            return one and branch.session.add_message(one, branches=branch)

        self.on_branch(who, key, at, act)

    @rule(who=who, key=keys, name=names, system=flags)
    def create_branch(self, who: int, key: str, name: str | None, system: bool) -> None:
        def act(session: Session) -> Any:
            prompt = Message(SystemContent("be brief")) if system else None
            return session.create_branch(name, system=prompt, resources={"model"})

        self.on(who, key, act)

    @rule(who=who, key=keys, branch=places, at=st.none() | places, name=names, all=flags)
    def fork(
        self, who: int, key: str, branch: int, at: int | None, name: str | None, all: bool
    ) -> None:
        given: Any = True if all else None
        self.on_branch(
            who,
            key,
            branch,
            lambda one: one.fork(at=at, name=name, system=given, resources=given),
        )

    @rule(who=who, key=keys, branch=places, at=places, text=words, name=names)
    def edit(self, who: int, key: str, branch: int, at: int, text: str, name: str | None) -> None:
        self.on_branch(who, key, branch, lambda one: one.edit(at, text, name=name))

    @rule(who=who, key=keys, branch=places, at=places)
    def regenerate(self, who: int, key: str, branch: int, at: int) -> None:
        self.on_branch(who, key, branch, lambda one: one.regenerate(at))

    @rule(who=who, key=keys, branch=places, text=st.none() | words)
    def set_system(self, who: int, key: str, branch: int, text: str | None) -> None:
        def act(one: Branch) -> Any:
            prompt = None if text is None else Message(SystemContent(text))
            return one.session.set_branch_system(one, prompt)

        self.on_branch(who, key, branch, act)

    @rule(
        who=who,
        key=keys,
        branch=places,
        a=places,
        b=places,
        how=st.sampled_from(["insert", "remove", "move", "pop", "reverse", "delete", "append"]),
    )
    def rewrite(self, who: int, key: str, branch: int, a: int, b: int, how: str) -> None:
        def act(one: Branch) -> Any:
            known = sorted(message.id for message in one.session.messages)
            chosen = known[b % len(known)] if known else None
            match how:
                case "insert":
                    return chosen and one.insert(a, chosen)
                case "remove":
                    return chosen and one.remove(chosen)
                case "append":
                    return chosen and one.append(chosen)
                case "move":
                    return one.move(a, b)
                case "pop":
                    return one.pop(a)
                case "reverse":
                    return one.reverse()
                case _:
                    del one[a:b]
                    return None

        self.on_branch(who, key, branch, act)

    @rule(who=who, key=keys, branch=places, what=words, more=flags)
    def grant_or_revoke(self, who: int, key: str, branch: int, what: str, more: bool) -> None:
        def act(one: Branch) -> Any:
            change = one.grant if more else one.revoke
            return change(resources={what}, capabilities={what.title()})

        self.on_branch(who, key, branch, act)

    @rule(who=who, key=keys, branch=places, name=st.sampled_from(["main", "left", "right", "up"]))
    def rename_branch(self, who: int, key: str, branch: int, name: str) -> None:
        self.on_branch(who, key, branch, lambda one: one.rename(name))

    @rule(who=who, key=keys, branch=places)
    def remove_branch(self, who: int, key: str, branch: int) -> None:
        self.on_branch(who, key, branch, lambda one: one.session.remove_branch(one))

    @rule(who=who, key=keys, at=places)
    def erase(self, who: int, key: str, at: int) -> None:
        def act(session: Session) -> Any:
            known = sorted(message.id for message in session.messages)
            return session.remove_message(known[at % len(known)]) if known else None

        self.on(who, key, act)

    @rule(who=who, key=keys)
    def refresh(self, who: int, key: str) -> None:
        self.on(who, key, lambda session: session.refresh())

    @rule(who=who, key=keys)
    def open_session(self, who: int, key: str) -> None:
        def act(side: Side) -> Any:
            side.held[who, key] = side.clients[who].session(key)
            return side.held[who, key]

        self.together(act)

    @rule(who=who, key=keys, sure=st.integers(0, 3))
    def delete_session(self, who: int, key: str, sure: int) -> None:
        if sure == 3:
            self.together(lambda side: side.clients[who].delete_session(key))

    @rule(text=st.sets(words, min_size=1, max_size=2), key=st.none() | keys)
    def search(self, text: set[str], key: str | None) -> None:
        def act(side: Side) -> Any:
            hits = side.clients[0].search_messages(" ".join(sorted(text)), session=key, limit=500)
            return {(hit.session, hit.message, hit.snippet) for hit in hits}

        self.together(act)

    @rule(contains=st.none() | st.sampled_from(["o", "TW", "x"]), limit=st.integers(1, 2))
    def list_sessions(self, contains: str | None, limit: int) -> None:
        def act(side: Side) -> Any:
            page = side.clients[1].sessions(contains=contains, limit=limit)
            rest = side.clients[1].sessions(contains=contains, before=page[-1]) if page else []
            return [(info.key, info.id, info.metadata) for info in [*page, *rest]]

        self.together(act)

    @rule(
        who=who,
        key=keys,
        branch=places,
        holder=st.sampled_from("ab"),
        ttl=st.sampled_from([0, HOUR]),  # over at once, or not in this test
        how=st.sampled_from(["acquire", "renew", "release"]),
    )
    def lease(self, who: int, key: str, branch: int, holder: str, ttl: int, how: str) -> None:
        def act(side: Side) -> Any:
            client, session = side.clients[who], side.session(who, key)
            known = sorted(branch.name for branch in session.branches)
            if not known:
                return None
            chosen = session.get_branch(known[branch % len(known)])
            key_, owner = f"{key} {chosen.id} {holder}", client._owner
            had = side.leases.get(key_)
            if how == "acquire":
                found = side.store.acquire(owner, session.id, chosen.id, holder, ttl)
            elif had is None:
                return None
            elif how == "renew":
                found = side.store.renew(owner, session.id, had, ttl)
            else:
                return side.store.release(owner, session.id, had)
            side.leases[key_] = found
            return found.branch, found.holder, found.token

        self.together(act)

    @rule(who=who, key=keys, branch=places, steps=st.lists(run_steps, min_size=1, max_size=4))
    def steps_of_runs(self, who: int, key: str, branch: int, steps: list[RunStep]) -> None:
        def act(side: Side) -> Any:
            session, owner = side.session(who, key), side.clients[who]._owner
            names = sorted(branch.name for branch in session.branches)
            if not names:
                return None
            chosen = session.get_branch(names[branch % len(names)]).id
            at = (owner, session.id, chosen)
            try:
                seq, last = side.store.last_event(*at), side.last_token(key, chosen)
            except NotFoundError:
                return None
            changes: list[tuple[Change, ...]] = []
            for step in steps:
                had = side.leases.get(f"{key} {chosen} {step.holder}")
                changes.append(step.changes(chosen, seq, last, had.token if had else 0))
                seq += step.events
            writes = [Write(owner, session.id, one) for one in changes]
            found = side.store.write_many(writes)
            for step, heads in zip(steps, found, strict=True):
                if not isinstance(heads, SennitError) and heads and heads[0].taken:
                    side.leases[f"{key} {chosen} {step.holder}"] = heads[0].taken.lease
            return (
                [without_times(one) for one in found],
                side.store.runs(*at),
                side.store.events(*at, 0, 1000),
            )

        self.together(act)

    @rule(sure=st.integers(0, 4))
    def open_everything_again(self, sure: int) -> None:
        if sure == 4:
            stores = self.kit.open()
            for side in self.sides:
                side.store = stores[side.name]
                side.open_again()

    @invariant()
    def all_sides_show_the_same(self) -> None:
        if not hasattr(self, "sides"):
            return
        memory, *others = self.sides
        for side in others:
            for at, session in side.held.items():
                assert seen(session) == seen(memory.held[at]), f"{side.name}, client {at}"
            assert self._stored(side) == self._stored(memory), f"{side.name}, stored"

    def _stored(self, side: Side) -> dict[str, Any]:
        client = side.fresh()
        return {info.key or "": seen(client.session(info.id)) for info in client.sessions()}

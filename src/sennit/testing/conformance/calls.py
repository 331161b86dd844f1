"""Calls of every method: another owner, an unknown session and a closed store get nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias
from uuid import UUID

from sennit.errors import ConflictError, NotFoundError, SennitError, StoreError
from sennit.ids import new_id
from sennit.stores.records.commits import AddCommit, CommitRecord, CommitsRecord, PutCommit
from sennit.stores.records.search import TextQuery
from sennit.stores.records.sessions import (
    AddMessages,
    Append,
    Change,
    LabelRecord,
    Owner,
    PutLabels,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    Write,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    TTL,
    LeaseFixture,
    Scenario,
    deltas,
    empty,
    message,
    raises,
    same,
    session,
)

_ALL = 2**62
_EMPTY_FOR_ITS_OWNER = ("delete_session", "write", "acquire", "starts", "uses_of")
_Calls: TypeAlias = dict[str, tuple[Callable[[Owner, UUID], object], object]]


class _Sample:
    """A session with a lease, a run, a commit and a label, and calls that reach for them."""

    def __init__(self, s: Scenario) -> None:
        self.s, self.store, self.notes = s, s.store, LeaseFixture(s)
        s.append("main", ["a parrot"]).branch("gone", ["another parrot"]).remove("gone")
        self.run = self.notes.run()
        self.notes.add(*deltas(self.run, 1))
        self.commit = CommitRecord(new_id(), 1, self.notes.branch, NOON, "open", s.ids("a"), b"{}")
        self.label = PutLabels((LabelRecord(s["a"], "ann", 1.0, NOON),))
        s.write(AddCommit(self.commit), self.label)

    def changes(self) -> list[Change]:
        """Return changes that the owner could make."""
        branch = self.notes.branch
        return [
            AddMessages((message("x"),)),
            Append(branch, ()),
            RenameBranch(branch, "theirs"),
            RemoveBranch(branch),
            RemoveMessages(self.s.ids("a")),
            self.notes.putting(self.run, state="ended"),
            self.notes.adding(*deltas(self.run, 2)),
            PutCommit(self.commit.id, "failed", b"{}", 0),
            self.label,
        ]

    def calls(self) -> _Calls:
        """Return calls by the method's name, each with what it gives without the session."""
        store, branch, lease = self.store, self.notes.branch, self.notes.lease
        one, gone = self.s.ids("a"), NotFoundError
        return {
            "find_session": (store.find_session, None),
            "delete_session": (store.delete_session, False),
            "load": (store.load, gone),
            "changes": (lambda o, s: store.changes(o, s, {}), gone),
            "write": (lambda o, s: store.write(o, s, [AddMessages((message("x"),))]), gone),
            "search": (lambda o, s: store.search(o, "parrot", session=s, limit=9), []),
            "removed": (lambda o, s: store.removed(o, s, _ALL, 9), []),
            "erase_removed": (lambda o, s: store.erase_removed(o, s, _ALL), []),
            "branches_holding": (lambda o, s: store.branches_holding(o, s, one), {}),
            "messages": (lambda o, s: store.messages(o, s, one), []),
            "acquire": (lambda o, s: store.acquire(o, s, branch, "eve", TTL), gone),
            "renew": (lambda o, s: store.renew(o, s, lease, TTL), gone),
            "runs": (lambda o, s: store.runs(o, s, branch), gone),
            "events": (lambda o, s: store.events(o, s, branch, 0, 9), gone),
            "last_run": (lambda o, s: store.last_run(o, s, branch), gone),
            "last_runs": (store.last_runs, gone),
            "last_event": (lambda o, s: store.last_event(o, s, branch), gone),
            "labels": (store.labels, gone),
            "starts": (lambda o, s: store.starts(o, s, None), gone),
            "commits": (store.commits, gone),
            "archived": (lambda o, s: store.archived(o, s, 0), gone),
            "uses_of": (lambda o, s: store.uses_of(o, s, None), gone),
        }

    def owned(self) -> _Calls:
        """Return calls without a session, each with what it gives to another owner."""
        store = self.store
        places = [hit.place for hit in store.hits(OWNER, TextQuery(("parrot",)))]
        return {
            "list_sessions": (
                lambda o, _: store.list_sessions(o, contains=None, before=None, limit=9),
                [],
            ),
            "search of all": (lambda o, _: store.search(o, "parrot", session=None, limit=9), []),
            "removed of all": (lambda o, _: store.removed(o, None, _ALL, 9), []),
            "hits": (lambda o, _: store.hits(o, TextQuery(("parrot",))), []),
            "at_places": (lambda o, _: store.at_places(o, places), []),
            "stored": (lambda o, _: store.stored(o), (0, 0)),
            "find_commit": (lambda o, _: store.find_commit(o, self.commit.id), None),
            "open_commits": (lambda o, _: store.open_commits(o), []),
        }

    def give_nothing(self, calls: _Calls, owner: Owner, uid: UUID) -> None:
        """Assert that every call gives nothing, or raises."""
        for name, (call, nothing) in calls.items():
            if nothing is NotFoundError:
                raises(NotFoundError, lambda call=call: call(owner, uid), name)
            else:
                same(call(owner, uid), nothing, name)


def someone_else_gets_and_changes_nothing(s: Scenario) -> None:
    sample, store = _Sample(s), s.store
    before = store.load(OWNER, s.id), sample.notes.events(), store.commits(OWNER, s.id)
    sample.give_nothing({**sample.calls(), **sample.owned()}, STRANGER, s.id)
    for change in sample.changes():
        raises(NotFoundError, lambda c=change: store.write(STRANGER, s.id, [c]), f"{change!r:.90}")
    # A store may say that it is not there; what counts is that the lease is still held.
    with suppress(NotFoundError):
        store.release(STRANGER, s.id, sample.notes.lease)
    raises(ConflictError, lambda: sample.notes.acquire("eve"), "A lease a stranger released")
    after = store.load(OWNER, s.id), sample.notes.events(), store.commits(OWNER, s.id)
    same(after, before, "What the owner has")
    for name, (call, nothing) in {**sample.owned(), **sample.calls()}.items():
        if name not in _EMPTY_FOR_ITS_OWNER:
            given = call(OWNER, s.id)
            assert given not in (nothing, [], {}, None), f"{name} gives its owner nothing"


def someone_else_may_have_a_session_of_the_same_id(s: Scenario) -> None:
    sample, store = _Sample(s), s.store
    theirs, before = s.beside(STRANGER, s.id), store.load(OWNER, s.id)
    branch, notes = sample.notes.branch, (sample.notes.runs(), sample.notes.events())
    given = (store.runs(STRANGER, s.id, branch), store.events(STRANGER, s.id, branch, 0, 9))
    empty("Runs and events in it", *given)
    same(store.commits(STRANGER, s.id), CommitsRecord([], []), "Commits in it")
    for change in sample.changes():
        if not isinstance(change, AddMessages | RemoveMessages):
            raises(SennitError, lambda c=change: theirs.write(c), f"{change!r:.90}")
    theirs.write(AddMessages((message("theirs", s["a"]),)), RemoveMessages(s.ids("a")))
    theirs.branch("main", "b").shows(main="b")
    same(
        (store.load(OWNER, s.id), notes),
        (before, (sample.notes.runs(), sample.notes.events())),
        "Mine",
    )
    store.delete_session(STRANGER, s.id)
    same(store.load(OWNER, s.id), before, "The session after the other was deleted")


def an_unknown_session_has_nothing(s: Scenario) -> None:
    sample = _Sample(s)
    sample.give_nothing(sample.calls(), OWNER, new_id())
    raises(NotFoundError, lambda: s.store.write(OWNER, new_id(), []), "An empty write")


def a_deleted_session_has_nothing_and_leaves_the_others(s: Scenario) -> None:
    sample, store = _Sample(s), s.store
    other = _Sample(s.beside())
    before = store.load(OWNER, other.s.id), other.notes.runs(), other.notes.events()
    same(store.delete_session(OWNER, s.id), True, "Deleting a session")
    store.release(OWNER, s.id, sample.notes.lease)
    sample.give_nothing(sample.calls(), OWNER, s.id)
    same(store.find_commit(OWNER, sample.commit.id), None, "A commit of it")
    after = store.load(OWNER, other.s.id), other.notes.runs(), other.notes.events()
    same(after, before, "The other session")
    view = s.beside(uid=s.id).load()
    empty("One created anew with its id", view.messages, view.branches)
    sample.notes.shows([], [])
    same(store.commits(OWNER, s.id), CommitsRecord([], []), "Its commits")
    empty("Its labels", store.labels(OWNER, s.id), store.starts(OWNER, s.id, None))


def what_an_owner_stores_is_counted(s: Scenario) -> None:
    s.branch()
    s.beside(STRANGER).branch("main", ["x" * 5000])
    rest = len(b"{}" + b"main")  # metadata of the session, name of the branch
    size = len(s.add(["word " * 1000]).named["word " * 1000].body)
    same(s.store.stored(OWNER), (1, rest + size), "Sessions and bytes")
    same(s.erase(["word " * 1000]).store.stored(OWNER), (1, rest), "Without the message")
    s.store.delete_session(OWNER, s.id)
    same(s.store.stored(OWNER), (0, 0), "Sessions and bytes after the session was deleted")


def owners_differ_by_tenant_kind_and_name(s: Scenario) -> None:
    owners = [
        Owner("acme", "agent", "ada"),
        Owner("acme", "tenant", "ada"),
        Owner("acme", "user", "Ada"),
        Owner("acme", "user", ""),
        Owner("acme", "user", "ada", "ada"),
        Owner("acme", "user", "ad", "a"),
        Owner("", "user", "ada"),
        Owner("acmeuser", "user", "ada"),
        Owner("acme' OR '1'='1", "user", "ada"),
    ]
    for n, owner in enumerate(owners):
        s.store.create_session(owner, session(key=f"of {n}"))
    for n, owner in enumerate(owners):
        listed = s.store.list_sessions(owner, contains=None, before=None, limit=100)
        same([record.key for record in listed], [f"of {n}"], f"Sessions of {owner}")


def a_closed_store_refuses_everything(s: Scenario) -> None:
    sample = _Sample(s)
    calls = {**sample.owned(), **sample.calls()}
    write, lease = Write(OWNER, s.id, (AddMessages((message("x"),)),)), sample.notes.lease
    calls["write_many"] = lambda _o, _s: s.store.write_many([write]), None
    calls["release"] = lambda _o, _s: s.store.release(OWNER, s.id, lease), None
    calls["create_session"] = lambda _o, _s: s.store.create_session(OWNER, session()), None
    for _ in range(2):
        s.store.close()
    for name, (call, _) in calls.items():
        error = raises(StoreError, lambda c=call: c(OWNER, s.id), f"{name} on a closed store")
        assert not isinstance(error, ConflictError), f"{name} took being closed for a conflict."
        assert "closed" in str(error), f"{name} does not say that the store is closed: {error}"

"""Owners: data of another owner is invisible to every method."""

from __future__ import annotations

from contextlib import suppress

from sennit.errors import NotFoundError, SennitError
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddMessages,
    Append,
    Owner,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    STRANGER,
    StoreFixture,
    message,
    raises,
    same,
    session,
)

_MINUTE = 60_000_000


def a_session_of_another_owner_is_not_found(store: Store) -> None:
    scene = StoreFixture(store)
    same(store.find_session(STRANGER, scene.id), None, "Another owner's session")


def sessions_of_another_owner_are_not_listed(store: Store) -> None:
    store.create_session(OWNER, session(key="secret"))
    for contains in (None, "secret"):
        actual = store.list_sessions(STRANGER, contains=contains, before=None, limit=10)
        same(actual, [], "Sessions listed for someone else")


def a_session_of_another_owner_is_not_deleted(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "one")
    same(store.delete_session(STRANGER, scene.id), False, "Deleting another owner's session")
    same(scene.texts(), ["one"], "The branch")


def a_session_of_another_owner_is_not_loaded(store: Store) -> None:
    scene = StoreFixture(store)
    raises(NotFoundError, lambda: store.load(STRANGER, scene.id), "Loading it")
    raises(NotFoundError, lambda: store.changes(STRANGER, scene.id, {}), "Asking for changes")


def a_session_of_another_owner_is_not_written_to(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    for change in (
        AddMessages((message("x"),)),
        Append(main.id, ()),
        RenameBranch(main.id, "theirs"),
        RemoveBranch(main.id),
    ):
        raises(
            NotFoundError,
            lambda change=change: store.write(STRANGER, scene.id, [change]),
            "Writing to another owner's session",
        )
    same(scene.texts(), ["one"], "The branch")
    same(len(scene.load().messages), 1, "Messages in the session")


def messages_of_another_owner_are_not_searched(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "a secret parrot")
    for uid in (None, scene.id):
        actual = store.search(STRANGER, "parrot", session=uid, limit=10)
        same(actual, [], "Messages found by someone else")


def a_branch_of_another_owner_is_not_leased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    raises(
        NotFoundError,
        lambda: store.acquire(STRANGER, scene.id, main.id, "eve", _MINUTE),
        "Acquiring another owner's branch",
    )


def a_lease_of_another_owner_is_not_renewed(store: Store) -> None:
    scene = StoreFixture(store)
    lease = store.acquire(OWNER, scene.id, scene.branch("main").id, "ada", _MINUTE)
    raises(
        NotFoundError,
        lambda: store.renew(STRANGER, scene.id, lease, _MINUTE),
        "Renewing another owner's lease",
    )


def a_lease_of_another_owner_is_not_released(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    lease = store.acquire(OWNER, scene.id, main.id, "ada", _MINUTE)
    # A store may say that it is not there; what counts is that the lease is still held.
    with suppress(NotFoundError):
        store.release(STRANGER, scene.id, lease)
    raises(
        SennitError,
        lambda: store.acquire(OWNER, scene.id, main.id, "bob", _MINUTE),
        "Acquiring a branch whose lease a stranger tried to release",
    )


def what_an_owner_stores_is_counted(store: Store) -> None:
    same(store.stored(OWNER), (0, 0), "What nobody stored")
    scene, other = StoreFixture(store), StoreFixture(store, STRANGER)
    scene.branch("main")
    other.branch("main", "x" * 5000)
    rest = len(b"{}" + b"main")  # metadata of the session, name of the branch
    (said,) = scene.say("word " * 1000)
    same(store.stored(OWNER), (1, rest + len(said.body)), "Sessions and bytes")
    scene.write(RemoveMessages((said.id,)))
    same(store.stored(OWNER), (1, rest), "Sessions and bytes after the message was erased")
    store.delete_session(OWNER, scene.id)
    same(store.stored(OWNER), (0, 0), "Sessions and bytes after the session was deleted")


def owners_may_have_sessions_of_one_id(store: Store) -> None:
    mine = StoreFixture(store)
    theirs = StoreFixture(store, STRANGER, mine.id)
    mine.branch("main", "mine")
    theirs.branch("main", "theirs")
    same((mine.texts(), theirs.texts()), (["mine"], ["theirs"]), "The two branches")
    store.delete_session(STRANGER, mine.id)
    same(mine.texts(), ["mine"], "The branch after the other was deleted")


def owners_may_have_messages_of_one_id(store: Store) -> None:
    mine, one = StoreFixture(store), message("mine")
    theirs = StoreFixture(store, STRANGER, mine.id)
    mine.write(AddMessages((one,)))
    theirs.write(AddMessages((message("theirs", one.id),)))
    same(mine.load().messages, {one.id: one}, "My message")


def creating_a_session_another_owner_has_makes_a_new_one(store: Store) -> None:
    mine = session(key="mine", metadata={"secret": 1})
    theirs = session(mine.id, key="theirs")
    store.create_session(OWNER, mine)
    same(store.create_session(STRANGER, theirs), theirs, "What the other owner got")
    same(store.find_session(OWNER, mine.id), mine, "My session")


def owners_differ_by_tenant_kind_and_name(store: Store) -> None:
    owners = [
        Owner("acme", "user", "ada"),
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
        store.create_session(owner, session(key=f"of {n}"))
    for n, owner in enumerate(owners):
        actual = store.list_sessions(owner, contains=None, before=None, limit=100)
        same([record.key for record in actual], [f"of {n}"], f"Sessions of {owner}")

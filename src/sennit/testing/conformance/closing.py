"""Closing: a closed store refuses every call with a clear error."""

from __future__ import annotations

from collections.abc import Callable

from sennit.errors import ConflictError, StoreError
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddMessages, Lease, Write
from sennit.testing.conformance.fixtures import OWNER, StoreFixture, message, raises, session


def _calls(store: Store, scene: StoreFixture, lease: Lease) -> dict[str, Callable[[], object]]:
    uid, one = scene.id, AddMessages((message("one"),))
    return {
        "create_session": lambda: store.create_session(OWNER, session()),
        "find_session": lambda: store.find_session(OWNER, uid),
        "list_sessions": lambda: store.list_sessions(OWNER, contains=None, before=None, limit=1),
        "delete_session": lambda: store.delete_session(OWNER, uid),
        "load": lambda: store.load(OWNER, uid),
        "changes": lambda: store.changes(OWNER, uid, {}),
        "write": lambda: store.write(OWNER, uid, [one]),
        "write_many": lambda: store.write_many([Write(OWNER, uid, (one,))]),
        "search": lambda: store.search(OWNER, "parrot", session=None, limit=1),
        "acquire": lambda: store.acquire(OWNER, uid, lease.branch, "ada", 1),
        "renew": lambda: store.renew(OWNER, uid, lease, 1),
        "release": lambda: store.release(OWNER, uid, lease),
    }


def a_closed_store_refuses_everything(store: Store) -> None:
    scene = StoreFixture(store)
    lease = store.acquire(OWNER, scene.id, scene.branch("main").id, "ada", 60_000_000)
    store.close()
    for name, call in _calls(store, scene, lease).items():
        error = raises(StoreError, call, f"{name} on a closed store")
        assert not isinstance(error, ConflictError), f"{name} took being closed for a conflict."
        assert "closed" in str(error), f"{name} does not say that the store is closed: {error}"


def a_store_can_be_closed_twice(store: Store) -> None:
    StoreFixture(store).branch("main", "one")
    store.close()
    store.close()


def a_store_can_be_closed_unused(store: Store) -> None:
    store.close()
    raises(StoreError, lambda: store.find_session(OWNER, session().id), "A closed store")

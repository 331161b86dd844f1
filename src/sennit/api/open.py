"""`sennit.open`: open a client by store URL."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from sennit.api.store_url import store_at

if TYPE_CHECKING:
    from datetime import timedelta

    from sennit.api.client import Client
    from sennit.memory.retrieval.embedders import Embedder
    from sennit.services.registry import ServiceRegistry
    from sennit.stores.sqlite.connection import Durability


def open(
    url: str | PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    shared_space: bool = False,
    durability: Durability = "full",
    services: ServiceRegistry | None = None,
    embedder: Embedder | None = None,
    retention: timedelta | None = None,
) -> Client:
    """A client for one user's sessions in a store.

    `url` is the path of a SQLite file, in which a leading "~" is your home, "postgresql://…" (with
    the extra `postgres`), ":memory:" for a store that ends with the program, or None for SENNIT_URL
    or else a file in the user's data folder. `tenant` and `user` say whose sessions, by default
    "default"; `agent` is the name that what the assistant says is sent under, by default
    "assistant". Each may have 800 bytes. With `shared_space` it also reaches what all users of the
    tenant share, under viking://agent/shared and viking://resources/shared.
    `durability="normal"` waits less for the disk of a file: what was acknowledged then survives the
    program, but perhaps not the machine. `services` are the models and tools of its sessions, for
    clients of several users that share them. With an `embedder`, such as
    `sennit.memory.MiniLM()`, `client.find` goes by meaning too. Messages removed from their
    last branch are erased after the `retention` time, by default SENNIT_RETENTION_DAYS or 30 days,
    when the client is closed; with `timedelta(0)` at once.
    Raises StoreError if the store cannot be used, ValidationError for an address of no known kind
    or a name that no store can keep.
    """
    from sennit.api.client import Client

    store = store_at(url, durability)
    try:
        return Client(
            store,
            tenant=tenant,
            user=user,
            agent=agent,
            shared_space=shared_space,
            services=services,
            embedder=embedder,
            retention=retention,
        )
    except BaseException:
        store.close()
        raise

"""`sennit.open`: from an address to a client."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

from sennit import settings
from sennit.api.client import Client
from sennit.errors import ValidationError, shown
from sennit.services.registry import ServiceRegistry
from sennit.stores.base import Store

if TYPE_CHECKING:
    from sennit.stores.sqlite import Durability


def open(
    url: str | PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    user: str | None = None,
    durability: Durability = "full",
    services: ServiceRegistry | None = None,
) -> Client:
    """A client for one user's sessions in a store.

    `url` is the path of a SQLite file, "postgresql://…" (with the extra `postgres`), ":memory:" for
    a store that ends with the program, or None for SENNIT_URL or else a file in the user's data
    folder. `durability="normal"` waits less for the disk of a file: what was acknowledged then
    survives the program, but perhaps not the machine. `services` are the models and tools of its
    sessions, for clients of several users that share them.
    Raises StoreError if the store cannot be used, ValidationError for an address of no known kind.
    """
    return Client(_store(url, durability), tenant=tenant, user=user, services=services)


def _kind(address: str) -> str:
    """The kind of an address; the rest may hold a password."""
    return repr(f"{address.partition('://')[0]}://…" if "://" in address else address)


def _store(url: str | PathLike[str] | None, durability: Durability) -> Store:
    address = fspath(settings.default_url() if url is None else url)
    if durability != "full" and (address == ":memory:" or "://" in address):
        raise ValidationError(
            f"durability={shown(durability)} is for a file; {_kind(address)} has its own."
        )
    if address == ":memory:":
        from sennit.stores.memory import MemoryStore

        return MemoryStore()
    if address.startswith(("postgresql://", "postgres://")):
        from sennit.stores.postgres import PostgresStore

        return PostgresStore(address)
    if not address or "://" in address:
        raise ValidationError(
            f"{_kind(address)} is no store known here; give the path of a file, "
            f"'postgresql://…' or ':memory:'."
        )
    from sennit.stores.sqlite import SQLiteStore

    return SQLiteStore(address, durability=durability)

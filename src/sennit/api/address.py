"""From an address to a store; each kind of store is imported when it is first named."""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import TYPE_CHECKING

from sennit import settings
from sennit.errors import ValidationError, shown

if TYPE_CHECKING:
    from sennit.stores.base import Store
    from sennit.stores.sqlite_file import Durability

_PARAMETER = re.compile(r"\b(host|hostaddr|dbname|password)\s*=")


def store_at(url: str | PathLike[str] | None, durability: Durability = "full") -> Store:
    """The store at an address, opened; see `sennit.open`."""
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
    if _PARAMETER.search(address):
        raise ValidationError(  # without the address, as it may hold a password
            "An address made of parameters such as 'dbname=…' is not understood here; give "
            "PostgreSQL's as 'postgresql://user:password@host:5432/database'."
        )
    from sennit.stores.sqlite import SQLiteStore

    return SQLiteStore(address, durability=durability)


def _kind(address: str) -> str:
    """The kind of an address; the rest may hold a password."""
    return repr(f"{address.partition('://')[0]}://…" if "://" in address else address)

"""Store URLs, resolved to stores; each kind of store is imported on first use."""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sennit import settings
from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.paths import local_path, make_private_folder
from sennit.stores.database_url import is_database

if TYPE_CHECKING:
    from sennit.stores.base import Store
    from sennit.stores.sqlite.connection import Durability

_CONNECTION_PARAMETER = re.compile(r"\b(host|hostaddr|dbname|password)\s*=")


def open_store(url: str | PathLike[str] | None, durability: Durability = "full") -> Store:
    """Open the store at a URL; see `sennit.open`."""
    address = _parse_address(settings.default_url() if url is None else url)
    if durability != "full" and (address == ":memory:" or "://" in address):
        raise ValidationError(
            f"durability={short_repr(durability)} applies only to SQLite files, not to "
            f"{_redacted(address)}."
        )
    if address == ":memory:":
        from sennit.stores.in_memory.store import MemoryStore

        return MemoryStore()
    if address.startswith(("postgresql://", "postgres://")):
        from sennit.stores.postgres.store import PostgresStore

        return PostgresStore(address)
    if _CONNECTION_PARAMETER.search(address):
        raise ValidationError(  # without the URL, which may contain a password
            "Connection parameters such as 'dbname=…' are not supported; use a URL such as "
            "'postgresql://user:password@host:5432/database'."
        )
    file = file_at(address)
    if file is None:
        raise ValidationError(
            f"{_redacted(address)} is not a supported store URL; use the path of a file, "
            f"'postgresql://…' or ':memory:'."
        )
    from sennit.stores.sqlite.store import SQLiteStore

    if file.parent == settings.data_folder():
        make_private_folder(file.parent)
    return SQLiteStore(file, durability=durability)


def file_at(address: str) -> Path | None:
    """Return the SQLite file of a store URL, with "~" expanded; None for other stores."""
    if not address or address == ":memory:" or "://" in address or address.startswith("file:"):
        return None
    if is_database(address) or _CONNECTION_PARAMETER.search(address):
        return None
    return local_path(address)


def _parse_address(value: object) -> str:
    address = fspath(cast("PathLike[Any]", value)) if isinstance(value, PathLike) else value
    if not isinstance(address, str):
        raise InvalidTypeError(
            "A store is the path of a file, 'postgresql://…' or ':memory:', got "
            f"{short_repr(address)}."
        )
    if "\0" in address:
        raise ValidationError(
            f"The store URL {_redacted(address)} contains a NUL character; remove it."
        )
    return address


def _redacted(address: str) -> str:
    """Return the repr of a URL, with only the scheme of a database URL: it may hold a password."""
    if "://" in address or is_database(address):
        return repr(f"{address.partition(':')[0]}:…")
    return repr(address)

"""JSON columns of the SQL stores: grants and metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sennit.errors import CodecError, StoreError, short_repr
from sennit.messages.codec import dumps, loads
from sennit.stores.records.sessions import BranchRecord, SessionRecord


def text_of(metadata: dict[str, Any]) -> str:
    """Return metadata as a JSON column."""
    return dumps(metadata).decode()


def grants_of(branch: BranchRecord) -> tuple[str | None, str | None]:
    """Return the resources and capabilities of a branch as JSON columns."""
    return _names_column(branch.resources), _names_column(branch.capabilities)


def _names_column(names: frozenset[str] | None) -> str | None:
    return None if names is None else dumps(sorted(names)).decode()


def names_in(column: str | None) -> frozenset[str] | None:
    """Return the names in a JSON column; raises StoreError if it is damaged."""
    return None if column is None else frozenset(_parse(column, list))


def metadata_in(column: str) -> dict[str, Any]:
    """Return the metadata in a JSON column; raises StoreError if it is damaged."""
    return _parse(column, dict)


def _parse(column: str, expected: type) -> Any:
    try:
        value: Any = loads(column)
    except CodecError as error:
        raise _damaged_column(column) from error
    if not isinstance(value, expected):
        raise _damaged_column(column)
    return value


def _damaged_column(column: str) -> StoreError:
    return StoreError(
        f"The store is damaged: {short_repr(column)} is not valid metadata or names. Restore a "
        "backup."
    )


def session_in(uid: UUID, row: Any) -> SessionRecord:
    """Return the session of a row: number, id, key, user, created, updated, metadata."""
    _, _, key, user, created, updated, metadata = row
    return SessionRecord(uid, key, user, created, updated, metadata_in(metadata))

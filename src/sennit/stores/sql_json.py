"""JSON columns of the SQL stores: grants and metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sennit.errors import CodecError, StoreError, shown
from sennit.messages.codec import dumps, loads
from sennit.stores.records.sessions import BranchRecord, SessionRecord


def text_of(metadata: dict[str, Any]) -> str:
    """Metadata as a column holds it."""
    return dumps(metadata).decode()


def grants_of(branch: BranchRecord) -> tuple[str | None, str | None]:
    """The resources and capabilities of a branch, as their columns hold them."""
    return _column(branch.resources), _column(branch.capabilities)


def _column(names: frozenset[str] | None) -> str | None:
    return None if names is None else dumps(sorted(names)).decode()


def names_in(column: str | None) -> frozenset[str] | None:
    """The names that such a column holds; raises StoreError if it is damaged."""
    return None if column is None else frozenset(_read(column, list))


def metadata_in(column: str) -> dict[str, Any]:
    """The metadata that a column holds; raises StoreError if it is damaged."""
    return _read(column, dict)


def _read(column: str, kind: type) -> Any:
    try:
        found: Any = loads(column)
    except CodecError as error:
        raise _damaged(column) from error
    if not isinstance(found, kind):
        raise _damaged(column)
    return found


def _damaged(column: str) -> StoreError:
    return StoreError(
        f"The store is damaged: {shown(column)} is not valid metadata or names. Restore a backup."
    )


def session_in(uid: UUID, row: Any) -> SessionRecord:
    """The record in a session's row, which is its number, its id and the rest."""
    _, _, key, user, created, updated, metadata = row
    return SessionRecord(uid, key, user, created, updated, metadata_in(metadata))

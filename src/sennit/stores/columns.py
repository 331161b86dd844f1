"""What SQL stores keep as JSON in a column: the names a branch was granted, and metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sennit.messages.codec import dumps, loads
from sennit.stores.records import BranchRecord, SessionRecord


def text_of(metadata: dict[str, Any]) -> str:
    """Metadata as a column holds it."""
    return dumps(metadata).decode()


def grants_of(branch: BranchRecord) -> tuple[str, str]:
    """The resources and capabilities of a branch, as their columns hold them."""
    resources, capabilities = sorted(branch.resources), sorted(branch.capabilities)
    return dumps(resources).decode(), dumps(capabilities).decode()


def names_in(column: str) -> frozenset[str]:
    """The names that such a column holds."""
    return frozenset(loads(column))


def session_in(uid: UUID, row: Any) -> SessionRecord:
    """The record in a session's row, which is its number, its id and the rest."""
    _, _, key, user, created, updated, metadata = row
    return SessionRecord(uid, key, user, created, updated, loads(metadata))

"""Session ids, derived from owner and key.

So two processes that open "chat_001" get the same session, two users do not, and an archive that
another user imports becomes theirs.
"""

from __future__ import annotations

from uuid import UUID, uuid5

from sennit.ids import id_from_bytes
from sennit.stores.records.sessions import Owner

_NAMESPACE = id_from_bytes(bytes.fromhex("01a1e0d5e6da7422bcb7dce1d1ae1244"))


def session_id(owner: Owner, key: str) -> UUID:
    """Return the id of the owner's session with that key."""
    # None of them can contain NUL, so the joined text is unambiguous.
    return uuid5(_NAMESPACE, "\0".join((owner.tenant, owner.name, key)))

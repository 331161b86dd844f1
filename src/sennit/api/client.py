"""The public Client.

ClientCore knows sessions and stores; this class says which Session it opens, and is a context
manager: `with sennit.open() as client`.
"""

from __future__ import annotations

from types import TracebackType

from sennit.api.session import Session
from sennit.sessions.client import ClientCore
from sennit.stores.base import Store


class Client(ClientCore[Session]):
    """One user's sessions in a store; made by `sennit.open`."""

    def __init__(self, store: Store, *, tenant: str | None = None, user: str | None = None) -> None:
        super().__init__(
            store, session_type=Session, tenant=tenant or "default", user=user or "default"
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""Client pool: one client per owner, on one store.

Each client has access to its own owner's data only. They share the store, the group committer and
the services. The least recently used client is evicted when there are too many; references to it
stay usable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from sennit import settings
from sennit.api.client import Client, validate_embedder
from sennit.api.own_store import DEFAULT
from sennit.closing import Closing
from sennit.services.registry import ServiceRegistry
from sennit.sessions.client import drop_erased
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import Owner
from sennit.stores.retention import check_retention, cutoff_us, purge_if_possible

if TYPE_CHECKING:
    from datetime import timedelta

    from sennit.memory.retrieval.embedders import Embedder

_Owner: TypeAlias = tuple[str | None, str | None, str | None]
_UNUSED_SESSION_ID = UUID(int=0)  # an id that no session has


class ClientPool(Closing):
    """An LRU cache of clients by owner, which share one store."""

    def __init__(
        self,
        store: Store,
        *,
        services: ServiceRegistry | None = None,
        embedder: Embedder | None = None,
        shared_spaces: Iterable[str] = (),
        retention: timedelta | None = None,
        max_clients: int = 1000,
    ) -> None:
        """Cache up to `most` clients; evicted ones are created again on demand.

        `shared_spaces` names the tenants whose users have access to the tenant's shared files.
        """
        self._shared_spaces = frozenset(shared_spaces)
        self.services: ServiceRegistry = services or ServiceRegistry()
        self._store, self._embedder, self._max_clients = (
            store,
            validate_embedder(embedder),
            max_clients,
        )
        self._retention = check_retention(settings.retention() if retention is None else retention)
        self._group = GroupCommitter(store)
        self._lock = Lock()
        self._clients: OrderedDict[_Owner, Client] = OrderedDict()

    def of(
        self, *, tenant: str | None = None, user: str | None = None, agent: str | None = None
    ) -> Client:
        """Return the client of an owner, named as for `sennit.open`."""
        owner = (tenant, user, agent)
        with self._lock:
            client = self._clients.get(owner)
            if client is None:
                client = self._clients[owner] = self._create_client(owner)
                if len(self._clients) > self._max_clients:
                    self._clients.popitem(last=False)
            else:
                self._clients.move_to_end(owner)
            return client

    def _create_client(self, owner: _Owner) -> Client:
        tenant, user, agent = owner
        return Client(
            self._store,
            tenant=tenant,
            user=user,
            agent=agent,
            shared_space=(DEFAULT if tenant is None else tenant) in self._shared_spaces,
            services=self.services,
            embedder=self._embedder,
            group=self._group,
            retention=self._retention,
        )

    def check(self) -> None:
        """Read from the store; raises StoreError if that fails."""
        self._store.find_session(Owner(DEFAULT, "user", DEFAULT), _UNUSED_SESSION_ID)

    def purge(self) -> None:
        """Erase the removed messages of all owners whose retention time is over."""
        with self._lock:
            clients = list(self._clients.values())

        def on_erased(owner: Owner, session: UUID, messages: list[UUID]) -> None:
            for client in clients:
                drop_erased(client, owner, session, messages)

        purge_if_possible(self._store, None, cutoff_us(self._retention), on_erased)

    def close(self) -> None:
        """Finish the running work of all clients, then close the store."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()
        self._group.close()
        self._store.close()

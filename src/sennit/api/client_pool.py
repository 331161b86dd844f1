"""A pool of clients, one per owner, on one store.

Each client still reaches its own owner's things and nothing else. What they have in common is what
costs: the store, the writer that gathers their writes, the services. The least recently used client
is let go of when there are too many; whoever still holds it may go on using it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from sennit import settings
from sennit.api.client import Client, checked_embedder
from sennit.api.own_store import DEFAULT
from sennit.closing import Closing
from sennit.services.registry import ServiceRegistry
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import Owner
from sennit.stores.retention import checked_retention, due, purge_if_possible

if TYPE_CHECKING:
    from datetime import timedelta

    from sennit.memory.retrieval.embedders import Embedder

_Owner: TypeAlias = tuple[str | None, str | None, str | None]
_NOBODYS = UUID(int=0)  # an id that no session has


class ClientPool(Closing):
    """One store, and a client for each owner who asks."""

    def __init__(
        self,
        store: Store,
        *,
        services: ServiceRegistry | None = None,
        embedder: Embedder | None = None,
        shared_spaces: Iterable[str] = (),
        retention: timedelta | None = None,
        most: int = 1000,
    ) -> None:
        """`most` clients are kept at a time; the rest are made again when they are needed.

        `shared_spaces` names the tenants whose users reach what the tenant shares.
        """
        self._shared_spaces = frozenset(shared_spaces)
        self.services = services or ServiceRegistry()
        self._store, self._embedder, self._most = store, checked_embedder(embedder), most
        self._retention = checked_retention(
            settings.retention() if retention is None else retention
        )
        self._group = GroupCommitter(store)
        self._lock = Lock()
        self._clients: OrderedDict[_Owner, Client] = OrderedDict()

    def of(
        self, *, tenant: str | None = None, user: str | None = None, agent: str | None = None
    ) -> Client:
        """The client of an owner, named as for `sennit.open`."""
        owner = (tenant, user, agent)
        with self._lock:
            found = self._clients.get(owner)
            if found is None:
                found = self._clients[owner] = self._made(owner)
                if len(self._clients) > self._most:
                    self._clients.popitem(last=False)
            else:
                self._clients.move_to_end(owner)
            return found

    def _made(self, owner: _Owner) -> Client:
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
        """Read from the store; raises StoreError if that is not possible."""
        self._store.find_session(Owner(DEFAULT, "user", DEFAULT), _NOBODYS)

    def purge(self) -> None:
        """Erase what all owners have removed and whose retention time is over."""
        with self._lock:
            clients = list(self._clients.values())

        def erased(home: Owner, session: UUID, messages: list[UUID]) -> None:
            for client in clients:
                client.lose(home, session, messages)

        purge_if_possible(self._store, None, due(self._retention), erased)

    def close(self) -> None:
        """Finish what all clients have under way, then close the store."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()
        self._group.close()
        self._store.close()

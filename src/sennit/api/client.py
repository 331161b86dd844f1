"""The public Client.

ClientCore knows sessions and stores; this class says which Session it opens, and is a context
manager: `with sennit.open() as client`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.api.home import DEFAULT
from sennit.api.session import Session, operation_registry
from sennit.sessions.client import ClientCore
from sennit.sessions.keeper import Keeper
from sennit.sessions.session import ASSISTANT
from sennit.sessions.twins import async_twin
from sennit.stores.base import Store
from sennit.stores.records import SessionRecord

if TYPE_CHECKING:
    from sennit.learning.export import Exported, ExportOptions
    from sennit.operations.registry import OperationRegistry
    from sennit.services.registry import ServiceRegistry
    from sennit.stores.doctor import Finding
    from sennit.stores.portable import ExportSummary, ImportSummary, Progress


class Client(ClientCore[Session]):
    """One user's sessions in a store; made by `sennit.open`."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        services: ServiceRegistry | None = None,
        operations: OperationRegistry | None = None,
    ) -> None:
        """`services` and `operations` are those of all its sessions, by default its own."""
        super().__init__(
            store,
            session_type=Session,
            tenant=tenant or DEFAULT,
            user=user or DEFAULT,
            agent=agent or ASSISTANT,
            services=services,
        )
        self._given_operations = None if operations is None else operation_registry(operations)

    @cached_property
    def operations(self) -> OperationRegistry:
        """What all sessions it opens may be asked to conduct."""
        return self._given_operations or operation_registry(None)

    def _opened(self, record: SessionRecord, keeper: Keeper) -> Session:
        return Session.opened(
            record, keeper, services=self.services, operations=self.operations, agent=self.agent
        )

    def export(
        self,
        path: str | PathLike[str],
        sessions: Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
    ) -> ExportSummary:
        """Write sessions, by default all, to a new archive: a ".zip" file, or else a folder.

        Raises ExistsError if the path is taken, NotFoundError if a named session is not here.
        """
        from sennit.stores.portable import export_sessions

        named = None if sessions is None else [self._identify(one)[0] for one in sessions]
        return export_sessions(self._store, self._owner, Path(path), named, progress)

    def import_(self, path: str | PathLike[str], progress: Progress | None = None) -> ImportSummary:
        """Take in an archive as sessions of this user; what branches were granted is not taken in.

        Doing it again changes nothing. Raises ArchiveError if the archive is not sound, ExistsError
        if a session is here with another content; nothing is imported then.
        """
        from sennit.stores.portable import import_sessions

        return import_sessions(self._store, self._owner, Path(path), progress)

    def export_training(
        self,
        path: str | PathLike[str],
        options: ExportOptions | None = None,
        sessions: Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
    ) -> Exported:
        """Write sessions, by default all, as training data: ".parquet", or else lines of JSON.

        Raises ExistsError if a file is there already, NotFoundError if a named session is not here.
        """
        from sennit.learning.export import ExportOptions, export
        from sennit.stores.portable import all_sessions

        if sessions is None:
            wanted = all_sessions(self._store, self._owner)
        else:
            wanted = [self.session(one, create=False).id for one in sessions]
        chosen = options or ExportOptions()
        return export(wanted, partial(self.session, create=False), Path(path), chosen, progress)

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole store, of all users, to a new SQLite file while others go on using it.

        Raises ExistsError if the file is there already, StoreError if the store cannot be read.
        """
        from sennit.stores.backup import backup

        backup(self._store, Path(path))

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """What is wrong with the whole store; with `repair`, what can be mended is mended."""
        from sennit.stores import doctor

        return doctor.repair(self._store) if repair else doctor.examine(self._store)

    def expire(self, older_than: datetime) -> int:
        """Delete the sessions that were last changed before then; gives how many."""
        from sennit.stores.retention import expired

        old = expired(self._store, self._owner, older_than)
        return sum(self.delete_session(session) for session in old)

    aexport = async_twin(export)
    aexport_training = async_twin(export_training)
    aimport_ = async_twin(import_)
    abackup = async_twin(backup)
    adoctor = async_twin(doctor)
    aexpire = async_twin(expire)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

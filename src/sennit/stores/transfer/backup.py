"""Backup of a whole store into one SQLite file.

A SQLite file is copied as it is. From another store all sessions and files are read in one snapshot
and written to a new file, with grants, versions, times, commits, runs and events, so that the copy
equals the original. Leases are not copied: they are held in the original. The file appears when it
is complete.
"""

# Columns that a store sets itself, such as the time of a change, are restored by SQL.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from sennit.atomic_file import atomic_write
from sennit.errors import StoreError
from sennit.stores.base import Store, damaged_message, reporting_corruption
from sennit.stores.checksums import DAMAGED
from sennit.stores.records.blobs import BlobLimits, StoredBlob
from sennit.stores.records.files import StoredFile
from sennit.stores.records.sessions import PutLabels, PutStarts, SessionDump
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sqlite.adapter import SQLiteConnection
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.runs import JournalWriter
from sennit.stores.sqlite.store import SQLiteStore
from sennit.stores.transfer.export_import import additions, needed_segments

Sessions: TypeAlias = Iterable[SessionDump]
Files: TypeAlias = Iterable[StoredFile]
Stored: TypeAlias = Iterable[StoredBlob]

_ANY_SIZE = BlobLimits(blob_bytes=2**62, owner_bytes=2**62)

_SET_TIME = """
    UPDATE sessions SET updated = :updated WHERE id = :session AND owner = (
        SELECT no FROM owners WHERE tenant = :tenant AND kind = :kind
        AND name = :name AND of_user = :user)
    RETURNING owner, no"""
_SET_VERSION = "UPDATE branches SET version = ? WHERE owner = ? AND session = ? AND id = ?"


def backup(store: Store, path: Path) -> None:
    """Copy a whole store while others use it, to a new file that `sennit.open` opens.

    Raises ExistsError if the file is there already, StoreError if the store cannot be read.
    """
    if isinstance(store, SQLiteStore):
        store.backup(path)
        return
    with_everything: Callable[[Callable[[Sessions, Files, Stored], None]], None] | None
    with_everything = getattr(store, "with_everything", None)
    if with_everything is None:
        raise StoreError(
            f"A {type(store).__name__} has no backup method; export its sessions instead."
        )
    with_everything(lambda sessions, files, blobs: _write_copy(sessions, files, blobs, path))


def _write_copy(sessions: Sessions, files: Files, blobs: Stored, path: Path) -> None:
    with atomic_write(path) as temporary:
        copy = SQLiteStore(temporary, durability="normal")  # synced at the end
        try:
            with reporting_corruption():
                for blob in blobs:
                    record = blob.record
                    copy.put_blob(
                        blob.owner, blob.chunks, record.media_type, _ANY_SIZE, record.hash
                    )
                for dump in sessions:
                    _copy_session(copy, dump)
                _copy_files(copy, files)
        finally:
            copy.close()


def _copy_session(copy: SQLiteStore, dump: SessionDump) -> None:
    owner, snapshot = dump.owner, dump.snapshot
    for message in snapshot.messages:
        if message.body == DAMAGED:
            raise damaged_message(message.id)
    ordered = replace(snapshot, segments=needed_segments(snapshot))
    copy.create_session(owner, snapshot.session)
    changes = additions(ordered, None)
    if dump.labels:
        changes.append(PutLabels(tuple(dump.labels)))
    if dump.starts:
        changes.append(PutStarts(tuple(dump.starts.items())))
    if changes:
        copy.write(owner, snapshot.session.id, changes)
        _restore_fixed_columns(copy, dump)


def _copy_files(copy: SQLiteStore, files: Files) -> None:
    def change(connection: SqlConnection) -> None:
        writer = copy._file_writer(connection)
        for stored in files:
            writer.copy(stored)

    copy._change(change)


def _restore_fixed_columns(copy: SQLiteStore, dump: SessionDump) -> None:
    """Restore versions, times and journals, which ordinary writes cannot set."""
    owner, snapshot = dump.owner, dump.snapshot
    values: dict[str, Any] = {
        "updated": snapshot.session.updated,
        "session": snapshot.session.id.bytes,
        "tenant": owner.tenant,
        "kind": owner.kind,
        "name": owner.name,
        "user": owner.user,
    }
    with copy._transaction() as connection:
        key = connection.execute(_SET_TIME, values).fetchone()
        connection.executemany(
            _SET_VERSION, [(branch.version, *key, branch.id.bytes) for branch in snapshot.branches]
        )
        journals = JournalWriter(copy._rows, *key)
        for journal in dump.journals:
            journals.copy(journal)
        detached = DetachedTable(connection, *key)
        CommitTable(SQLiteConnection(connection), *key).copy(dump.commits, detached)
        detached.put_since(dump.removed)

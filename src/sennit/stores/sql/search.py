"""Rows of search results in an SQL store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sennit.stores.checksums import checked_body
from sennit.stores.records.files import FileRecord
from sennit.stores.records.search import FileHit, Hit, StoredMessage, in_order_of, part_of
from sennit.stores.records.sessions import MessageRecord, Owner
from sennit.stores.records.vectors import Unembedded
from sennit.stores.search import tokenizer
from sennit.stores.sql.connection import Row, SqlConnection
from sennit.stores.sql.files import FileReader


def message_in(connection: SqlConnection, row: Row) -> MessageRecord:
    """Return the message in a row of its id, time, body and checksum."""
    column, created, body, checksum = row
    uid = connection.uid(column)
    return MessageRecord(uid, created, checked_body(uid.bytes, created, body, checksum))


def hit_in(row: Row) -> Hit:
    """Return the hit in a row."""
    place, session, archive, created, score, before, after = row
    group = (session, part_of(archive, created))
    return Hit(place, group, created, score, tuple(before), tuple(after))


def messages_in(
    connection: SqlConnection, places: Sequence[int], rows: Iterable[Row]
) -> list[StoredMessage]:
    """Return the messages in rows, in the order of these places."""
    messages = (
        StoredMessage(
            place,
            connection.uid(session),
            key,
            archive,
            message_in(connection, row),
            bool(branched),
        )
        for place, session, key, archive, branched, *row in rows
    )
    return in_order_of(places, messages)


def file_hits_in(
    connection: SqlConnection, owners: Mapping[int, Owner], rows: Iterable[Row]
) -> list[FileHit]:
    """Return the file hits in rows, the first of each place."""
    reader = FileReader(connection, {owner: number for number, owner in owners.items()}.__getitem__)
    first: dict[int, Row] = {}
    for row in rows:
        first.setdefault(row[1], row)
    files: dict[int, FileRecord] = {}
    for number, owner in owners.items():
        mine = [row for row in first.values() if row[0] == number]
        found = reader.files(owner, number, [row[3:] for row in mine])
        files.update((row[1], file) for row, file in zip(mine, found, strict=True))
    return [FileHit(files[place], place, row[2]) for place, row in first.items()]


def unembedded_in(
    connection: SqlConnection, messages: Iterable[Row], files: Iterable[Row]
) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    items = [
        Unembedded(place, connection.uid(uid), tokenizer.embedded_text(body, created))
        for place, uid, created, body in messages
    ]
    return items + [
        Unembedded(place, connection.uid(uid), body.decode(errors="replace"))
        for place, uid, body in files
    ]

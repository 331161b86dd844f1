"""Memories as they are now, were before, or held at a given time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any
from uuid import UUID

import msgspec

from sennit import clock
from sennit.errors import InvalidTypeError, NotFoundError, ValidationError, shown
from sennit.memory.commit import profile
from sennit.memory.extraction.values import Category
from sennit.memory.history.evidence import QuotedMessage, said_in
from sennit.memory.scope import MEMORIES, MemoryScope, is_merged
from sennit.memory.uri import Uri
from sennit.messages.json_values import text
from sennit.sessions.async_method import async_method
from sennit.stores.records.files import FileRecord, VersionRecord, in_order


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """A message that a memory came from."""

    session: UUID
    message: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A memory as it is, or as it was."""

    uri: str
    category: str | None
    """None for a file that is no memory."""
    text: str
    version: int
    did: str
    """How it came to be so: created, updated, merged, confirmed, written, imported, restored."""
    learnt_at: datetime
    valid_from: datetime
    valid_to: datetime | None
    """When it ceased to hold, or another version took its place; None while it holds."""
    evidence: tuple[EvidenceSource, ...]
    commit_id: UUID | None
    active_count: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "uri": self.uri,
            "category": self.category,
            "text": self.text,
            "version": self.version,
            "did": self.did,
            "learnt_at": iso(self.learnt_at),
            "valid_from": iso(self.valid_from),
            "valid_to": iso(self.valid_to),
            "evidence": [
                {"session": str(one.session), "message": str(one.message)} for one in self.evidence
            ],
            "commit": None if self.commit_id is None else str(self.commit_id),
            "active_count": self.active_count,
        }


def iso(moment: datetime | None) -> str | None:
    """A moment as text, to the microsecond."""
    return None if moment is None else clock.to_iso(clock.from_datetime(moment))


class MemoryReader:
    """The memories of a realm, for reading."""

    def __init__(self, realm: MemoryScope) -> None:
        self._realm, self._store = realm, realm.store

    def all(self, category: str | None = None) -> list[MemoryRecord]:
        """The memories there are, of one category or all."""
        return [self._now(file) for file in self._files(category)]

    def get(self, uri: str) -> MemoryRecord:
        """The memory at an address; raises NotFoundError."""
        return self._now(self._file(uri))

    def history(self, uri: str) -> list[MemoryRecord]:
        """All versions of the memory at an address, the oldest first; raises NotFoundError."""
        file = self._file(uri)
        versions = self._store.file_versions(file.owner, file.id)
        return [self._told(file, version, (version,)) for version in versions]

    def at(self, moment: datetime, category: str | None = None) -> list[MemoryRecord]:
        """Return the memories that held at a time, as far as is known today."""
        at = clock.from_datetime(moment)
        found = (self._held(file, at) for file in self._files(category))
        return [one for one in found if one is not None]

    def evidence(self, memories: Iterable[MemoryRecord]) -> dict[EvidenceSource, QuotedMessage]:
        """Return the messages that memories came from, as far as they are still stored."""
        given = list[Any](memories if isinstance(memories, Iterable) else [memories])  # pyright: ignore[reportUnnecessaryIsInstance]
        for one in given:
            if not isinstance(one, MemoryRecord):
                raise InvalidTypeError(
                    f"evidence() takes memories returned by all() or get(), got {shown(one)}."
                )
        return said_in(self._realm, (one for memory in given for one in memory.evidence))

    aall = async_method(all)
    aget = async_method(get)
    ahistory = async_method(history)
    aat = async_method(at)
    aevidence = async_method(evidence)

    def _file(self, uri: str) -> FileRecord:
        place = Uri.parse(
            text(uri, "uri").partition("#")[0]
        )  # what follows names a fact of the profile
        file = self._realm.find(place)
        if file is None:
            raise NotFoundError(f"There is no memory at {str(place)!r}.")
        return file

    def _files(self, category: str | None) -> Iterator[FileRecord]:
        if category is not None and category not in list(Category):
            raise ValidationError(
                f"A category is one of {[str(one) for one in Category]}, got {shown(category)}."
            )
        wanted = None if category is None else Category(category)
        for owner in self._realm.remembering:
            for file in self._store.list_files(owner, MEMORIES):
                if is_merged(file):
                    continue
                if file.category is not None and wanted in (None, Category(file.category)):
                    yield file

    def _now(self, file: FileRecord) -> MemoryRecord:
        """A memory as it is; all who have said so are its evidence."""
        said = file.latest.body
        versions = self._store.file_versions(file.owner, file.id)
        alike = list(takewhile(lambda one: one.body == said, reversed(versions)))
        return self._told(file, file.latest, alike)

    def _held(self, file: FileRecord, at: int) -> MemoryRecord | None:
        if file.category == Category.PROFILE:
            return self._profile_at(file, at)
        for version in reversed(self._store.file_versions(file.owner, file.id)):
            ends = [end for end in (version.valid_to, version.replaced) if end is not None]
            if version.valid_from <= at < min(ends, default=at + 1):
                return self._told(file, version, (version,))
        return None

    def _profile_at(self, file: FileRecord, at: int) -> MemoryRecord | None:
        """The lines that held; each fact has its own time, whichever version of the file has it."""
        facts = [
            msgspec.structs.replace(fact, valid_to=None)
            for fact in profile.facts_in(file.latest.info)
            if fact.valid_from <= at and (fact.valid_to is None or at < fact.valid_to)
        ]
        if not facts:
            return None
        version = replace(
            file.latest,
            body=profile.lines_of(facts).encode(),
            evidence=profile.evidence_of(facts),
            valid_from=max(fact.valid_from for fact in facts),
        )
        return self._told(file, version, (version,))

    def _told(
        self, file: FileRecord, version: VersionRecord, said_by: Iterable[VersionRecord]
    ) -> MemoryRecord:
        ends = [end for end in (version.valid_to, version.replaced) if end is not None]
        evidence = in_order(one for other in said_by for one in other.evidence)
        return MemoryRecord(
            uri=str(self._realm.uri(file)),
            category=file.category,
            text=version.body.decode(),
            version=version.number,
            did=str(version.info.get("did", "")),
            learnt_at=clock.to_datetime(version.written),
            valid_from=clock.to_datetime(version.valid_from),
            valid_to=clock.to_datetime(min(ends)) if ends else None,
            evidence=tuple(EvidenceSource(one.session, one.message) for one in evidence),
            commit_id=version.commit,
            active_count=file.active,
        )

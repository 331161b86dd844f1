"""Memories as they are now, were before, or held at a given time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, Final
from uuid import UUID

import msgspec

from sennit import clock
from sennit.errors import (
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.memory.commit import profile
from sennit.memory.extraction.values import Category
from sennit.memory.history.evidence import QuotedMessage, quote_messages
from sennit.memory.pinned import pinned_files
from sennit.memory.scope import MEMORIES, MemoryScope, is_merged, is_superseded
from sennit.memory.uri import Uri
from sennit.messages.json_values import validate_text
from sennit.sessions.async_method import async_method
from sennit.stores.records.files import FileRecord, VersionRecord, in_order


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """A message that a memory came from."""

    session: UUID
    """The id of the session."""
    message: UUID
    """The id of the message."""

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        return {"session": str(self.session), "message": str(self.message)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A memory, now or at an earlier time."""

    uri: str
    """The address of its file."""
    category: str | None
    """None for a file that is not a memory."""
    text: str
    """The text of this version."""
    version: int
    """The number of the version, from 1."""
    did: str
    """The kind of change: created, updated, merged, confirmed, superseded (known only after a newer
    statement), written, imported or restored."""
    learnt_at: datetime
    """When it was stored."""
    valid_from: datetime
    """Since when it has been true."""
    valid_to: datetime | None
    """When it ceased to hold or was replaced by another version; None while it holds."""
    evidence: tuple[EvidenceSource, ...]
    """The messages it was extracted from."""
    commit_id: UUID | None
    """The commit that wrote it; None if a person or program did."""
    active_count: int
    """How often it was used."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "uri": self.uri,
            "category": self.category,
            "text": self.text,
            "version": self.version,
            "did": self.did,
            "learnt_at": iso(self.learnt_at),
            "valid_from": iso(self.valid_from),
            "valid_to": iso(self.valid_to),
            "evidence": [source.to_dict() for source in self.evidence],
            "commit": None if self.commit_id is None else str(self.commit_id),
            "active_count": self.active_count,
        }


def iso(moment: datetime | None) -> str | None:
    """Return a time as ISO 8601 text with microseconds."""
    return None if moment is None else clock.to_iso(clock.from_datetime(moment))


class MemoryReader:
    """Read access to the memories of a scope."""

    def __init__(self, scope: MemoryScope) -> None:
        self._scope, self._store = scope, scope.store

    def all(self, category: str | None = None) -> list[MemoryRecord]:
        """Return the current memories, all or of one category."""
        return [self._current(file) for file in self._files(category)]

    def pinned(self) -> list[MemoryRecord]:
        """Return what is in every prompt with memory, beside the profile.

        These are the files below `viking://user/pinned`, and the preferences that say how to
        answer.
        """
        return [*map(self._current, pinned_files(self._scope))]

    def get(self, uri: str) -> MemoryRecord:
        """Return the memory at a URI; raises NotFoundError."""
        return self._current(self._file(uri))

    def history(self, uri: str) -> list[MemoryRecord]:
        """Return all versions of the memory at a URI, oldest first; raises NotFoundError.

        A statement that became known after a newer one stands before it.
        """
        file = self._file(uri)
        versions = self._store.file_versions(file.owner, file.id)
        if any(map(is_superseded, versions)):
            versions.sort(key=lambda version: version.valid_from)
        return [self._to_record(file, version, (version,)) for version in versions]

    def at(self, moment: datetime, category: str | None = None) -> list[MemoryRecord]:
        """Return the memories that held at a time, as far as is known today."""
        at = clock.from_datetime(moment)
        records = (self._at_time(file, at) for file in self._files(category))
        return [record for record in records if record is not None]

    def evidence(self, memories: Iterable[MemoryRecord]) -> dict[EvidenceSource, QuotedMessage]:
        """Return the messages that memories came from, as far as they are still stored."""
        items = list[Any](memories if isinstance(memories, Iterable) else [memories])  # pyright: ignore[reportUnnecessaryIsInstance]
        for item in items:
            if not isinstance(item, MemoryRecord):
                raise InvalidTypeError(
                    f"evidence() takes memories returned by all() or get(), got {short_repr(item)}."
                )
        return quote_messages(
            self._scope, (source for memory in items for source in memory.evidence)
        )

    aall: Final = async_method(all)
    apinned: Final = async_method(pinned)
    aget: Final = async_method(get)
    ahistory: Final = async_method(history)
    aat: Final = async_method(at)
    aevidence: Final = async_method(evidence)

    def _file(self, uri: str) -> FileRecord:
        parsed = Uri.parse(
            validate_text(uri, "uri").partition("#")[0]
        )  # a fragment names a fact of the profile
        file = self._scope.find(parsed)
        if file is None:
            raise NotFoundError(f"There is no memory at {str(parsed)!r}.")
        return file

    def _files(self, category: str | None) -> Iterator[FileRecord]:
        if category is not None and category not in list(Category):
            raise ValidationError(
                f"A category is one of {listed(Category)}, got {short_repr(category)}."
                f"{did_you_mean(category, Category)}"
            )
        wanted = None if category is None else Category(category)
        for owner in self._scope.memory_owners:
            for file in self._store.list_files(owner, MEMORIES):
                if is_merged(file):
                    continue
                if file.category is not None and wanted in (None, Category(file.category)):
                    yield file

    def _current(self, file: FileRecord) -> MemoryRecord:
        """Return a current memory with the evidence of all versions that confirm its text."""
        latest, versions = file.latest, self._store.file_versions(file.owner, file.id)
        later = (each for each in reversed(versions) if each == latest or not is_superseded(each))
        confirming = list(takewhile(lambda version: version.body == latest.body, later))
        return self._to_record(file, file.latest, confirming)

    def _at_time(self, file: FileRecord, at: int) -> MemoryRecord | None:
        if file.category == Category.PROFILE:
            return self._profile_at(file, at)
        for version in reversed(self._store.file_versions(file.owner, file.id)):
            end = _end(version)
            if version.valid_from <= at and (end is None or at < end):
                return self._to_record(file, version, (version,))
        return None

    def _profile_at(self, file: FileRecord, at: int) -> MemoryRecord | None:
        """Return the lines of the profile that held; each fact has its own validity."""
        facts = [
            msgspec.structs.replace(fact, valid_to=None)
            for fact in profile.load_facts(file.latest.info)
            if fact.valid_from <= at and (fact.valid_to is None or at < fact.valid_to)
        ]
        if not facts:
            return None
        version = replace(
            file.latest,
            body=profile.render(facts).encode(),
            evidence=profile.evidence_of(facts),
            valid_from=max(fact.valid_from for fact in facts),
        )
        return self._to_record(file, version, (version,))

    def _to_record(
        self, file: FileRecord, version: VersionRecord, confirming: Iterable[VersionRecord]
    ) -> MemoryRecord:
        end = _end(version)
        evidence = in_order(item for confirmed in confirming for item in confirmed.evidence)
        return MemoryRecord(
            uri=str(self._scope.uri(file)),
            category=file.category,
            text=version.body.decode(),
            version=version.number,
            did=str(version.info.get("did", "")),
            learnt_at=clock.to_datetime(version.written),
            valid_from=clock.to_datetime(version.valid_from),
            valid_to=None if end is None else clock.to_datetime(max(version.valid_from, end)),
            evidence=tuple(EvidenceSource(source.session, source.message) for source in evidence),
            commit_id=version.commit,
            active_count=file.active,
        )


def _end(version: VersionRecord) -> int | None:
    """Return when a version ceased to hold, if it did."""
    ends = (version.valid_to, version.replaced)
    return min((end for end in ends if end is not None), default=None)

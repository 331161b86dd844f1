"""Memories in an archive: one JSON line per version, the versions of a memory in order.

The text, validity and evidence of each version are taken along, so that an imported memory can be
explained, and is erased with the session it came from. An archive says of which agent a memory is,
but not of which user: memories become those of the importing user. It never changes a memory that
is stored: one that has grown gets the missing versions where it is now, and one that differs is
left as it is.

Lines are untrusted: paths, categories, texts, times and what is known of a version are checked as
those of a folder from disk, and everything is checked before anything is written, the sessions of
the archive included. Memories are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import structs

from sennit import clock
from sennit.errors import ArchiveError, SennitError, ValidationError, short_repr
from sennit.memory.commit.profile import FactSource, load_facts
from sennit.memory.extraction.english.clauses import is_injection
from sennit.memory.extraction.utterances import sentences
from sennit.memory.files.resources import validate_metadata
from sennit.memory.files.stored_files import MAX_TEXT_BYTES
from sennit.memory.scope import MEMORIES, MERGED_INTO, MemoryScope, category_at, is_merged
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, reader
from sennit.messages.json_values import plain_dict, validate_text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import (
    CountUses,
    EvidenceRecord,
    FileChange,
    FileRecord,
    PutFile,
    VersionRecord,
    as_stored,
)
from sennit.stores.records.sessions import Owner, owner_name
from sennit.stores.transfer.container import MAX_LINE, Count, Moment
from sennit.stores.transfer.export_import import MemoryCounts


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    id: UUID
    agent: str | None
    """The agent whose memory it is; None for the user's own."""
    path: str
    active: Count
    number: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    written: Moment
    valid_from: Moment
    valid_to: Moment | None
    text: str
    commit: UUID | None
    info: dict[str, Any]
    evidence: list[tuple[UUID, UUID]]
    """The session and the id of each source message."""


class _Info(msgspec.Struct):
    """The types of what is known of a version's info."""

    did: str = ""
    abstract: str = ""
    joined: bool = False
    merged_into: UUID | None = None
    stated: list[Moment] = []
    reason: str = ""
    document: str = ""
    metadata: Mapping[str, str | int | float | bool] = {}


_MAX_AHEAD = 100 * 366 * 24 * 3600 * 1_000_000
"""The time from now, in microseconds, until which a memory may begin to hold: 100 years."""


_parse = reader(_Line, MAX_LINE)


def archived_memories(scope: MemoryScope) -> Iterator[bytes]:
    """Yield the lines of a user's memories, those of all their agents included."""
    store = scope.store
    for owner in store.owned_by(scope.user):
        if owner.kind == "tenant":  # resources
            continue
        for file in _exportable(store.list_files(owner, MEMORIES)):
            for version in store.file_versions(owner, file.id):
                yield dumps(_line(file, version, scope.user), MAX_LINE - 1) + b"\n"


def _exportable(files: Iterable[FileRecord]) -> list[FileRecord]:
    """Return the memories without those merged into one that has been moved to other files."""
    memories = {str(file.id): file for file in files if file.category is not None}
    while gone := [
        uid
        for uid, file in memories.items()
        if is_merged(file) and file.latest.info[MERGED_INTO] not in memories
    ]:
        for uid in gone:
            del memories[uid]
    return list(memories.values())


def _line(file: FileRecord, version: VersionRecord, user: Owner) -> _Line:
    return _Line(
        id=file.id,
        agent=file.owner.name if file.owner.kind == "agent" else None,
        path=file.path,
        active=file.active,
        number=version.number,
        written=version.written,
        valid_from=version.valid_from,
        valid_to=version.valid_to,
        text=version.body.decode(),
        commit=version.commit,
        info=_with_sources(version.info, "", "", {}),
        evidence=[(item.session, item.message) for item in version.evidence if item.owner == user],
    )


def read_memories(
    scope: MemoryScope, lines: Iterable[bytes], sessions: Mapping[UUID, UUID]
) -> Callable[[], MemoryCounts]:
    """Check all lines; return a function that writes what is new. Raises ArchiveError.

    `sessions` maps the sessions of the archive to those that they become.
    """
    memories: dict[UUID, list[PutFile]] = {}
    uses: dict[UUID, int] = {}
    for number, raw in enumerate(lines, 1):
        try:
            line = _parse(raw)
            put = _put(scope, line, sessions)
            versions = memories.setdefault(line.id, [])
            is_other = versions and (versions[0].owner, versions[0].path) != (put.owner, put.path)
            if line.number != len(versions) + 1 or is_other:
                raise ValidationError(f"Version {line.number} of {line.path!r} is not the next.")
        except (SennitError, msgspec.ValidationError) as error:
            raise ArchiveError(f"Line {number} of the memories is invalid: {error}") from error
        versions.append(put)
        uses[line.id] = line.active
    first = [versions[0] for versions in memories.values()]
    stored = {owner: _StoredFiles(scope, owner) for owner in {put.owner for put in first}}
    _check_paths(first)
    _check_merged(memories, stored)

    def write() -> MemoryCounts:
        new, differing = 0, 0
        stored = {owner: _StoredFiles(scope, owner) for owner in {put.owner for put in first}}
        changes: list[FileChange] = []
        for uid, versions in memories.items():
            missing = stored[versions[0].owner].missing(versions)
            if missing is None:
                differing += 1
                continue
            changes += missing
            new += bool(missing)
            if len(missing) == len(versions) and uses[uid]:
                changes.append(CountUses(versions[0].owner, versions[0].path, uses[uid]))
        if changes:
            scope.store.change_files(changes)
        return MemoryCounts(new, differing)

    return lambda: retry_on_conflict(write, "the same memories")


def _put(scope: MemoryScope, line: _Line, sessions: Mapping[UUID, UUID]) -> PutFile:
    owner = scope.user
    if line.agent is not None:
        owner = scope.of_agent(owner_name(line.agent, "agent")).agent
    path = Uri.parse(f"viking://user/{line.path}").path
    category = category_at(owner, path)
    if path != line.path or category is None:
        raise ValidationError(f"{short_repr(line.path)} is not the path of a memory.")
    text = validate_text(line.text, "text").encode()
    if len(text) > MAX_TEXT_BYTES:
        raise ValidationError(f"A memory has at most {MAX_TEXT_BYTES:,} bytes of text.")
    evidence = (
        EvidenceRecord(scope.user, sessions.get(session, session), message)
        for session, message in line.evidence
    )
    version = VersionRecord(
        number=line.number,
        written=line.written,
        valid_from=line.valid_from,
        body=text,
        valid_to=line.valid_to,
        commit=line.commit,
        info=_checked_info(line.info, scope.user, sessions),
        evidence=tuple(evidence),
    )
    put = PutFile(owner, line.id, path, category, as_stored(version))
    _check_content(put)
    return put


def _check_content(put: PutFile) -> None:
    """Refuse instructions to the memory, which no commit stores, and times far in the future."""
    facts = load_facts(put.version.info)
    texts = [put.version.body.decode(), *(validate_text(fact.text, "text") for fact in facts)]
    if any(is_injection(part) for text in texts for part in (text, *sentences(text))):
        raise ValidationError(
            f"{short_repr(put.path)} contains instructions to the memory. Remove it where the "
            f"archive was made, or export without memories."
        )
    moments = (put.version.valid_from, put.version.written, *(fact.valid_from for fact in facts))
    if max(moments) > clock.now_us() + _MAX_AHEAD:
        raise ValidationError(f"{short_repr(put.path)} begins to hold in more than 100 years.")


def _check_paths(memories: Iterable[PutFile]) -> None:
    """Raise ArchiveError if two memories have one path, or one is below another."""
    taken: set[tuple[Owner, str]] = set()
    for put in memories:
        if (put.owner, put.path) in taken:
            raise ArchiveError(f"Two memories of the archive have the path {put.path!r}.")
        taken.add((put.owner, put.path))
    for owner, path in taken:
        for above in _above(path):
            if (owner, above) in taken:
                raise ArchiveError(
                    f"The memory {path!r} of the archive is below {above!r}, which is a memory "
                    f"and no folder."
                )


def _check_merged(
    memories: Mapping[UUID, Sequence[PutFile]], stored: Mapping[Owner, _StoredFiles]
) -> None:
    """Raise ArchiveError if a memory was merged into one that does not exist."""
    for put in (versions[-1] for versions in memories.values()):
        if MERGED_INTO not in put.version.info:
            continue
        target = UUID(put.version.info[MERGED_INTO])
        known = memories[target][0].owner if target in memories else None
        if put.owner != known and target not in stored[put.owner].by_id:
            raise ArchiveError(
                f"The memory {put.path!r} was merged into {target}, which is neither in the "
                f"archive nor stored."
            )


def _above(path: str) -> Iterator[str]:
    """Yield the folders of a path, without a slash at their end."""
    names = path.split("/")
    return ("/".join(names[:count]) for count in range(1, len(names)))


def _checked_info(
    info: dict[str, Any], user: Owner, sessions: Mapping[UUID, UUID]
) -> dict[str, Any]:
    """Return the info of a version, whose sources become messages of this user."""
    known = msgspec.convert(plain_dict(info, "info"), _Info)
    validate_metadata(known.metadata)
    if MERGED_INTO in info and info[MERGED_INTO] != str(known.merged_into):
        raise ValidationError(
            f"merged_into must be the id of a memory, got {short_repr(info[MERGED_INTO])}."
        )
    facts = load_facts(info)
    moments = [moment for fact in facts for moment in (fact.valid_from, *fact.stated)]
    moments += [fact.valid_to for fact in facts if fact.valid_to is not None]
    msgspec.convert(moments, list[Moment])
    return _with_sources(info, user.tenant, user.name, sessions)


def _with_sources(
    info: dict[str, Any], tenant: str, user: str, sessions: Mapping[UUID, UUID]
) -> dict[str, Any]:
    """Return the info of a version with its facts' sources in the sessions of another user."""
    if "facts" not in info:
        return info

    def moved(sources: Iterable[FactSource]) -> tuple[FactSource, ...]:
        return tuple(
            FactSource(tenant, user, sessions.get(source.session, source.session), source.message)
            for source in sources
        )

    facts = [
        structs.replace(fact, sources=moved(fact.sources), parts=moved(fact.parts))
        for fact in load_facts(info)
    ]
    return {**info, "facts": msgspec.to_builtins(facts)}


class _StoredFiles:
    """The stored files of an owner, with which the memories of an archive are compared."""

    def __init__(self, scope: MemoryScope, owner: Owner) -> None:
        self._scope = scope
        files = scope.store.list_files(owner, "")
        self.by_id = {file.id: file for file in files}
        self._paths = {file.path for file in files}
        self._folders = {above for file in files for above in _above(file.path)}

    def missing(self, versions: list[PutFile]) -> list[PutFile] | None:
        """Return the versions that the store lacks; None if it has a different memory."""
        first = versions[0]
        file = self.by_id.get(first.id)
        if file is None:
            is_free = self._paths.isdisjoint((first.path, *_above(first.path)))
            return versions if is_free and first.path not in self._folders else None
        stored = self._scope.store.file_versions(first.owner, first.id)
        archived = [put.version for put in versions]
        both = min(len(stored), len(archived))
        if [as_stored(item) for item in stored[:both]] != archived[:both]:
            return None
        return [  # where it is now: it may have been moved
            structs.replace(put, path=file.path, category=file.category) for put in versions[both:]
        ]

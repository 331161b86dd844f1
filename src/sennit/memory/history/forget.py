"""Undoing commits and forgetting for good.

Undoing takes the versions away that a commit has written; what the files said before, they say
again. Forgetting erases: the files, sessions and memories meant, every version that rests on a
forgotten message, and what the index knew of them; names and quotations of what is gone go too.
What somebody has said elsewhere too, in full, stays on that evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import AccessError, NotFoundError, ValidationError, shown
from sennit.memory.commit import profile
from sennit.memory.commit.file_changes import profile_abstract
from sennit.memory.commit.profile import ProfileFact
from sennit.memory.extraction.clauses import telling
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.values import abstract_of
from sennit.memory.files.entry import nothing_at
from sennit.memory.history.evidence import said_by
from sennit.memory.naming import has_fact, unname
from sennit.memory.scope import MERGED_INTO, PROFILE, MemoryScope, is_merged
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import CommitRecord, PutCommit, no_commit
from sennit.stores.records.files import (
    CountUses,
    Derived,
    EndCommit,
    FileChange,
    FileRecord,
    MoveFile,
    PutFile,
    RemoveFile,
    RemoveVersions,
    VersionRecord,
)
from sennit.stores.records.sessions import Owner
from sennit.stores.transfer.export_import import all_sessions


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The changes made by undoing a commit."""

    removed: list[str] = field(default_factory=list[str])
    """Memories that are gone: the commit had created them."""
    restored: list[str] = field(default_factory=list[str])
    """Memories that say again what they said before."""
    kept: list[str] = field(default_factory=list[str])
    """Memories that stay as they are, as others have joined what they know to what it wrote."""


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The numbers of erased items."""

    sessions: int
    files: int
    """Files that are gone, or have lost versions."""


def undo(realm: MemoryScope, commit: UUID) -> UndoResult:
    """Take back what a commit has written; its archive stays. Again, it changes nothing."""

    def take_back() -> tuple[UndoResult, list[FileRecord]]:
        found = realm.store.find_commit(realm.user, commit)
        if found is None:
            raise no_commit(commit)
        session, record = found
        if record.state == "undone":
            return UndoResult(), []
        written = _files(realm, realm.store.written_by(realm.user, commit))
        undone, changes = _undoing(realm, record, written)
        body: dict[str, Any] = loads(record.body)
        changes += _discounting(realm.of_agent(body.get("agent", realm.agent_name)), body)
        kept = {name: body[name] for name in ("abstract", "overview", "result") if name in body}
        change = PutCommit(commit, "undone", dumps(kept), record.version)
        realm.store.change_files(changes, EndCommit(realm.user, session, change))
        return undone, [file for file, _ in written]

    unname(realm, _only_by(realm, commit), leaving=True)
    unname(realm, [file for file, _ in _files(realm, realm.store.written_by(realm.user, commit))])
    undone, touched = retry_on_conflict(take_back, "the same memories")
    unname(realm, touched)
    realm.store.scrub()
    return undone


def _only_by(realm: MemoryScope, commit: UUID) -> list[FileRecord]:
    """The files of which a commit has written every version."""
    return [
        file
        for file, numbers in _files(realm, realm.store.written_by(realm.user, commit))
        if not _is_profile(file)
        and len(numbers) == len(realm.store.file_versions(file.owner, file.id))
    ]


def _undoing(
    realm: MemoryScope, record: CommitRecord, written: Sequence[tuple[FileRecord, set[int]]]
) -> tuple[UndoResult, list[FileChange]]:
    undone, changes = UndoResult(), list[FileChange]()
    for file, numbers in written:
        versions = realm.store.file_versions(file.owner, file.id)
        uri = str(realm.uri(file))
        if _is_profile(file):
            known, said = profile.facts_in(file.latest.info), frozenset(record.entries)
            spoken = partial(said_by, realm)
            facts = profile.without_commit(known, record.id, said, spoken)
            changes += _rebuilt(file, versions, numbers, facts)
            (undone.restored if facts else undone.removed).append(uri)
        elif _is_built_on(versions, numbers):
            undone.kept.append(uri)
        else:
            changes.append(RemoveVersions(file.owner, file.id, tuple(numbers)))
            left = len(versions) > len(numbers)
            (undone.restored if left else undone.removed).append(uri)
    return undone, changes


def _is_built_on(versions: Sequence[VersionRecord], numbers: set[int]) -> bool:
    """Return whether a version that was not written by the commit says on what the commit wrote."""
    after = [one for one in versions if one.number > min(numbers) and one.number not in numbers]
    return bool(after) and bool(after[0].info.get("joined"))


def _discounting(realm: MemoryScope, body: dict[str, Any]) -> list[CountUses]:
    used: dict[str, int] = body.get("used", {})
    found = ((realm.named(uri), times) for uri, times in used.items())
    return [
        CountUses(file.owner, file.path, -min(times, file.active))
        for file, times in found
        if file is not None and realm.owns(file.owner)
    ]


def forget(
    realm: MemoryScope,
    delete: Callable[[UUID], bool],
    *,
    user: str | None,
    uri: str | None,
    session: str | UUID | None,
) -> ForgetResult:
    """Erase what is named, sessions by `delete`; see `Client.forget`."""
    if sum(one is not None for one in (user, uri, session)) != 1:
        raise ValidationError("Pass exactly one of user=, uri= and session=.")
    if user is not None:
        if user != realm.user.name:
            raise AccessError(f"This client belongs to user {realm.user.name!r}, not {user!r}.")
        return forget_user(realm, delete)
    if uri is not None:
        address, _, fact = text(uri, "uri").partition("#")
        place = Uri.parse(address)
        if fact:
            return forget_fact(realm, place, fact)
        if place.scope != "session":
            return forget_files(realm, place)
        if len(place.names) != 1:
            raise ValidationError(f"Only a whole session can be forgotten, not {str(place)!r}.")
        session = place.names[0]
    assert session is not None
    return forget_session(realm, session, delete)


def forget_session(
    realm: MemoryScope, named: str | UUID, delete: Callable[[UUID], bool]
) -> ForgetResult:
    """Erase a session and all that rests on it; NotFoundError if there is neither."""
    session = realm.session_id(named)
    touched = forget_derived(realm, session)
    sessions = int(delete(session))
    touched += forget_derived(realm, session)  # a commit may have ended in between; no more can
    unname(realm, touched)
    realm.store.scrub()  # also of one that was erased by a call that was cut off
    if not sessions and not touched:
        raise NotFoundError(f"There is no session {shown(named)}, and no memory came from it.")
    return ForgetResult(sessions, _count(touched))


def forget_user(realm: MemoryScope, delete: Callable[[UUID], bool]) -> ForgetResult:
    """Erase all sessions and files of the user, with all agents, and what rests on them."""
    touched = forget_derived(realm, None)
    owners = realm.store.owned_by(realm.user)
    own = [file for owner in owners for file in realm.store.list_files(owner, "")]
    realm.store.change_files([RemoveFile(file.owner, file.id) for file in own])
    gone = sum(delete(session) for session in all_sessions(realm.store, realm.user))
    touched += forget_derived(realm, None)  # a commit may have ended in between; no more can now
    realm.store.scrub()
    return ForgetResult(gone, _count([*touched, *own]))


def _count(touched: Iterable[FileRecord]) -> int:
    """Return the number of distinct files."""
    return len({(file.owner, file.id) for file in touched})


def forget_files(realm: MemoryScope, uri: Uri) -> ForgetResult:
    """Erase a file, or all in a folder, and what commits have noted of them."""
    owner, path = realm.locate(uri)
    here = realm.find(uri)
    under = f"{path}/" if path else ""
    files = [here] if here is not None else realm.store.list_files(owner, under)
    erase_files(realm, files)  # also what a call that was cut off has left in the store's own files
    if not files:
        raise nothing_at(uri)
    return ForgetResult(0, len(files))


def erase_files(realm: MemoryScope, files: Sequence[FileRecord]) -> None:
    """Erase files with their history, those merged into them, and what sessions noted of them."""
    files = _with_merged(realm, files)
    unname(realm, files, leaving=True)
    realm.store.change_files([RemoveFile(file.owner, file.id) for file in files])
    unname(realm, files)  # somebody may have used them in between
    realm.store.scrub()


def _with_merged(realm: MemoryScope, files: Sequence[FileRecord]) -> list[FileRecord]:
    """The files, and the memories that became part of one of them: they hold some of its words."""
    found = list(files)
    merged: dict[str, list[FileRecord]] = {}
    for owner in realm.store.owned_by(realm.user) if files else ():
        for one in filter(is_merged, realm.store.list_files(owner, "")):
            merged.setdefault(one.latest.info[MERGED_INTO], []).append(one)
    for file in found:
        found += merged.pop(str(file.id), ())
    return found


def forget_fact(realm: MemoryScope, uri: Uri, fact: str) -> ForgetResult:
    """Erase one line of the profile, and those merged into it, from all that it ever said."""

    def erase() -> FileRecord:
        file = realm.find(uri)
        versions = [] if file is None else realm.store.file_versions(file.owner, file.id)
        if file is None or not any(has_fact(one, fact) for one in versions):
            raise NotFoundError(f"There is no line {fact!r} in {str(uri)!r}.")
        known = profile.facts_in(file.latest.info)
        left = profile.without_fact(known, fact)
        gone = {fact, *(one.id for one in known)} - {one.id for one in left}
        holding = {one.number for one in versions if any(has_fact(one, uid) for uid in gone)}
        realm.store.change_files(_rebuilt(file, versions, holding, left))
        return file

    if (file := realm.find(uri)) is not None:
        unname(realm, [file])  # what quotes it goes first: who is cut off then can forget it again
    unname(realm, [retry_on_conflict(erase, "the profile")])
    realm.store.scrub()
    return ForgetResult(0, 1)


def forget_derived(
    realm: MemoryScope, session: UUID | None, message: UUID | None = None
) -> list[FileRecord]:
    """Erase what rests on the user's sessions, one of them or one message, whoever has it.

    Gives the files there were.
    """

    def is_gone(source: profile.FactSource) -> bool:
        mine = (source.tenant, source.user) == (realm.user.tenant, realm.user.name)
        here = mine and session in (None, source.session)
        return here and message in (None, source.message)

    def erase() -> list[FileRecord]:
        changes: list[FileChange] = []
        leaving: list[FileRecord] = []
        staying: list[FileRecord] = []
        found = _files(realm, realm.store.derived(realm.user, session=session, message=message))
        for file, numbers in found:
            versions = realm.store.file_versions(file.owner, file.id)
            if _is_profile(file):
                known = profile.facts_in(file.latest.info)
                facts = profile.without_sources(known, is_gone, partial(said_by, realm))
                changes += _rebuilt(file, versions, numbers, facts)
                staying.append(file)
            else:
                erasing = list(_erased(realm, file, versions, numbers, is_gone))
                changes += erasing
                gone = len(numbers) == len(versions) and not isinstance(erasing[0], PutFile)
                moves = isinstance(erasing[-1], MoveFile)
                (leaving if gone or moves else staying).append(file)
        unname(realm, leaving, leaving=True)
        unname(realm, staying)  # what quotes them
        if changes:
            realm.store.change_files(changes)
        return [file for file, _ in found]

    return retry_on_conflict(erase, "the same memories")


def _erased(
    realm: MemoryScope,
    file: FileRecord,
    versions: Sequence[VersionRecord],
    numbers: set[int],
    is_gone: Callable[[profile.FactSource], bool],
) -> Iterator[FileChange]:
    """Take versions of a memory away; what other messages have said in full, it says on."""
    last = file.latest
    left = [one for one in map(profile.FactSource.of, last.evidence) if not is_gone(one)]
    text = ""
    rest = [one for one in versions if one.number not in numbers]
    # An earlier version that rests on all who are left says what it said, as nobody changed it.
    if last.number in numbers and not (rest and _rests_on(rest[-1], left)):
        parts = _remembered_nowhere_else(realm, file, versions, numbers, left)
        text = said_by(realm, last.body.decode(), left, parts)
    if text:
        last = replace(
            last,
            number=last.number + 1,
            written=clock.now_us(),
            commit=None,
            body=f"{text}\n".encode(),
            evidence=tuple(one.evidence for one in left),
            info={"did": "restored", "abstract": abstract_of(text)},
        )
        yield PutFile(file.owner, file.id, file.path, file.category, last)
        versions = [*versions, last]
    yield RemoveVersions(file.owner, file.id, tuple(numbers))
    yield from _renamed(realm, file, versions, numbers)


def _rests_on(version: VersionRecord, sources: Iterable[profile.FactSource]) -> bool:
    return {one.message for one in sources} <= {one.message for one in version.evidence}


def _remembered_nowhere_else(
    realm: MemoryScope,
    file: FileRecord,
    versions: Sequence[VersionRecord],
    numbers: set[int],
    sources: Iterable[profile.FactSource],
) -> list[profile.FactSource]:
    """Those of these messages that nothing speaks for when versions of a memory are gone.

    What they said is neither in an earlier version, nor in a memory that was merged into this one.
    """
    left = [one for one in versions if one.number not in numbers]
    known = {one.message for version in left for one in version.evidence}

    def is_merged_in(source: profile.FactSource) -> bool:
        found = realm.store.derived(realm.user, session=source.session, message=source.message)
        others = (one for one, _ in _files(realm, found) if one.id != file.id)
        return any(map(is_merged, others))

    return [one for one in sources if one.message not in known and not is_merged_in(one)]


def _rebuilt(
    file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int], facts: list[ProfileFact]
) -> list[FileChange]:
    """The profile without some versions, and with these facts from now on; without any it is gone.

    The new version comes before the old ones go: it is refused if someone else has written one
    since, and its number was never another's, so nobody who has read those can write on.
    """
    now = clock.now_us()
    version = replace(
        file.latest,
        number=file.latest.number + 1,
        written=now,
        valid_from=now,
        commit=None,
        body=profile.lines_of(facts).encode(),
        evidence=profile.evidence_of(facts),
        info={
            "did": "restored",
            "abstract": profile_abstract(facts),
            "facts": profile.facts_info(facts),
        },
    )
    gone = numbers if facts else {version.number, *(one.number for one in versions)}
    return [
        PutFile(file.owner, file.id, file.path, file.category, version),
        RemoveVersions(file.owner, file.id, tuple(gone)),
    ]


def _renamed(
    realm: MemoryScope, file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int]
) -> Iterator[MoveFile]:
    """Another name for a file whose own says what only the versions said that go."""
    left = [one.body.decode() for one in versions if one.number not in numbers]
    gone = [one.body.decode() for one in versions if one.number in numbers]
    folder, _, name = file.path.rpartition("/")
    named = telling(name.removesuffix(".md").replace("-", " "))
    if not left or named.isdisjoint(telling(" ".join(gone)) - telling(" ".join(left))):
        return
    path = f"{folder}/{slug(' '.join(left[-1].split()[:8]))}.md"
    if realm.store.find_file(file.owner, path) is not None:
        path = f"{path.removesuffix('.md')}-{file.id.hex[-8:]}.md"
    yield MoveFile(file.owner, file.id, path, file.category)


def _is_profile(file: FileRecord) -> bool:
    return file.owner.kind == "user" and file.path == PROFILE


def _files(realm: MemoryScope, derived: Sequence[Derived]) -> list[tuple[FileRecord, set[int]]]:
    """The files of these versions, and which versions of each are meant."""
    numbers: dict[tuple[Owner, UUID], set[int]] = {}
    for one in derived:
        numbers.setdefault((one.owner, one.file), set()).add(one.number)
    by_owner: dict[Owner, list[UUID]] = {}
    for owner, file in numbers:
        by_owner.setdefault(owner, []).append(file)
    return [
        (file, numbers[owner, file.id])
        for owner, ids in by_owner.items()
        for file in realm.store.files(owner, ids)
    ]

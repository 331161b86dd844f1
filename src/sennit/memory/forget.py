"""The way back: undo what a commit has written, and forget for good.

Undoing takes the versions away that a commit has written; what the files said before, they say
again. Forgetting erases: the files, sessions and memories meant, every version that rests on a
forgotten message, and what the index knew of them. What somebody has said elsewhere too stays, on
that evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import AccessError, ConflictError, NotFoundError, ValidationError
from sennit.memory import profile
from sennit.memory.drafts import profile_abstract
from sennit.memory.entry import nothing_at
from sennit.memory.profile import Fact
from sennit.memory.realm import PROFILE, Realm
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, loads
from sennit.stores.commits import CommitRecord, PutCommit, no_commit
from sennit.stores.files import (
    CountUses,
    Derived,
    EndCommit,
    FileChange,
    FileRecord,
    PutFile,
    RemoveFile,
    RemoveVersions,
    VersionRecord,
)
from sennit.stores.portable import all_sessions
from sennit.stores.records import Owner

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Undone:
    """What undoing a commit has changed."""

    removed: list[str] = field(default_factory=list[str])
    """Memories that are gone: the commit had created them."""
    restored: list[str] = field(default_factory=list[str])
    """Memories that say again what they said before."""
    kept: list[str] = field(default_factory=list[str])
    """Memories that stay as they are, as others have joined what they know to what it wrote."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was erased."""

    sessions: int
    files: int
    """Files that are gone, or have lost versions."""


def undo(realm: Realm, commit: UUID) -> Undone:
    """Take back what a commit has written; its archive stays. Again, it changes nothing."""
    for _ in range(_TRIES):
        found = realm.store.find_commit(realm.user, commit)
        if found is None:
            raise no_commit(commit)
        session, record = found
        if record.state == "undone":
            return Undone()
        undone, changes = _undoing(realm, record)
        body: dict[str, Any] = loads(record.body)
        changes += _discounting(realm, body)
        kept = {name: body[name] for name in ("abstract", "overview", "result") if name in body}
        change = PutCommit(commit, "undone", dumps(kept), record.version)
        try:
            realm.store.change_files(changes, EndCommit(realm.user, session, change))
        except ConflictError:
            continue
        return undone
    raise ConflictError("Others change the same memories all the time; try again.")


def _undoing(realm: Realm, record: CommitRecord) -> tuple[Undone, list[FileChange]]:
    undone, changes = Undone(), list[FileChange]()
    written = realm.store.written_by(realm.user.tenant, record.id)
    for file, numbers in _files(realm, written):
        versions = realm.store.file_versions(file.owner, file.id)
        uri = str(realm.uri(file))
        if _is_profile(file):
            facts = profile.without_commit(profile.facts_in(file.latest.info), record.id)
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
    """Whether a version that was not written by the commit says on what the commit wrote."""
    after = [one for one in versions if one.number > min(numbers) and one.number not in numbers]
    return bool(after) and bool(after[0].info.get("joined"))


def _discounting(realm: Realm, body: dict[str, Any]) -> list[CountUses]:
    used: dict[str, int] = body.get("used", {})
    found = ((realm.named(uri), times) for uri, times in used.items())
    return [
        CountUses(file.owner, file.path, -min(times, file.active))
        for file, times in found
        if file is not None
    ]


def forget(
    realm: Realm,
    delete: Callable[[UUID], bool],
    *,
    user: str | None,
    uri: str | None,
    session: str | UUID | None,
) -> Forgotten:
    """Erase what is named, sessions by `delete`; see `Client.forget`."""
    if sum(one is not None for one in (user, uri, session)) != 1:
        raise ValidationError("Name what to forget: one of user=, uri= and session=.")
    if user is not None:
        if user != realm.user.name:
            raise AccessError(f"This client is of user {realm.user.name!r}, not of {user!r}.")
        return forget_user(realm, delete)
    if uri is not None:
        place = Uri.parse(uri.partition("#")[0])
        if place.scope != "session":
            return forget_files(realm, place)
        if len(place.names) != 1:
            raise ValidationError(f"Forget a whole session, not {str(place)!r} alone.")
        session = place.names[0]
    assert session is not None
    return forget_session(realm, realm.session_id(session), delete)


def forget_session(realm: Realm, session: UUID, delete: Callable[[UUID], bool]) -> Forgotten:
    """Erase a session and all that rests on it; NotFoundError if there is neither."""
    touched = forget_derived(realm, session)
    sessions = int(delete(session))
    touched += forget_derived(realm, session)  # a commit may have ended in between; no more can
    if not sessions and not touched:
        raise NotFoundError(f"There is no session {session} here, and nothing came from it.")
    _unname(realm, touched)
    realm.store.scrub()
    return Forgotten(sessions, len(touched))


def forget_user(realm: Realm, delete: Callable[[UUID], bool]) -> Forgotten:
    """Erase all sessions and files of the user, and what others' memories rest on them."""
    touched = forget_derived(realm, None)
    own = realm.store.list_files(realm.user, "")
    realm.store.change_files([RemoveFile(file.owner, file.id) for file in own])
    gone = sum(delete(session) for session in all_sessions(realm.store, realm.user))
    touched += forget_derived(realm, None)  # a commit may have ended in between; no more can now
    realm.store.scrub()
    return Forgotten(gone, len(touched) + len(own))


def forget_files(realm: Realm, uri: Uri) -> Forgotten:
    """Erase a file, or all in a folder, and what commits have noted of them."""
    owner = realm.owner(uri.scope)
    here = realm.find(uri)
    under = f"{uri.path}/" if uri.names else ""
    files = [here] if here is not None else realm.store.list_files(owner, under)
    if not files:
        raise nothing_at(uri)
    realm.store.change_files([RemoveFile(file.owner, file.id) for file in files])
    _unname(realm, files)
    realm.store.scrub()
    return Forgotten(0, len(files))


def _unname(realm: Realm, touched: Sequence[FileRecord]) -> None:
    """Take what the user's sessions say of files that are gone, or of what they no longer say.

    Names are made of what files say, and reasons quote it.
    """
    mine = {realm.uri(file) for file in touched if realm.reaches(file.owner)}
    gone = {str(uri) for uri in mine if realm.find(uri) is None}
    for session in all_sessions(realm.store, realm.user):
        _unnote(realm, session, {str(uri) for uri in mine}, gone)
    for uri in gone:
        realm.store.unname(realm.user, uri)


def _unnote(realm: Realm, session: UUID, touched: set[str], gone: set[str]) -> None:
    """Take files out of what the commits of a session have noted."""
    for number in range(_TRIES):
        try:
            changes = [
                PutCommit(commit.id, commit.state, body, commit.version)
                for commit in realm.store.commits(realm.user, session).commits
                if (body := _without(commit.body, touched, gone)) != commit.body
            ]
            if changes:
                realm.store.write(realm.user, session, changes)
            return
        except NotFoundError:
            return  # it was deleted meanwhile, and its commits with it
        except ConflictError:  # one of them has just been finished: look again
            if number == _TRIES - 1:
                raise


def _without(noted: bytes, touched: set[str], gone: set[str]) -> bytes:
    """The body of a commit that names nothing gone, and quotes nothing of what was touched."""
    body: dict[str, Any] = loads(noted)
    diff: list[dict[str, Any]] = body.get("diff", [])
    used: dict[str, int] = body.get("used", {})
    if not any(_file_of(one) in touched for one in diff) and gone.isdisjoint(used):
        return noted
    body["diff"] = [
        {**one, "reason": ""} if _file_of(one) in touched else one
        for one in diff
        if _file_of(one) not in gone
    ]
    body["used"] = {uri: times for uri, times in used.items() if uri not in gone}
    return dumps(body)


def _file_of(written: dict[str, Any]) -> str:
    """The address of the file that something was written to; a fact is a part of one."""
    return written["uri"].partition("#")[0]


def forget_derived(
    realm: Realm, session: UUID | None, message: UUID | None = None
) -> list[FileRecord]:
    """Erase what rests on the user's sessions, one of them or one message, whoever has it.

    Gives the files there were.
    """

    def is_gone(source: profile.Source) -> bool:
        mine = (source.tenant, source.user) == (realm.user.tenant, realm.user.name)
        here = mine and session in (None, source.session)
        return here and message in (None, source.message)

    changes: list[FileChange] = []
    derived = realm.store.derived(realm.user, session=session, message=message)
    found = _files(realm, derived)
    for file, numbers in found:
        if _is_profile(file):
            facts = profile.without_sources(profile.facts_in(file.latest.info), is_gone)
            versions = realm.store.file_versions(file.owner, file.id)
            changes += _rebuilt(file, versions, numbers, facts)
        else:
            changes.append(RemoveVersions(file.owner, file.id, tuple(numbers)))
    if changes:
        realm.store.change_files(changes)
    return [file for file, _ in found]


def _rebuilt(
    file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int], facts: list[Fact]
) -> list[FileChange]:
    """The profile without some versions, and with these facts from now on."""
    changes: list[FileChange] = [RemoveVersions(file.owner, file.id, tuple(numbers))]
    left = [one.number for one in versions if one.number not in numbers]
    if not facts:
        return changes if not left else [RemoveFile(file.owner, file.id)]
    now = clock.now_us()
    version = replace(
        file.latest,
        number=max(left, default=0) + 1,
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
    return [*changes, PutFile(file.owner, file.id, file.path, file.category, version)]


def _is_profile(file: FileRecord) -> bool:
    return file.owner.kind == "user" and file.path == PROFILE


def _files(realm: Realm, derived: Sequence[Derived]) -> list[tuple[FileRecord, set[int]]]:
    """The files of these versions, and which versions of each are meant."""
    numbers: dict[tuple[Owner, UUID], set[int]] = {}
    for one in derived:
        numbers.setdefault((one.owner, one.file), set()).add(one.number)
    by_owner: dict[Owner, dict[UUID, FileRecord]] = {}
    for owner, _ in numbers:
        if owner not in by_owner:
            by_owner[owner] = {file.id: file for file in realm.store.list_files(owner, "")}
    return [
        (by_owner[owner][file], found)
        for (owner, file), found in numbers.items()
        if file in by_owner[owner]
    ]

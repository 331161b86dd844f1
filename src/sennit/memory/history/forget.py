"""Undo of commits, and permanent removal of data.

Undo removes the versions that a commit has written, so that files return to their earlier text.
Forgetting erases files, sessions and memories, every version that rests on a forgotten message,
their index entries, and names and quotations of what is gone. A statement that another message
makes in full stays, with that evidence alone. The same holds for removed messages; the summary of
their archive is rebuilt from the remaining messages, and a commit of that archive that is running
conflicts and starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from sennit import clock
from sennit.errors import AccessError, NotFoundError, ValidationError, short_repr
from sennit.memory.commit import profile
from sennit.memory.commit.profile import ProfileFact
from sennit.memory.extraction import summarize
from sennit.memory.extraction.english.clauses import content_terms
from sennit.memory.extraction.pipeline import digest_by_rules
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.values import abstract_of
from sennit.memory.files.entry import nothing_at
from sennit.memory.history.evidence import supported_text
from sennit.memory.naming import has_fact, remove_references, rewrite_commit
from sennit.memory.scope import MERGED_INTO, PROFILE, MemoryScope, is_merged, is_superseded
from sennit.memory.uri import Uri, abstract_uri
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import validate_text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import CommitRecord, PutCommit
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
    """Memories that are gone, because the commit had created them."""
    restored: list[str] = field(default_factory=list[str])
    """Memories restored to their earlier text."""
    kept: list[str] = field(default_factory=list[str])
    """Memories left unchanged, because later versions build on what the commit wrote."""


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The numbers of erased items."""

    sessions: int
    """The number of sessions that were erased."""
    files: int
    """Files that were removed or have lost versions."""


def undo(scope: MemoryScope, commit: UUID) -> UndoResult:
    """Undo what a commit has written; its archive stays. A second call changes nothing."""

    def undo_once() -> tuple[UndoResult, list[FileRecord]]:
        session, record = scope.commit(commit)
        if record.state == "undone":
            return UndoResult(), []
        written = _group_by_file(scope, scope.store.written_by(scope.user, commit))
        result, changes = _undo_changes(scope, record, written)
        body: dict[str, Any] = loads(record.body)
        changes += _uncount_changes(scope.of_agent(body.get("agent", scope.agent_name)), body)
        kept_fields = {
            name: body[name] for name in ("abstract", "overview", "result") if name in body
        }
        change = PutCommit(commit, "undone", dumps(kept_fields), record.version)
        scope.store.change_files(changes, EndCommit(scope.user, session, change))
        return result, [file for file, _ in written]

    remove_references(scope, _written_only_by(scope, commit), all_gone=True)
    remove_references(
        scope,
        [file for file, _ in _group_by_file(scope, scope.store.written_by(scope.user, commit))],
    )
    result, touched = retry_on_conflict(undo_once, "the same memories")
    remove_references(scope, touched)
    scope.store.scrub()
    return result


def _written_only_by(scope: MemoryScope, commit: UUID) -> list[FileRecord]:
    """Return the files of which a commit has written every version."""
    return [
        file
        for file, numbers in _group_by_file(scope, scope.store.written_by(scope.user, commit))
        if not _is_profile(file)
        and len(numbers) == len(scope.store.file_versions(file.owner, file.id))
    ]


def _undo_changes(
    scope: MemoryScope, record: CommitRecord, written: Sequence[tuple[FileRecord, set[int]]]
) -> tuple[UndoResult, list[FileChange]]:
    result, changes = UndoResult(), list[FileChange]()
    for file, numbers in written:
        versions = scope.store.file_versions(file.owner, file.id)
        uri = str(scope.uri(file))
        if _is_profile(file):
            old_facts, messages = profile.load_facts(file.latest.info), frozenset(record.entries)
            supported = partial(supported_text, scope)
            facts = profile.without_commit(old_facts, record.id, messages, supported)
            changes += _profile_changes(file, versions, numbers, facts)
            (result.restored if facts else result.removed).append(uri)
        elif _is_built_on(versions, numbers):
            result.kept.append(uri)
        else:
            changes += _put_newest_last(file, versions, numbers)
            changes.append(RemoveVersions(file.owner, file.id, tuple(numbers)))
            has_earlier = len(versions) > len(numbers)
            (result.restored if has_earlier else result.removed).append(uri)
    return result, changes


def _is_built_on(versions: Sequence[VersionRecord], numbers: set[int]) -> bool:
    """Return whether the next version by anyone else includes text that the commit wrote."""
    after = [
        version
        for version in versions
        if version.number > min(numbers)
        and version.number not in numbers
        and not is_superseded(version)
    ]
    return bool(after) and bool(after[0].info.get("joined"))


def _uncount_changes(scope: MemoryScope, body: dict[str, Any]) -> list[CountUses]:
    used: dict[str, int] = body.get("used", {})
    used_files = ((scope.file_at(uri), times) for uri, times in used.items())
    return [
        CountUses(file.owner, file.path, -min(times, file.active))
        for file, times in used_files
        if file is not None and scope.owns(file.owner)
    ]


def forget(
    scope: MemoryScope,
    delete: Callable[[UUID], bool],
    *,
    user: str | None,
    uri: str | None,
    session: str | UUID | None,
) -> ForgetResult:
    """Erase a user, the files at a URI or a session; `delete` deletes sessions.

    See `Client.forget`.
    """
    if sum(target is not None for target in (user, uri, session)) != 1:
        raise ValidationError("Pass exactly one of user=, uri= and session=.")
    if user is not None:
        if user != scope.user.name:
            raise AccessError(f"This client belongs to user {scope.user.name!r}, not {user!r}.")
        return forget_user(scope, delete)
    if uri is not None:
        address, _, fact_id = validate_text(uri, "uri").partition("#")
        parsed = Uri.parse(address)
        if fact_id:
            return forget_fact(scope, parsed, fact_id)
        if parsed.scope != "session":
            return forget_files(scope, parsed)
        if len(parsed.names) != 1:
            raise ValidationError(f"Only a whole session can be forgotten, not {str(parsed)!r}.")
        session = parsed.names[0]
    assert session is not None
    return forget_session(scope, session, delete)


def forget_session(
    scope: MemoryScope, key_or_id: str | UUID, delete: Callable[[UUID], bool]
) -> ForgetResult:
    """Erase a session and everything derived from it; raises NotFoundError if there is neither."""
    session = scope.session_id(key_or_id)
    touched = forget_derived(scope, session)
    sessions = int(delete(session))
    touched += forget_derived(scope, session)  # a commit may have ended meanwhile; no more can
    remove_references(scope, touched)
    scope.store.scrub()  # also after an earlier call that was interrupted
    if not sessions and not touched:
        raise NotFoundError(
            f"There is no session {short_repr(key_or_id)}, and no memory came from it."
        )
    return ForgetResult(sessions, _count(touched))


def forget_user(scope: MemoryScope, delete: Callable[[UUID], bool]) -> ForgetResult:
    """Erase all sessions and files of the user, with all agents, and what is derived from them."""
    touched = forget_derived(scope, None)
    owners = scope.store.owned_by(scope.user)
    own = [file for owner in owners for file in scope.store.list_files(owner, "")]
    scope.store.change_files([RemoveFile(file.owner, file.id) for file in own])
    deleted = sum(delete(session) for session in all_sessions(scope.store, scope.user))
    touched += forget_derived(scope, None)  # a commit may have ended meanwhile; no more can
    scope.store.collect_blobs(clock.now_us() + 1, scope.user)
    scope.store.scrub()
    return ForgetResult(deleted, _count([*touched, *own]))


def _count(touched: Iterable[FileRecord]) -> int:
    """Return the number of distinct files."""
    return len({(file.owner, file.id) for file in touched})


def forget_files(scope: MemoryScope, uri: Uri) -> ForgetResult:
    """Erase a file, or all files in a folder, and what commits recorded about them."""
    owner, path = scope.locate(uri)
    file = scope.find(uri)
    prefix = f"{path}/" if path else ""
    files = [file] if file is not None else scope.store.list_files(owner, prefix)
    erase_files(scope, files)  # even without files: an interrupted call may have left data to scrub
    if not files:
        raise nothing_at(uri)
    return ForgetResult(0, len(files))


def erase_files(
    scope: MemoryScope, files: Sequence[FileRecord], replacements: Sequence[FileChange] = ()
) -> None:
    """Erase files with their history, the files merged into them, and all references to them.

    The `replacements` are written in the same transaction.
    """
    files = _with_merged(scope, files)
    remove_references(scope, files, all_gone=True)
    removed = [RemoveFile(file.owner, file.id) for file in files]
    scope.store.change_files([*removed, *replacements])
    remove_references(scope, files)  # they may have been used meanwhile
    scope.store.scrub()


def _with_merged(scope: MemoryScope, files: Sequence[FileRecord]) -> list[FileRecord]:
    """Return the files and the memories merged into them, which contain some of the same text."""
    result = list(files)
    merged: dict[str, list[FileRecord]] = {}
    for owner in scope.store.owned_by(scope.user) if files else ():
        for merged_file in filter(is_merged, scope.store.list_files(owner, "")):
            merged.setdefault(merged_file.latest.info[MERGED_INTO], []).append(merged_file)
    for file in result:
        result += merged.pop(str(file.id), ())
    return result


def forget_fact(scope: MemoryScope, uri: Uri, fact_id: str) -> ForgetResult:
    """Erase one line of the profile, and those merged into it, from every version."""

    def erase() -> FileRecord:
        file = scope.find(uri)
        versions = [] if file is None else scope.store.file_versions(file.owner, file.id)
        if file is None or not any(has_fact(version, fact_id) for version in versions):
            raise NotFoundError(f"There is no line {fact_id!r} in {str(uri)!r}.")
        facts = profile.load_facts(file.latest.info)
        remaining = profile.without_fact(facts, fact_id)
        removed_ids = {fact_id, *(fact.id for fact in facts)} - {fact.id for fact in remaining}
        numbers = {
            version.number
            for version in versions
            if any(has_fact(version, uid) for uid in removed_ids)
        }
        scope.store.change_files(_profile_changes(file, versions, numbers, remaining))
        return file

    if (file := scope.find(uri)) is not None:
        remove_references(scope, [file])  # first: an interrupted call can be repeated
    remove_references(scope, [retry_on_conflict(erase, "the profile")])
    scope.store.scrub()
    return ForgetResult(0, 1)


def forget_derived(
    scope: MemoryScope, session: UUID | None, message: UUID | None = None
) -> list[FileRecord]:
    """Erase what is derived from the user's sessions, from one of them or from one message.

    Return the affected files as they were.
    """

    def is_gone(source: profile.FactSource) -> bool:
        is_own = (source.tenant, source.user) == (scope.user.tenant, scope.user.name)
        is_in_session = is_own and session in (None, source.session)
        return is_in_session and message in (None, source.message)

    def erase() -> list[FileRecord]:
        changes: list[FileChange] = []
        removed: list[FileRecord] = []
        remaining: list[FileRecord] = []
        derived = _group_by_file(
            scope, scope.store.derived(scope.user, session=session, message=message)
        )
        for file, numbers in derived:
            versions = scope.store.file_versions(file.owner, file.id)
            if _is_profile(file):
                old_facts = profile.load_facts(file.latest.info)
                facts = profile.without_sources(old_facts, is_gone, partial(supported_text, scope))
                changes += _profile_changes(file, versions, numbers, facts)
                remaining.append(file)
            else:
                file_changes = list(_erase_changes(scope, file, versions, numbers, is_gone))
                changes += file_changes
                is_removed = len(numbers) == len(versions) and not isinstance(
                    file_changes[0], PutFile
                )
                is_moved = isinstance(file_changes[-1], MoveFile)
                (removed if is_removed or is_moved else remaining).append(file)
        remove_references(scope, removed, all_gone=True)
        remove_references(scope, remaining)  # removes quotations
        if changes:
            scope.store.change_files(changes)
        return [file for file, _ in derived]

    return retry_on_conflict(erase, "the same memories")


def _erase_changes(
    scope: MemoryScope,
    file: FileRecord,
    versions: Sequence[VersionRecord],
    numbers: set[int],
    is_gone: Callable[[profile.FactSource], bool],
) -> Iterator[FileChange]:
    """Yield changes that remove versions of a memory but keep what other messages state in full."""
    last = file.latest
    sources = [
        source for source in map(profile.FactSource.of, last.evidence) if not is_gone(source)
    ]
    text = ""
    remaining = [version for version in versions if version.number not in numbers]
    # An earlier version with all the remaining evidence is right as it is.
    if last.number in numbers and not (remaining and _has_evidence(remaining[-1], sources)):
        parts = _unremembered_sources(scope, file, versions, numbers, sources)
        text = supported_text(scope, last.body.decode(), sources, parts)
    if text:
        last = replace(
            last,
            number=last.number + 1,
            written=clock.now_us(),
            commit=None,
            body=f"{text}\n".encode(),
            evidence=tuple(source.evidence for source in sources),
            info={"did": "restored", "abstract": abstract_of(text)},
        )
        yield PutFile(file.owner, file.id, file.path, file.category, last)
        versions = [*versions, last]
    yield from _put_newest_last(file, versions, numbers)
    yield RemoveVersions(file.owner, file.id, tuple(numbers))
    yield from _rename_changes(scope, file, versions, numbers)


def _put_newest_last(
    file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int]
) -> Iterator[PutFile]:
    """Yield the newest version that remains once more, if an older statement came after it."""
    remaining = [version for version in versions if version.number not in numbers]
    if remaining and is_superseded(remaining[-1]):
        newest = max(remaining, key=lambda version: (version.valid_from, version.number))
        if newest is not remaining[-1]:
            again = replace(newest, number=versions[-1].number + 1, replaced=None)
            yield PutFile(file.owner, file.id, file.path, file.category, again)


def _has_evidence(version: VersionRecord, sources: Iterable[profile.FactSource]) -> bool:
    return {source.message for source in sources} <= {source.message for source in version.evidence}


def _unremembered_sources(
    scope: MemoryScope,
    file: FileRecord,
    versions: Sequence[VersionRecord],
    numbers: set[int],
    sources: Iterable[profile.FactSource],
) -> list[profile.FactSource]:
    """Return the messages that nothing would remember once versions of a memory are removed.

    Their statements are neither in a remaining version nor in a memory merged into this one.
    """
    remaining = [version for version in versions if version.number not in numbers]
    remembered = {item.message for version in remaining for item in version.evidence}

    def is_merged_in(source: profile.FactSource) -> bool:
        derived = scope.store.derived(scope.user, session=source.session, message=source.message)
        others = (other for other, _ in _group_by_file(scope, derived) if other.id != file.id)
        return any(map(is_merged, others))

    return [
        source
        for source in sources
        if source.message not in remembered and not is_merged_in(source)
    ]


def _profile_changes(
    file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int], facts: list[ProfileFact]
) -> list[FileChange]:
    """Return changes that remove versions of the profile and write these facts, or remove the file.

    The new version is written first: this conflicts if another writer has added one since, and its
    number was never used before, so a writer that has read the old versions conflicts too.
    """
    now = clock.now_us()
    version = replace(
        file.latest,
        number=file.latest.number + 1,
        written=now,
        valid_from=now,
        commit=None,
        **profile.version_content(facts, "restored"),
    )
    removed = numbers if facts else {version.number, *(old.number for old in versions)}
    return [
        PutFile(file.owner, file.id, file.path, file.category, version),
        RemoveVersions(file.owner, file.id, tuple(removed)),
    ]


def _rename_changes(
    scope: MemoryScope, file: FileRecord, versions: Sequence[VersionRecord], numbers: set[int]
) -> Iterator[MoveFile]:
    """Yield a new name for a file whose name contains words that only removed versions contain."""
    remaining_texts = [
        version.body.decode() for version in versions if version.number not in numbers
    ]
    removed_texts = [version.body.decode() for version in versions if version.number in numbers]
    folder, _, name = file.path.rpartition("/")
    name_terms = content_terms(name.removesuffix(".md").replace("-", " "))
    if not remaining_texts or name_terms.isdisjoint(
        content_terms(" ".join(removed_texts)) - content_terms(" ".join(remaining_texts))
    ):
        return
    path = f"{folder}/{slug(' '.join(remaining_texts[-1].split()[:8]))}.md"
    if scope.store.find_file(file.owner, path) is not None:
        path = f"{path.removesuffix('.md')}-{file.id.hex[-8:]}.md"
    yield MoveFile(file.owner, file.id, path, file.category)


def _is_profile(file: FileRecord) -> bool:
    return file.owner.kind == "user" and file.path == PROFILE


def _group_by_file(
    scope: MemoryScope, derived: Sequence[Derived]
) -> list[tuple[FileRecord, set[int]]]:
    """Return the files of these versions, each with its version numbers."""
    numbers: dict[tuple[Owner, UUID], set[int]] = {}
    for item in derived:
        numbers.setdefault((item.owner, item.file), set()).add(item.number)
    by_owner: dict[Owner, list[UUID]] = {}
    for owner, file in numbers:
        by_owner.setdefault(owner, []).append(file)
    return [
        (file, numbers[owner, file.id])
        for owner, ids in by_owner.items()
        for file in scope.store.files(owner, ids)
    ]


_T = TypeVar("_T")

_QUOTING_FIELDS = ("warnings", "reasons")
"""Error texts, which may quote a message in the words of a provider."""
_REMOVED_TEXT = "It is not told any more, as a message was removed."


def remove_messages(
    scope: MemoryScope,
    session: UUID,
    messages: Sequence[UUID],
    erase: Callable[[], _T],
    *,
    forget: bool,
) -> _T:
    """Erase messages of the user with `erase` and, with `forget`, what is derived from them."""
    removed = set(messages)
    covering = [
        commit.id for commit in _commits(scope, session) if not removed.isdisjoint(commit.entries)
    ]
    derived = _forget_messages(scope, session, messages) if forget else []
    for commit in covering:  # first: later nobody knows which commits covered them
        _rewrite_commit(scope, session, commit, removed)
    erased = erase()
    for commit in _commits(scope, session):
        if commit.state == "open" or commit.id in covering:
            _rewrite_commit(scope, session, commit.id, removed)
    derived += _forget_messages(scope, session, messages) if forget else []  # again
    remove_references(scope, derived)
    changed = [
        abstract_uri(session, commit.number)
        for commit in _commits(scope, session)
        if commit.id in covering
    ]
    if changed:
        scope.store.erase_uses(scope.user, changed)  # summaries that were recalled
    scope.store.scrub()
    return erased


def _forget_messages(
    scope: MemoryScope, session: UUID, messages: Sequence[UUID]
) -> list[FileRecord]:
    return [file for message in messages for file in forget_derived(scope, session, message)]


def _commits(scope: MemoryScope, session: UUID) -> Sequence[CommitRecord]:
    return scope.store.commits(scope.user, session).commits


def _rewrite_commit(
    scope: MemoryScope, session: UUID, commit: UUID, removed: Container[UUID]
) -> None:
    """Remove the texts of messages from the body of a commit."""

    def without_texts(record: CommitRecord) -> bytes:
        body: dict[str, Any] = loads(record.body)
        body.pop("digest", None)  # the output of a model may quote them
        result: dict[str, Any] = body.get("result", {})
        result |= {name: [_REMOVED_TEXT] for name in _QUOTING_FIELDS if result.get(name)}
        if "overview" in body:
            body |= _summary(scope, session, record, removed)
        return dumps(body)

    rewrite_commit(scope, session, commit, without_texts)


def _summary(
    scope: MemoryScope, session: UUID, commit: CommitRecord, removed: Container[UUID]
) -> dict[str, str]:
    entries = [entry for entry in commit.entries if entry not in removed]
    summary = digest_by_rules(scope.messages(session, entries), lambda _: ()).summary
    return {"abstract": summarize.abstract(summary), "overview": summarize.markdown(summary)}

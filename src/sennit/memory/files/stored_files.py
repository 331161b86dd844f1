"""Stored files of the user, the agent and the tenant, as folders.

A folder exists while something stands in it, or because it was made on purpose (a file whose path
ends with a slash), or because a memory has its place there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sennit import clock
from sennit.errors import ExistsError, NotFoundError, ValidationError, shown
from sennit.ids import new_id
from sennit.memory.commit import profile
from sennit.memory.commit.file_changes import profile_abstract
from sennit.memory.extraction.values import Category, abstract_of
from sennit.memory.files import entry
from sennit.memory.files.entry import FileEntry, not_a_file, nothing_at
from sennit.memory.history.forget import erase_files
from sennit.memory.naming import rename_references
from sennit.memory.scope import MemoryScope, category_at, is_merged
from sennit.memory.uri import SHARED, Scope, Uri
from sennit.messages.json_values import text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import (
    EvidenceRecord,
    FileChange,
    FileRecord,
    MoveFile,
    PutFile,
    RemoveFile,
    VersionRecord,
)
from sennit.stores.records.sessions import Owner

BUILT_IN_FOLDERS: dict[Scope, tuple[str, ...]] = {
    "user": ("memories", "memories/entities", "memories/events", "memories/preferences"),
    "agent": ("memories", "memories/cases", "memories/patterns", "skills"),
    "resources": (),
    "session": (),
}
MAX_TEXT_BYTES = 1 << 20


@dataclass(frozen=True)
class StoredTree:
    """The files that a realm keeps, as folders."""

    realm: MemoryScope

    def entry(self, uri: Uri) -> FileEntry:
        """Return the entry at a path; raises NotFoundError."""
        file = self.realm.find(uri)
        if file is not None:
            return entry.stored(uri, file)
        if self.is_folder(uri):
            return entry.folder(uri)
        raise nothing_at(uri)

    def is_folder(self, uri: Uri) -> bool:
        """Return whether a folder is there."""
        return self._is_fixed(uri) or bool(self._below(uri))

    def _is_fixed(self, uri: Uri) -> bool:
        """Return whether a folder is always there."""
        return not uri.names or uri in self._always(uri.scope)

    def _always(self, scope: Scope) -> list[Uri]:
        """The folders below a scope that are always there."""
        shared = [Uri(scope, (SHARED,))] if scope in self.realm.shared else []
        return [*(Uri(scope, tuple(path.split("/"))) for path in BUILT_IN_FOLDERS[scope]), *shared]

    def children(self, uri: Uri) -> list[FileEntry]:
        """List a folder; raises NotFoundError."""
        below = self._below(uri)
        depth = len(uri.names)
        found: dict[str, FileEntry] = {}
        for one in self._always(uri.scope):
            if one.parent == uri:
                found[one.name] = entry.folder(one)
        for file in below:
            names = self.realm.uri(file).names
            at = Uri(uri.scope, names[: depth + 1])
            if len(names) == depth + 1 and not file.path.endswith("/"):
                found[at.name] = entry.stored(at, file)
            elif len(names) > depth:
                found.setdefault(at.name, entry.folder(at))
        if not found:
            self.entry(uri)  # says so if there is no such folder
        return [found[name] for name in sorted(found)]

    def _below(self, uri: Uri) -> list[FileRecord]:
        """The files in a folder; at the top with those that are shared."""
        return [file for place in self.realm.locations(uri) for file in self._files(*place)]

    def _files(self, owner: Owner, path: str) -> list[FileRecord]:
        files = self.realm.store.list_files(owner, f"{path}/" if path else "")
        return [file for file in files if not is_merged(file)]

    def text(self, uri: Uri) -> str:
        """Return the text of a file; raises NotFoundError."""
        file = self.realm.find(uri)
        if file is None:
            raise not_a_file(uri) if self.is_folder(uri) else nothing_at(uri)
        return file.latest.body.decode()

    def write(self, uri: Uri, said: str, *, did: str = "written") -> FileEntry:
        """Let a file say something, as its next version; the same again changes nothing."""
        body = text(said, "What a file says")
        if len(body.encode()) > MAX_TEXT_BYTES:
            raise ValidationError(f"A file may contain at most {MAX_TEXT_BYTES:,} bytes of text.")

        def write() -> FileEntry:
            self.check_writable(uri)
            file = self.realm.find(uri)
            if file is not None and file.latest.body.decode() == body:
                return entry.stored(uri, file)
            self.realm.store.change_files([self.next_version(uri, file, body, did)])
            return self.entry(uri)

        return retry_on_conflict(write, repr(str(uri)))

    def next_version(self, uri: Uri, file: FileRecord | None, body: str, did: str) -> PutFile:
        """The change that lets a file say something."""
        (owner, path), now = self.realm.locate(uri), clock.now_us()
        last = None if file is None else file.latest
        info: dict[str, object] = {"did": did, "abstract": abstract_of(body)}
        evidence: tuple[EvidenceRecord, ...] = () if last is None else last.evidence
        if category_at(owner, path) is Category.PROFILE:
            known = [] if last is None else profile.load_facts(last.info)
            facts = profile.facts_after_edit(body, known, now)
            info |= {"abstract": profile_abstract(facts), "facts": profile.dump_facts(facts)}
            evidence = profile.evidence_of(facts)
        version = VersionRecord(
            number=1 if last is None else last.number + 1,
            written=now,
            # A person corrects what is there: it held as long as what it corrects.
            valid_from=now if last is None else last.valid_from,
            valid_to=None if last is None else last.valid_to,
            body=body.encode(),
            info=info,
            evidence=evidence,
        )
        uid = new_id() if file is None else file.id
        return PutFile(owner, uid, path, self._category(owner, path), version)

    def _category(self, owner: Owner, path: str) -> str | None:
        found = category_at(owner, path)
        return None if found is None else str(found)

    def check_writable(self, uri: Uri) -> None:
        """A file stands in folders, not in files, and not where a folder is."""
        self.realm.locate(uri)
        if self.is_folder(uri):
            raise ExistsError(f"{str(uri)!r} is a folder; pass the URI of a file.")
        self._refuse_file_above(uri)

    def _refuse_file_above(self, uri: Uri) -> None:
        above = uri.parent
        while above.names:
            if self.realm.find(above) is not None:
                raise ExistsError(f"{str(above)!r} is a file, not a folder.")
            above = above.parent

    def mkdir(self, uri: Uri) -> FileEntry:
        """Make a folder; one that is there already is left as it is."""
        owner, path = self.realm.locate(uri)
        if self.realm.find(uri) is not None:
            raise ExistsError(f"{str(uri)!r} is a file.")
        if not self.is_folder(uri):
            self._refuse_file_above(uri)
            now = clock.now_us()
            empty = VersionRecord(number=1, written=now, valid_from=now, body=b"")
            self.realm.store.change_files([PutFile(owner, new_id(), f"{path}/", None, empty)])
        return entry.folder(uri)

    def rm(self, uri: Uri, *, recursive: bool) -> int:
        """Erase a file, or a folder with all in it; gives how many files went."""
        files = self._at(uri)
        if not recursive and any(self.realm.uri(file).names != uri.names for file in files):
            raise ExistsError(
                f"{str(uri)!r} is not empty; pass recursive=True to erase it with its contents."
            )
        erase_files(self.realm, files)
        return sum(not file.path.endswith("/") for file in files)

    def _at(self, uri: Uri) -> list[FileRecord]:
        """The file there, or all in the folder there; raises NotFoundError.

        What is shared is meant only by an address of its own.
        """
        place = self.realm.locate(uri)
        file = self.realm.find(uri)
        if file is not None:
            return [file]
        files = self._files(*place)
        if not files:
            if self.is_folder(uri):
                return []
            raise nothing_at(uri)
        return files

    def mv(self, source: Uri, target: Uri) -> FileEntry:
        """Give a file or folder another place; its versions go with it.

        Raises ExistsError if something is there.
        """
        files = self._at(source)
        if source.is_shared != target.is_shared:
            raise ValidationError(
                "Files cannot be moved into or out of the shared space, because their history and "
                "evidence would move along; write a new file there instead."
            )
        if self._is_fixed(source):
            raise ValidationError(
                f"Cannot move the built-in folder {shown(str(source))}; move its contents instead."
            )
        if target.is_within(source):
            raise ValidationError(f"{str(target)!r} is inside {str(source)!r}.")
        self._refuse_taken(target)
        changes: list[FileChange] = []
        moved: dict[str, str] = {}
        for file in files:
            old = self.realm.uri(file)
            new = Uri(target.scope, target.names + old.names[len(source.names) :])
            end = "/" if file.path.endswith("/") else ""
            owner, path = self.realm.locate(new)
            if category_at(owner, path) is Category.PROFILE and not _is_in_lines(file):
                raise ValidationError(f"The profile is kept line by line: write to {str(new)!r}.")
            changes += self._moving(file, owner, path + end)
            moved[str(old)] = str(new)
        rename_references(self.realm, moved)  # first: who is cut off then can move them again
        try:
            self.realm.store.change_files(changes)
        except Exception:
            rename_references(self.realm, {new: old for old, new in moved.items()})
            raise
        rename_references(self.realm, moved)  # somebody may have used them in between
        self.realm.store.scrub()
        return self.entry(target)

    def _refuse_taken(self, target: Uri) -> None:
        if self.realm.find(target) is not None or self.is_folder(target):
            raise ExistsError(f"{str(target)!r} already exists.")
        self._refuse_file_above(target)

    def _moving(self, file: FileRecord, owner: Owner, path: str) -> list[FileChange]:
        category = self._category(owner, path)
        if owner == file.owner:
            return [MoveFile(owner, file.id, path, category)]
        changes: list[FileChange] = [RemoveFile(file.owner, file.id)]
        versions = self.realm.store.file_versions(file.owner, file.id)
        if not versions:
            raise NotFoundError(f"{file.path!r} was removed meanwhile.")
        changes += [
            PutFile(owner, file.id, path, category, replace(version, number=number))
            for number, version in enumerate(versions, 1)
        ]
        return changes


def _is_in_lines(file: FileRecord) -> bool:
    """Return whether a file says its facts, as a profile does that was moved away."""
    return file.latest.body.decode() == profile.render(profile.load_facts(file.latest.info))

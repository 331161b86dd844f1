"""Stored files of the user, the agent and the tenant, as folders.

A folder exists while it contains something, if it was created (as a file whose path ends with a
slash), or if it is a built-in folder for memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sennit import clock
from sennit.errors import ExistsError, NotFoundError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.memory.commit import profile
from sennit.memory.extraction.values import Category, abstract_of
from sennit.memory.files import entry
from sennit.memory.files.entry import FileEntry, not_a_file, nothing_at
from sennit.memory.history.forget import erase_files
from sennit.memory.naming import rename_references
from sennit.memory.scope import MemoryScope, category_at, is_merged
from sennit.memory.uri import SHARED, Scope, Uri
from sennit.messages.json_values import validate_text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import (
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
ABSTRACT_NAME, OVERVIEW_NAME = ".abstract.md", ".overview.md"


@dataclass(frozen=True)
class StoredTree:
    """The stored files of a scope, as folders."""

    scope: MemoryScope

    def entry(self, uri: Uri) -> FileEntry:
        """Return the entry at a path; raises NotFoundError."""
        file = self.scope.find(uri)
        if file is not None:
            return entry.stored(uri, file)
        if self.is_folder(uri):
            return entry.folder(uri)
        raise nothing_at(uri)

    def is_folder(self, uri: Uri) -> bool:
        """Return whether a folder exists."""
        return self._is_built_in(uri) or bool(self._files_below(uri))

    def _is_built_in(self, uri: Uri) -> bool:
        """Return whether a folder always exists."""
        return not uri.names or uri in self._built_in_folders(uri.scope)

    def _built_in_folders(self, scope: Scope) -> list[Uri]:
        """Return the built-in folders of a scope."""
        shared = [Uri(scope, (SHARED,))] if scope in self.scope.shared else []
        return [*(Uri(scope, tuple(path.split("/"))) for path in BUILT_IN_FOLDERS[scope]), *shared]

    def children(self, uri: Uri) -> list[FileEntry]:
        """List a folder; raises NotFoundError."""
        below = self._files_below(uri)
        depth = len(uri.names)
        entries: dict[str, FileEntry] = {}
        for folder in self._built_in_folders(uri.scope):
            if folder.parent == uri:
                entries[folder.name] = entry.folder(folder)
        for file in below:
            names = self.scope.uri(file).names
            child = Uri(uri.scope, names[: depth + 1])
            if len(names) == depth + 1 and not file.path.endswith("/"):
                entries[child.name] = entry.stored(child, file)
            elif len(names) > depth:
                entries.setdefault(child.name, entry.folder(child))
        if not entries:
            self.entry(uri)  # raises NotFoundError if there is no such folder
        return [entries[name] for name in sorted(entries)]

    def _files_below(self, uri: Uri) -> list[FileRecord]:
        """Return the files in a folder; at the top including the shared ones."""
        return [file for location in self.scope.locations(uri) for file in self._files(*location)]

    def _files(self, owner: Owner, path: str) -> list[FileRecord]:
        files = self.scope.store.list_files(owner, f"{path}/" if path else "")
        return [file for file in files if not is_merged(file)]

    def contents(self, uri: Uri) -> str:
        """Return what a folder contains, a line each, rolled up from the folders below."""
        depth = len(uri.names)
        files = [(self.scope.uri(file).names[depth:], file) for file in self._files_below(uri)]
        return "\n".join(_contents(files))

    def text(self, uri: Uri) -> str:
        """Return the text of a file; raises NotFoundError."""
        file = self.scope.find(uri)
        if file is None:
            raise not_a_file(uri) if self.is_folder(uri) else nothing_at(uri)
        return file.latest.body.decode()

    def write(self, uri: Uri, content: str, *, did: str = "written") -> FileEntry:
        """Write the next version of a file; the same text again changes nothing."""
        body = validate_text(content, "The text of a file")
        if len(body.encode()) > MAX_TEXT_BYTES:
            raise ValidationError(f"A file may contain at most {MAX_TEXT_BYTES:,} bytes of text.")

        def write() -> FileEntry:
            self.check_writable(uri)
            file = self.scope.find(uri)
            if file is not None and file.latest.body.decode() == body:
                return entry.stored(uri, file)
            self.scope.store.change_files([self.next_version(uri, file, body, did)])
            return self.entry(uri)

        return retry_on_conflict(write, repr(str(uri)))

    def next_version(self, uri: Uri, file: FileRecord | None, body: str, did: str) -> PutFile:
        """Return the change that writes the next version of a file."""
        (owner, path), now = self.scope.locate(uri), clock.now_us()
        last = None if file is None else file.latest
        content: dict[str, Any] = {
            "evidence": () if last is None else last.evidence,
            "info": {"did": did, "abstract": abstract_of(body)},
        }
        if category_at(owner, path) is Category.PROFILE:
            old_facts = [] if last is None else profile.load_facts(last.info)
            facts = profile.facts_after_edit(body, old_facts, now)
            content = profile.version_content(facts, did)
        content["body"] = body.encode()
        version = VersionRecord(
            number=1 if last is None else last.number + 1,
            written=now,
            # A person corrects the text: it keeps the validity of the version it corrects.
            valid_from=now if last is None else last.valid_from,
            valid_to=None if last is None else last.valid_to,
            **content,
        )
        uid = new_id() if file is None else file.id
        return PutFile(owner, uid, path, self._category(owner, path), version)

    def _category(self, owner: Owner, path: str) -> str | None:
        category = category_at(owner, path)
        return None if category is None else str(category)

    def check_writable(self, uri: Uri) -> None:
        """Raise ExistsError if a URI is a folder or below a file."""
        self.scope.locate(uri)
        if self.is_folder(uri):
            raise ExistsError(f"{str(uri)!r} is a folder; pass the URI of a file.")
        self.check_parents(uri)

    def check_parents(self, uri: Uri) -> None:
        """Raise ExistsError if a URI is below a file."""
        above = uri.parent
        while above.names:
            if self.scope.find(above) is not None:
                raise ExistsError(f"{str(above)!r} is a file, not a folder.")
            above = above.parent

    def mkdir(self, uri: Uri) -> FileEntry:
        """Create a folder; an existing one is left unchanged."""
        owner, path = self.scope.locate(uri)
        if self.scope.find(uri) is not None:
            raise ExistsError(f"{str(uri)!r} is a file.")
        if not self.is_folder(uri):
            self.check_parents(uri)
            now = clock.now_us()
            empty = VersionRecord(number=1, written=now, valid_from=now, body=b"")
            self.scope.store.change_files([PutFile(owner, new_id(), f"{path}/", None, empty)])
        return entry.folder(uri)

    def rm(self, uri: Uri, *, recursive: bool) -> int:
        """Erase a file, or a folder with its contents; return the number of files."""
        files = self._files_at(uri)
        if not recursive and any(self.scope.uri(file).names != uri.names for file in files):
            raise ExistsError(
                f"{str(uri)!r} is not empty; pass recursive=True to erase it with its contents."
            )
        erase_files(self.scope, files)
        return sum(not file.path.endswith("/") for file in files)

    def _files_at(self, uri: Uri) -> list[FileRecord]:
        """Return the file at a URI, or all in the folder there; raises NotFoundError.

        Shared files are included only if the URI is in the shared space.
        """
        location = self.scope.locate(uri)
        file = self.scope.find(uri)
        if file is not None:
            return [file]
        files = self._files(*location)
        if not files:
            if self.is_folder(uri):
                return []
            raise nothing_at(uri)
        return files

    def mv(self, source: Uri, target: Uri) -> FileEntry:
        """Move a file or folder with its versions.

        Raises ExistsError if the target exists.
        """
        files = self._files_at(source)
        if source.is_shared != target.is_shared:
            raise ValidationError(
                "Files cannot be moved into or out of the shared space, because their history and "
                "evidence would move along; write a new file there instead."
            )
        if self._is_built_in(source):
            raise ValidationError(
                f"Cannot move the built-in folder {short_repr(str(source))}; move its contents "
                "instead."
            )
        if target.is_within(source):
            raise ValidationError(f"{str(target)!r} is inside {str(source)!r}.")
        self._check_free(target)
        changes: list[FileChange] = []
        moved: dict[str, str] = {}
        for file in files:
            old = self.scope.uri(file)
            new = Uri(target.scope, target.names + old.names[len(source.names) :])
            suffix = "/" if file.path.endswith("/") else ""
            owner, path = self.scope.locate(new)
            if category_at(owner, path) is Category.PROFILE and not _is_rendered_profile(file):
                raise ValidationError(
                    f"The profile has one fact per line; write its text to {str(new)!r} instead."
                )
            changes += self._move_changes(file, owner, path + suffix)
            moved[str(old)] = str(new)
        rename_references(self.scope, moved)  # first: an interrupted call can be repeated
        try:
            self.scope.store.change_files(changes)
        except Exception:
            rename_references(self.scope, {new: old for old, new in moved.items()})
            raise
        rename_references(self.scope, moved)  # they may have been used meanwhile
        self.scope.store.scrub()
        return self.entry(target)

    def _check_free(self, target: Uri) -> None:
        if self.scope.find(target) is not None or self.is_folder(target):
            raise ExistsError(f"{str(target)!r} already exists.")
        self.check_parents(target)

    def _move_changes(self, file: FileRecord, owner: Owner, path: str) -> list[FileChange]:
        category = self._category(owner, path)
        if owner == file.owner:
            return [MoveFile(owner, file.id, path, category)]
        changes: list[FileChange] = [RemoveFile(file.owner, file.id)]
        versions = self.scope.store.file_versions(file.owner, file.id)
        if not versions:
            raise NotFoundError(f"{file.path!r} was removed meanwhile.")
        changes += [
            PutFile(owner, file.id, path, category, replace(version, number=number))
            for number, version in enumerate(versions, 1)
        ]
        return changes


def _contents(files: Iterable[tuple[tuple[str, ...], FileRecord]]) -> Iterator[str]:
    """Yield a line for each file and folder: its name, and what it says."""
    groups: dict[str, list[tuple[tuple[str, ...], FileRecord]]] = {}
    for names, file in files:
        if not file.path.endswith("/"):
            groups.setdefault(names[0], []).append((names[1:], file))
    for name, inside in sorted(groups.items()):
        if name.startswith("."):
            continue
        own = next((file for names, file in inside if names in ((), (ABSTRACT_NAME,))), None)
        if own is not None:
            abstract = str(own.latest.info.get("abstract", ""))
        else:
            abstract = abstract_of("; ".join(line[2:] for line in _contents(inside)))
        yield f"- {name}: {abstract}".rstrip(": ")


def _is_rendered_profile(file: FileRecord) -> bool:
    """Return whether a file is the text of its facts, as a profile is that was moved away."""
    return file.latest.body.decode() == profile.render(profile.load_facts(file.latest.info))

"""Resources and skills: documents that a user adds, beside what is learnt from conversations.

A document is read, cut into sections and stored in one transaction, so a search never finds half of
it. Adding it again replaces it: sections that it no longer has are erased. A file of a folder that
cannot be read is reported, and the others are added. Nothing is fetched from the network.
"""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeAlias

from sennit.errors import (
    AccessError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    SennitError,
    ValidationError,
    short_repr,
)
from sennit.memory.extraction.terms import slug
from sennit.memory.files.documents import (
    MAX_DOCUMENT_BYTES,
    is_text_kind,
    read_document,
    sections_of,
)
from sennit.memory.files.stored_files import StoredTree
from sennit.memory.history.forget import erase_files
from sennit.memory.uri import Uri, is_name
from sennit.messages.json_values import validate_text
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import FileRecord, PutFile

Metadata: TypeAlias = Mapping[str, str | int | float | bool]
"""Labels of a resource, to filter a search by."""
Progress: TypeAlias = Callable[[int], object]

SKILLS: Final = Uri("agent", ("skills",))
SKILL_FILE: Final = "SKILL.md"
_RESOURCES = Uri("resources")
_MAX_FILES = 100_000
_MAX_METADATA = 32
_MAX_LABEL_CHARS = 1_000
_ADDED = "added"
_UNWANTED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv"})
_BAD_CHARS = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*#/\\]+')
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that was not added."""

    path: str
    """The path of the file."""
    reason: str
    """Why it was not added."""


@dataclass(frozen=True, slots=True)
class AddedResource:
    """The result of adding a document or a folder of documents."""

    uri: str
    """Where it can be found: a file or a folder."""
    files: list[str] = field(default_factory=list[str])
    """The URIs of the stored files: a document, or its sections."""
    unreadable: list[UnreadableFile] = field(default_factory=list[UnreadableFile])
    """The files of a folder that could not be added."""


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels stored with each section of a document."""

    reason: str
    metadata: dict[str, Any]


def add_resource(
    tree: StoredTree,
    source: str | os.PathLike[str] | None,
    *,
    text: str | None,
    name: str | None,
    to: str | None,
    reason: str,
    metadata: Metadata | None,
    progress: Progress | None,
) -> AddedResource:
    """Add a file, a folder or a text below `to`; raises ValidationError, AccessError."""
    labels = _Labels(validate_text(reason, "reason"), validate_metadata(metadata))
    folder = _RESOURCES if to is None else Uri.parse(to)
    if folder.scope != "resources" and not folder.is_within(SKILLS):
        raise ValidationError(
            f"Resources are added below 'viking://resources' or '{SKILLS}', got {str(folder)!r}."
        )
    if (source is None) == (text is None):
        raise ValidationError("Pass either the path of a file or a folder, or text= and name=.")
    if source is None:
        if not name:
            raise ValidationError("A text needs a name=, such as 'bowline.md'.")
        data = validate_text(text, "text").encode()
        return _add_document(tree, folder / _clean(name), name, data, labels)
    path = _checked_path(source)
    target = folder / _clean(name or path.resolve().name)
    if path.is_dir():
        return _add_folder(tree, path, target, labels, progress)
    try:
        return _add_document(tree, target, path.name, _read(path), labels)
    except _UnreadableError as error:
        raise ValidationError(f"{str(path)!r} cannot be added: {error}.") from error


class _UnreadableError(ValidationError):
    """A document that cannot be read; the message goes on from the name of its file."""


def _checked_path(source: str | os.PathLike[str]) -> Path:
    raw = os.fspath(source)
    if re.match(r"[a-z][a-z0-9+.-]+://", raw, re.IGNORECASE):
        raise ValidationError(
            f"Addresses are not fetched, got {short_repr(raw)}; download it and pass the path, or "
            f"pass text= and name=."
        )
    path = Path(raw).expanduser()
    if not path.exists():
        raise NotFoundError(
            f"There is no file or folder at {short_repr(raw)}; to add a text, pass text= and name=."
        )
    return path


def _add_folder(
    tree: StoredTree, path: Path, target: Uri, labels: _Labels, progress: Progress | None
) -> AddedResource:
    added = AddedResource(str(target))
    taken: set[Uri] = set()
    for number, file in enumerate(_files(path, added.unreadable), 1):
        try:
            uri = _free_place(target, file.relative_to(path).parts, taken)
            added.files.extend(_add_document(tree, uri, file.name, _read(file), labels).files)
        except AccessError:
            raise
        except (SennitError, OSError) as error:
            added.unreadable.append(UnreadableFile(str(file), str(error)))
        if progress is not None:
            progress(number)
    return added


def _free_place(folder: Uri, names: Sequence[str], taken: set[Uri]) -> Uri:
    """Return the URI of a file below a folder; names that would be the same get a number."""
    *above, name = map(_clean, names)
    for part in above:
        folder = folder / part
    stem, dot, suffix = name.rpartition(".")
    stem, suffix = (stem, f".{suffix}") if stem and dot else (name, "")
    numbered = (f"{stem}-{number}{suffix}" for number in itertools.count(2))
    uri = folder / name
    while uri in taken:
        uri = folder / next(numbered)
    taken.add(uri)
    return uri


def _files(path: Path, unreadable: list[UnreadableFile]) -> Iterator[Path]:
    """Yield the regular files below a folder, without hidden ones; links are not followed."""

    def failed(error: OSError) -> None:
        unreadable.append(UnreadableFile(str(error.filename), error.strerror or str(error)))

    count = 0
    for folder, folders, names in os.walk(path, onerror=failed):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _UNWANTED_FOLDERS
        )
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith("."):
                continue
            if file.is_symlink() or not file.is_file():
                unreadable.append(UnreadableFile(str(file), "it is a link or not a regular file"))
                continue
            count += 1
            if count > _MAX_FILES:
                raise ValidationError(f"{str(path)!r} has more than {_MAX_FILES:,} files.")
            yield file


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise _UnreadableError(f"it has more than {MAX_DOCUMENT_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _UnreadableError(error.strerror or str(error)) from error


def _add_document(
    tree: StoredTree, uri: Uri, name: str, data: bytes, labels: _Labels
) -> AddedResource:
    """Replace a document by the sections of its text, in one transaction."""
    try:
        text = read_document(name, data)
    except ValidationError as error:
        raise _UnreadableError(str(error)) from error
    files = dict(_section_files(uri, name, text))
    _replace(tree, uri, files, labels)
    return AddedResource(str(uri), [*map(str, files)])


def _replace(
    tree: StoredTree,
    uri: Uri,
    files: Mapping[Uri, str],
    labels: _Labels,
    *,
    keeps_others: bool = True,
) -> None:
    """Write the files of a document or a skill in one transaction, and erase those it had before.

    Raises ExistsError for files of others, unless they are to be replaced too.
    """

    def write() -> None:
        stored = _stored_files(tree, uri)
        own = [file for file in stored if file.latest.info.get("document") == str(uri)]
        if keeps_others and len(own) < len(stored):
            raise ExistsError(f"{str(uri)!r} has other contents; pass another name= or to=.")
        stale = {file.path: file for file in stored}
        places = {tree.scope.locate(place)[1]: place for place in files}
        known = {path: stale.pop(path) for path in places if path in stale}
        puts = [
            put
            for path, place in places.items()
            if (put := _put(tree, uri, place, known.get(path), files[place], labels))
        ]
        if stale:
            erase_files(tree.scope, list(stale.values()), puts)
        else:
            tree.check_parents(uri)
            tree.scope.store.change_files(puts)

    retry_on_conflict(write, repr(str(uri)))


def _section_files(uri: Uri, name: str, text: str) -> Iterator[tuple[Uri, str]]:
    """Yield the files of a document: the text itself, or a folder of numbered sections."""
    sections = sections_of(name, text)
    if len(sections) == 1 and is_text_kind(name):
        yield uri, text
        return
    digits = max(2, len(str(len(sections))))
    for number, section in enumerate(sections, 1):
        first = next(
            filter(None, (line.strip("#=-*_ \t") for line in section.text.split("\n"))), ""
        )
        trail = " › ".join(section.headings)
        title = slug(first)[:60].strip("-") or "section"
        yield (
            uri / f"{number:0{digits}}-{title}.md",
            "\n\n".join(filter(None, (trail, section.text))),
        )


def _stored_files(tree: StoredTree, uri: Uri) -> list[FileRecord]:
    """Return the file at a URI, or all in the folder there."""
    owner, path = tree.scope.locate(uri)
    found = [*tree.scope.store.list_files(owner, f"{path}/")]
    return found if (file := tree.scope.find(uri)) is None else [file, *found]


def _put(
    tree: StoredTree, document: Uri, uri: Uri, file: FileRecord | None, body: str, labels: _Labels
) -> PutFile | None:
    """Return the next version of a file, or None if it is the same."""
    put = tree.next_version(uri, file, body, _ADDED)
    info = {
        **put.version.info,
        "document": str(document),
        **({"reason": labels.reason} if labels.reason else {}),
        **({"metadata": labels.metadata} if labels.metadata else {}),
    }
    if file is not None and (file.latest.body, file.latest.info) == (put.version.body, info):
        return None
    return PutFile(put.owner, put.id, put.path, put.category, replace(put.version, info=info))


def _clean(name: str) -> str:
    """Return a file name that a URI may have."""
    name = unicodedata.normalize("NFC", name).replace("%", "_")
    name = "".join(
        char for char in _BAD_CHARS.sub("-", name) if not unicodedata.category(char).startswith("C")
    )
    name = name.strip(" .").encode()[:150].decode(errors="ignore").strip(" .")
    return name if is_name(name) else f"file-{slug(name) or 'unnamed'}"


def validate_metadata(metadata: Any) -> dict[str, Any]:
    """Return labels as a dict; raises InvalidTypeError, ValidationError."""
    value: Any = {} if metadata is None else metadata
    labels: dict[Any, Any] = dict(value) if isinstance(value, Mapping) else {None: None}  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(name, str) and _is_label(value) for name, value in labels.items()):
        raise InvalidTypeError(
            f"metadata must be a dict of short texts, numbers and booleans such as "
            f"{{'team': 'rope'}}, got {short_repr(metadata)}."
        )
    if len(labels) > _MAX_METADATA:
        raise ValidationError(f"metadata may have {_MAX_METADATA} entries, got {len(labels)}.")
    return labels


def _is_label(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_LABEL_CHARS and value.isprintable()
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63)


def add_skill(tree: StoredTree, skill: Mapping[str, Any] | str | os.PathLike[str]) -> AddedResource:
    """Store a skill below `viking://agent/skills`: a dict, a SKILL.md, or a folder with one."""
    unreadable: list[UnreadableFile] = []
    if isinstance(skill, Mapping):
        name, text = _skill_of_dict(skill)
        uri = SKILLS / name
        files = {uri / SKILL_FILE: text}
    else:
        path = _checked_path(skill)
        file = path / SKILL_FILE if path.is_dir() else path
        if path.is_dir() and file.is_symlink():
            raise ValidationError(f"{str(file)!r} is a link; put the file itself in its place.")
        try:
            text = read_document(SKILL_FILE, _read(file))
        except ValidationError as error:
            raise ValidationError(f"The skill {str(file)!r} cannot be read: {error}.") from error
        uri = SKILLS / _skill_name(_front_matter(text), file)
        files = {uri / SKILL_FILE: text}
        if path.is_dir():
            files |= _files_beside(path, file, uri, unreadable)
    _replace(tree, uri, files, _Labels("", {}), keeps_others=False)
    return AddedResource(str(uri), [*map(str, files)], unreadable)


def _files_beside(
    path: Path, skill: Path, uri: Uri, unreadable: list[UnreadableFile]
) -> dict[Uri, str]:
    """Return the texts of the other files in the folder of a skill."""
    files: dict[Uri, str] = {}
    taken = {uri / SKILL_FILE}
    for other in _files(path, unreadable):
        if other == skill:
            continue
        try:
            text = read_document(other.name, _read(other))
            files[_free_place(uri, other.relative_to(path).parts, taken)] = text
        except SennitError as error:
            unreadable.append(UnreadableFile(str(other), str(error)))
    return files


def _skill_of_dict(skill: Mapping[str, object]) -> tuple[str, str]:
    name, description = skill.get("name"), skill.get("description", "")
    content = skill.get("content", "")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ValidationError(
            f"A skill needs a 'name', a 'description' and the 'content' of its SKILL.md, got "
            f"{short_repr(dict[str, Any](skill))}."
        )
    if not isinstance(description, str) or not isinstance(content, str):
        raise InvalidTypeError("The description and the content of a skill are texts.")
    if unknown := sorted(map(str, skill.keys() - {"name", "description", "content"})):
        raise ValidationError(
            f"A skill has 'name', 'description' and 'content', got also {short_repr(unknown[0])}."
        )
    head = f"---\nname: {name.strip()}\ndescription: {' '.join(description.split())}\n---\n\n"
    return _skill_folder(name), head + content


def _skill_name(fields: Mapping[str, str], file: Path) -> str:
    name = fields.get("name") or (file.resolve().parent.name if file.name == SKILL_FILE else "")
    if not name:
        raise ValidationError(
            f"The skill {str(file)!r} has no name: begin it with front matter such as "
            f"'---\\nname: splice\\ndescription: …\\n---'."
        )
    return _skill_folder(name)


def _skill_folder(name: str) -> str:
    folder = _clean(name.strip())
    return folder.replace(" ", "-")


def _front_matter(text: str) -> dict[str, str]:
    match = _FRONT_MATTER.match(text)
    lines = match[1].splitlines() if match else []
    pairs = (line.partition(":") for line in lines if not line.startswith((" ", "\t", "#")))
    return {name.strip(): value.strip().strip("\"'") for name, colon, value in pairs if colon}

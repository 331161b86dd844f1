"""`sennit fs`: the virtual file system of `viking://` URIs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import MofNCompleteColumn

from sennit.cli.help import CommandGroup
from sennit.cli.targets import JsonOption, StoreOption, open_store
from sennit.cli.text import clean, emit, pluralize, progress_bar, working

if TYPE_CHECKING:
    from sennit.memory.files.entry import FileEntry

app = CommandGroup(help="Browse and edit stored data as files.")

_ROOT = "viking://"
FolderArgument = Annotated[
    str,
    typer.Argument(metavar="URI", help="A folder, such as viking://user/memories (default: all)."),
]


@app.command("ls")
def ls(uri: FolderArgument = _ROOT, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the contents of a folder."""
    with open_store(store) as client:
        entries = client.fs.ls(uri)
    sizes = ["" if entry.is_folder else f"{entry.size:,}  " for entry in entries]
    width = max(map(len, sizes), default=0)
    lines = (
        f"{size:>{width}}{entry.name}{'/' if entry.is_folder else ''}"
        for size, entry in zip(sizes, entries, strict=True)
    )
    emit(as_json, [asdict(entry) for entry in entries], lines)


@app.command("tree")
def tree(
    uri: FolderArgument = _ROOT,
    depth: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum depth.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a folder as a tree."""
    with open_store(store) as client:
        client.fs.ls(uri)  # raises NotFoundError before anything is drawn
        entries = client.fs.walk(uri) if as_json else ()
        rows = [asdict(entry) for entry in entries if _is_within_depth(entry, uri, depth)]
        emit(as_json, rows, [] if as_json else [client.fs.tree(uri, depth=depth)])


@app.command("cat")
def cat(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The file.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a file."""
    with open_store(store) as client:
        text = client.fs.read(uri)
    if as_json:
        emit(as_json, {"uri": uri, "text": text}, ())
    else:
        typer.echo(clean(text), nl=not text.endswith("\n"))


@app.command("grep")
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.")],
    uri: FolderArgument = _ROOT,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Ignore upper and lower case.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the lines that match a pattern; the exit code is 1 if there are none."""
    with open_store(store) as client:
        matches = client.fs.grep(pattern, uri, ignore_case=ignore_case)
    lines = (f"{match.uri}:{match.number}: {match.line}" for match in matches)
    emit(as_json, [asdict(match) for match in matches], lines)
    raise typer.Exit(0 if matches else 1)


@app.command("add")
def add(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder of files.")],
    to: Annotated[
        str, typer.Option(metavar="URI", help="The folder to add it to.")
    ] = "viking://resources",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name there (default: its own).")
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add documents to be found and read: text, Markdown, code, HTML or PDF."""
    with open_store(store) as client, progress_bar("Reading", MofNCompleteColumn()) as update:
        added = client.add_resource(
            path, to=to, name=name, reason=reason, progress=lambda done: update(done, None)
        )
    lines = [f"{pluralize(len(added.files), 'file')} in {added.uri}"]
    if added.unreadable:
        lines.append(f"Not added: {pluralize(len(added.unreadable), 'file')}")
        lines += [f"  {file.path}: {file.reason}" for file in added.unreadable]
    emit(as_json, asdict(added), lines)


@app.command("export")
def export(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")
    ],
    uri: FolderArgument = _ROOT,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export files to a folder on disk, to read and edit them with any editor."""
    with open_store(store) as client, progress_bar("Writing files", MofNCompleteColumn()) as update:
        count = client.fs.export(path, uri, lambda done: update(done, None))
    emit(as_json, {"path": path, "files": count}, [f"{pluralize(count, 'file')} in {path}"])


@app.command("import")
def import_(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder written by sennit fs export.")
    ],
    uri: FolderArgument = _ROOT,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a folder from disk; an edited file becomes a new version."""
    with open_store(store) as client, working("Reading…"):
        counts = asdict(client.fs.import_folder(path, uri))
    emit(as_json, counts, [", ".join(f"{count} {outcome}" for outcome, count in counts.items())])


def _is_within_depth(entry: FileEntry, uri: str, depth: int | None) -> bool:
    """Return whether an entry is at most `depth` levels below a URI."""
    below = entry.uri.removeprefix(uri).strip("/")
    return depth is None or below.count("/") < depth

"""`sennit fs`: the virtual file system of `viking://` URIs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption, StoreOption, open_store
from sennit.cli.text import clean, pluralize
from sennit.clock import from_datetime, to_iso

if TYPE_CHECKING:
    from sennit.memory.files.entry import FileEntry

app = typer.Typer(
    no_args_is_help=True, help="Browse and edit stored data as files.", rich_markup_mode=None
)

_ROOT = "viking://"
FolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="[URI]", help="A folder, such as viking://user/memories (default: all)."
    ),
]


@app.command("ls")
def ls(uri: FolderArgument = _ROOT, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the contents of a folder."""
    with open_store(store) as client:
        entries = client.fs.ls(uri)
    if as_json:
        print_json([_to_dict(entry) for entry in entries])
        return
    sizes = ["" if entry.is_folder else f"{entry.size:,}  " for entry in entries]
    width = max(map(len, sizes), default=0)
    for size, entry in zip(sizes, entries, strict=True):
        typer.echo(f"{size:>{width}}{clean(entry.name)}{'/' if entry.is_folder else ''}")


@app.command("tree")
def tree(
    uri: FolderArgument = _ROOT,
    depth: Annotated[int | None, typer.Option(min=1, help="Maximum depth.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a folder as a tree."""
    with open_store(store) as client:
        client.fs.ls(uri)  # raises NotFoundError before anything is drawn
        if as_json:
            print_json(
                [
                    _to_dict(entry)
                    for entry in client.fs.walk(uri)
                    if _is_within_depth(entry, uri, depth)
                ]
            )
        else:
            typer.echo(clean(client.fs.tree(uri, depth=depth)))


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
        print_json({"uri": uri, "text": text})
    else:
        typer.echo(clean(text), nl=not text.endswith("\n"))


@app.command("grep")
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.")],
    uri: FolderArgument = _ROOT,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the lines that match a pattern; the exit code is 1 if there are none."""
    with open_store(store) as client:
        matches = client.fs.grep(pattern, uri, ignore_case=ignore_case)
    if as_json:
        print_json([asdict(match) for match in matches])
    else:
        for match in matches:
            typer.echo(clean(f"{match.uri}:{match.number}: {match.line}"))
    raise typer.Exit(0 if matches else 1)


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
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        open_store(store) as client,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("Writing files", total=None)
        count = client.fs.export(path, uri, lambda done: bar.update(task, completed=done))
    if as_json:
        print_json({"path": str(path), "files": count})
    else:
        typer.echo(f"{pluralize(count, 'file')} in {clean(str(path))}")


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
    with open_store(store) as client, Console(stderr=True).status("Reading…"):
        counts = asdict(client.fs.import_(path, uri))
    if as_json:
        print_json(counts)
    else:
        typer.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


def _is_within_depth(entry: FileEntry, uri: str, depth: int | None) -> bool:
    """Return whether an entry is at most `depth` levels below a URI."""
    below = entry.uri.removeprefix(uri).strip("/")
    return depth is None or below.count("/") < depth


def _to_dict(entry: FileEntry) -> dict[str, Any]:
    times = {"created_at": entry.created_at, "updated_at": entry.updated_at}
    iso_times = {name: time and to_iso(from_datetime(time)) for name, time in times.items()}
    return {**asdict(entry), **iso_times}

"""`sennit fs`: the virtual file system of `viking://` URIs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption, StoreOption, existing
from sennit.cli.text import clean, counted
from sennit.clock import from_datetime, to_iso

if TYPE_CHECKING:
    from sennit.memory.files.entry import FileEntry

app = typer.Typer(
    no_args_is_help=True, help="Browse and edit stored data as files.", rich_markup_mode=None
)

_TOP = "viking://"
FolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="[URI]", help="A folder, such as viking://user/memories (default: all)."
    ),
]


@app.command("ls")
def ls(uri: FolderArgument = _TOP, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the contents of a folder."""
    with existing(store) as client:
        found = client.fs.ls(uri)
    if as_json:
        print_json([_plain(one) for one in found])
        return
    sizes = ["" if one.is_folder else f"{one.size:,}  " for one in found]
    width = max(map(len, sizes), default=0)
    for size, one in zip(sizes, found, strict=True):
        typer.echo(f"{size:>{width}}{clean(one.name)}{'/' if one.is_folder else ''}")


@app.command("tree")
def tree(
    uri: FolderArgument = _TOP,
    depth: Annotated[int | None, typer.Option(min=1, help="Maximum depth.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a folder as a tree."""
    with existing(store) as client:
        client.fs.ls(uri)  # raises NotFoundError before anything is drawn
        if as_json:
            print_json([_plain(one) for one in client.fs.walk(uri) if _near(one, uri, depth)])
        else:
            typer.echo(clean(client.fs.tree(uri, depth=depth)))


@app.command("cat")
def cat(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The file.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a file."""
    with existing(store) as client:
        text = client.fs.read(uri)
    if as_json:
        print_json({"uri": uri, "text": text})
    else:
        typer.echo(clean(text), nl=not text.endswith("\n"))


@app.command("grep")
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.")],
    uri: FolderArgument = _TOP,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the lines that match a pattern; the exit code is 1 if there are none."""
    with existing(store) as client:
        found = client.fs.grep(pattern, uri, ignore_case=ignore_case)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            typer.echo(clean(f"{one.uri}:{one.number}: {one.line}"))
    raise typer.Exit(0 if found else 1)


@app.command("export")
def export(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")
    ],
    uri: FolderArgument = _TOP,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export files to a folder on disk, to read and edit them with any editor."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        existing(store) as client,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("Writing files", total=None)
        count = client.fs.export(path, uri, lambda done: bar.update(task, completed=done))
    if as_json:
        print_json({"path": str(path), "files": count})
    else:
        typer.echo(f"{counted(count, 'file')} in {clean(str(path))}")


@app.command("import")
def import_(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder written by sennit fs export.")
    ],
    uri: FolderArgument = _TOP,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a folder from disk; an edited file becomes a new version."""
    with existing(store) as client, Console(stderr=True).status("Reading…"):
        done = asdict(client.fs.import_(path, uri))
    if as_json:
        print_json(done)
    else:
        typer.echo(", ".join(f"{number} {what}" for what, number in done.items()))


def _near(one: FileEntry, uri: str, depth: int | None) -> bool:
    """Return whether an entry is at most so many folders below an address."""
    below = one.uri.removeprefix(uri).strip("/")
    return depth is None or below.count("/") < depth


def _plain(one: FileEntry) -> dict[str, Any]:
    moments = {"created_at": one.created_at, "updated_at": one.updated_at}
    told = {name: at and to_iso(from_datetime(at)) for name, at in moments.items()}
    return {**asdict(one), **told}

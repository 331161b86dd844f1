"""`sennit export` and `import`: archives, training data, conversations of other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer
from rich.progress import TaskProgressColumn, TimeRemainingColumn

from sennit.api.open import open as open_client
from sennit.cli.targets import (
    JsonOption,
    SessionsArgument,
    StoreOption,
    find_session,
    open_store,
)
from sennit.cli.text import clean, emit, note, pluralize, progress_bar
from sennit.errors import ValidationError
from sennit.learning.examples import Filter
from sennit.learning.export import ExportOptions
from sennit.learning.export.formats import FORMATS
from sennit.stores.transfer.chat_exports.import_chats import FORMATS as IMPORT_FORMATS
from sennit.stores.transfer.chat_exports.import_chats import ImportFormat

if TYPE_CHECKING:
    from uuid import UUID

    from sennit.api.client import Client
    from sennit.stores.transfer.export_import import ImportSummary

ARCHIVE = "archive"
_WITHOUT_MEMORIES = (
    "Memories are not in this archive: --memories takes them along, and sennit backup FILE copies "
    "everything."
)


def export(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A new file (.zip; .jsonl or .parquet with --format), or a new folder.",
        ),
    ],
    sessions: SessionsArgument = None,
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=f"{ARCHIVE} (for `sennit import`), or: {', '.join(FORMATS)}.",
        ),
    ] = ARCHIVE,
    min_score: Annotated[
        float | None, typer.Option(metavar="N", help="Skip answers with a lower score.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also skip everything after such an answer.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use only scores by this judge (default: all)."),
    ] = None,
    memories: Annotated[
        bool, typer.Option("--memories", help="Add the memories to an archive of all sessions.")
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=SHARE,…", help="Write several files, such as train=0.9,test=0.1."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export sessions to an archive or to training files."""
    keep = Filter(min_score=min_score, strict_trajectory=strict, by=by)
    options = None
    if format != ARCHIVE:
        options = ExportOptions(format=format, keep=keep, split=_parse_split(split))
    elif keep != Filter() or split:
        raise ValidationError("An archive contains all messages; use --format to filter answers.")
    with open_store(store) as client, progress_bar("sessions") as progress:
        session_ids = [find_session(client, name).id for name in sessions] if sessions else None
        if options is None:
            report = _export_archive(client, path, session_ids, progress, memories=memories)
        elif memories:
            raise ValidationError("Training files contain no memories; leave out --memories.")
        else:
            report = _export_training(client, path, options, session_ids, progress)
    emit(as_json, report.value, report.lines)
    if not as_json:
        for text in report.notes:
            note(text)


class _Report(NamedTuple):
    """The output of a command: a value as JSON, or lines and notes."""

    value: dict[str, Any]
    lines: list[str]
    notes: list[str]


def _export_archive(
    client: Client,
    path: Path,
    sessions: list[UUID] | None,
    progress: Callable[[int, int], None],
    *,
    memories: bool,
) -> _Report:
    if path.suffix.lower() not in ("", ".zip"):
        raise ValidationError(
            f"An archive is a .zip file or a folder, got {str(path)!r}. To write training files, "
            f"use --format."
        )
    done = client.export(path, sessions, progress, memories=memories)
    files = {"all": {"path": done.path, "messages": done.messages}}
    of_sessions = f"{pluralize(done.messages, 'message')} of {pluralize(done.sessions, 'session')}"
    line = f"{done.path}  {of_sessions}{', with the memories' if memories else ''}"
    value = {"sessions": done.sessions, "files": files, "memories": done.memories}
    notes = [] if memories else [_WITHOUT_MEMORIES]
    return _Report(value, [line], notes)


def _export_training(
    client: Client,
    path: Path,
    options: ExportOptions,
    sessions: list[UUID] | None,
    progress: Callable[[int, int], None],
) -> _Report:
    done = client.export_training(path, options, sessions, progress)
    files = {name: {"path": file, "rows": done.rows[name]} for name, file in done.files.items()}
    lines = [
        f"{file}  {pluralize(done.rows[name], 'row')} of {pluralize(done.sessions, 'session')}"
        for name, file in done.files.items()
    ]
    left_out = dict(done.left_out)
    notes = [f"skipped: {count} ({reason})" for reason, count in left_out.items()]
    return _Report({"sessions": done.sessions, "files": files, "left_out": left_out}, lines, notes)


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="An archive of `sennit export`, the .zip or conversations.json of ChatGPT or "
            "Claude, OpenAI chat JSONL, or llm's logs.db.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help=f"{', '.join(IMPORT_FORMATS)} (default: detected from the content).",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import conversations; importing them again adds only what is new.

    Exits with code 1 if a conversation could not be read; the others are imported.
    """
    columns = (TaskProgressColumn(), TimeRemainingColumn())
    with open_client(store) as client, progress_bar("importing", *columns) as progress:
        result = client.import_sessions(path, progress, format=cast("ImportFormat | None", format))
    value = {
        "format": result.format,
        "sessions": result.sessions,
        "new_sessions": result.new_sessions,
        "new_branches": result.new_branches,
        "new_messages": result.new_messages,
        "new_memories": result.new_memories,
        "different_memories": result.different_memories,
        "skipped": result.skipped,
        "problems": list(result.problems),
    }
    emit(as_json, value, [_imported(result)])
    if result.different_memories:
        note(
            f"left as they are, because they differ here: "
            f"{pluralize(result.different_memories, 'memory', 'memories')}"
        )
    for problem in result.problems:
        note(f"skipped: {problem}")
    if result.skipped:
        note(f"{pluralize(result.skipped, 'conversation')} could not be read.")
        raise typer.Exit(1)


def _imported(result: ImportSummary) -> str:
    """Return the numbers of an import as a line."""
    counts = [
        pluralize(result.new_sessions, "new session"),
        pluralize(result.new_branches, "new branch", "new branches"),
        pluralize(result.new_messages, "new message"),
        pluralize(result.new_memories, "new memory", "new memories"),
    ]
    new = [count for count in counts if not count.startswith("0 ")]
    return f"{pluralize(result.sessions, 'session')}: {', '.join(new) or 'nothing new'}"


def _parse_split(split: str | None) -> dict[str, float] | None:
    if split is None:
        return None
    shares: dict[str, float] = {}
    for part in split.split(","):
        name, _, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            message = (
                f"--split takes names and shares, such as train=0.9,test=0.1, got {clean(part)!r}."
            )
            raise ValidationError(message) from None
    return shares

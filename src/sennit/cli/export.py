"""`sennit export` and `import`: archives, training data, conversations of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

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

ARCHIVE = "archive"


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
    with open_store(store) as client, progress_bar("sessions") as progress:
        session_ids = [find_session(client, name).id for name in sessions] if sessions else None
        if format == ARCHIVE:
            if min_score is not None or strict or by or split:
                raise ValidationError(
                    "An archive contains all messages; use --format to filter answers."
                )
            if path.suffix.lower() not in ("", ".zip"):
                raise ValidationError(
                    f"An archive is a .zip file or a folder, got {str(path)!r}. To write training "
                    f"files, use --format."
                )
            archived = client.export(path, session_ids, progress)
            files, counts, unit = {"all": archived.path}, {"all": archived.messages}, "message"
            session_count, left_out = archived.sessions, {}
        else:
            keep = Filter(min_score=min_score, strict_trajectory=strict, by=by)
            options = ExportOptions(format=format, keep=keep, split=_parse_split(split))
            written = client.export_training(path, options, session_ids, progress)
            files, counts, unit = written.files, written.rows, "row"
            session_count, left_out = written.sessions, dict(written.left_out)
    listed = {name: {"path": files[name], f"{unit}s": counts[name]} for name in files}
    more = {} if format == ARCHIVE else {"left_out": left_out}
    lines = (
        f"{file}  {pluralize(counts[name], unit)} of {pluralize(session_count, 'session')}"
        for name, file in files.items()
    )
    emit(as_json, {"sessions": session_count, "files": listed, **more}, lines)
    if format == ARCHIVE and not as_json:
        note(
            "Memories are not in an archive: sennit backup FILE copies everything, and sennit fs "
            "export FOLDER viking://user/memories exports the memories alone."
        )
    for reason, count in left_out.items():
        if not as_json:
            note(f"skipped: {count} ({reason})")


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
        "skipped": result.skipped,
        "problems": list(result.problems),
    }
    new = f"{result.new_sessions} new, {pluralize(result.new_messages, 'new message')}"
    emit(as_json, value, [f"{pluralize(result.sessions, 'session')}: {new}"])
    for problem in result.problems:
        note(f"skipped: {problem}")
    if result.skipped:
        note(f"{pluralize(result.skipped, 'conversation')} could not be read.")
        raise typer.Exit(1)


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

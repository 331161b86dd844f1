"""`sennit rm`, `backup` and `purge`: delete sessions, copy the store, erase removed messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sennit.cli.targets import (
    JsonOption,
    StoreOption,
    find_session,
    open_store,
    session_names,
)
from sennit.cli.text import emit, note, one_line, pluralize, working
from sennit.errors import NotFoundError

if TYPE_CHECKING:
    from sennit.api.session import Session


def rm(
    sessions: Annotated[
        list[str],
        typer.Argument(metavar="SESSION", help="Sessions to delete.", autocompletion=session_names),
    ],
    memories: Annotated[
        bool, typer.Option("--memories", help="Also erase the memories extracted from them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Permanently delete sessions with all their branches; memories stay unless --memories."""
    with open_store(store) as client:
        found: dict[str, Session] = {}
        missing: list[str] = []
        for name in dict.fromkeys(sessions):
            try:
                found[name] = find_session(client, name, by_title=False)
            except NotFoundError as error:
                missing.append(str(error))
        if not found:
            raise NotFoundError(" ".join(missing))
        for problem in missing:  # an earlier call that was interrupted may have deleted it
            note(problem)
        if not yes:
            for name, session in found.items():
                messages = pluralize(len(session.messages), "message")
                title = one_line(session.title or "empty")
                typer.echo(f"{one_line(name)} ({messages}): {title}", err=True)
            question = f"Delete {pluralize(len(found), 'session')}? This cannot be undone."
            typer.confirm(question, abort=True, err=True)
        with working("Deleting…"):
            for name, session in found.items():
                uid = session.id
                if memories:
                    client.forget(session=uid)
                elif not client.delete_session(uid):
                    raise NotFoundError(f"Session {name!r} was deleted by another process.")
    deleted = list(found)
    kept = "" if memories else "; memories extracted before are kept"
    emit(as_json, {"deleted": deleted}, [f"Deleted {pluralize(len(deleted), 'session')}{kept}."])
    if missing:
        raise typer.Exit(1)


def backup(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A new SQLite file.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the whole store to a new SQLite file: sessions, memories and files of all users.

    Programs may use the store in the meantime. Open the copy with --store FILE.
    """
    with open_store(store) as client, working("Copying the store…"):
        client.backup(path)
    size = path.expanduser().stat().st_size
    emit(as_json, {"path": path, "bytes": size}, [f"{path} ({size / 1e6:,.1f} MB)"])


def purge(
    days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=36_500,
            metavar="DAYS",
            help="Erase messages removed at least this many days ago "
            "(default: SENNIT_RETENTION_DAYS, or 30).",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase messages that were removed from their last branch long enough ago."""
    with open_store(store) as client, working("Erasing…"):
        # One microsecond more, so that 0 days includes messages removed just now.
        moment = datetime.now(UTC) + timedelta(microseconds=1)
        erased = client.purge(None if days is None else moment - timedelta(days=days))
    emit(as_json, {"erased": erased}, [f"Erased {pluralize(erased, 'message')}."])

"""`sennit commit` and `sennit memory`: commit sessions; list, inspect, undo and forget memories.

Nothing is shown as known without the words it came from. The chat shows the same in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from sennit.api.local_models import check_model
from sennit.cli.sessions import BranchOption, SessionArgument, print_json
from sennit.cli.targets import (
    AtOption,
    JsonOption,
    StoreOption,
    branch_named,
    existing,
    latest_branch,
    session_named,
    utc,
)
from sennit.cli.text import clean, counted, nearest, one_line
from sennit.errors import NotFoundError, ValidationError
from sennit.services.models.imodel import iModel

if TYPE_CHECKING:
    from sennit.api.client import Client
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.history.evidence import QuotedMessage
    from sennit.memory.history.forget import ForgetResult
    from sennit.memory.history.history import EvidenceSource, MemoryRecord
    from sennit.memory.memory import Memory

app = typer.Typer(
    no_args_is_help=True, help="List, inspect, revert and erase memories.", rich_markup_mode=None
)

_WIDTH = 100
UriArgument = Annotated[
    str, typer.Argument(metavar="URI", help="A URI such as viking://user/memories/profile.md.")
]
CommitArgument = Annotated[
    str,
    typer.Argument(
        metavar="COMMIT", help="The id printed by sennit commit and sennit memory show."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="Model for extraction, such as openai:gpt-5 (default: built-in rules)."),
]


def commit(
    name: SessionArgument,
    branch: BranchOption = None,
    keep_recent: Annotated[
        int, typer.Option(min=0, help="Recent messages to keep in the prompt.")
    ] = 0,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Archive the new messages of a session and extract memories from them."""
    with existing(store) as client:
        session = session_named(client, name)
        where = latest_branch(session) if branch is None else branch_named(session, branch)
        _think_with(client, model)
        with _working():
            result = session.commit(branch=where, keep_recent=keep_recent)
        _tell(client, result, as_json)


@app.command("retry")
def retry(
    commit_id: CommitArgument,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry a commit that failed."""
    with existing(store) as client:
        _think_with(client, model)
        with _working():
            result = client.retry_task(commit_id)
        _tell(client, result, as_json)


@app.command("ls")
def ls(
    category: Annotated[
        str | None,
        typer.Option(help="profile, preferences, entities, events, cases or patterns."),
    ] = None,
    at: AtOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the memories with their evidence."""
    moment, wanted = utc(at), _category(category)
    with existing(store) as client:
        memory = client.memory
        found = memory.all(wanted) if moment is None else memory.at(moment, wanted)
        said = client.memory.evidence(found)
    if as_json:
        print_json([_plain(one, said) for one in found])
        return
    for one in found:
        _print(memory_lines(one, said))
    if not found and at is not None:
        typer.echo("No memory was valid at that time.", err=True)
    elif not found:
        typer.echo("No memories yet; sennit commit SESSION extracts them.", err=True)


@app.command("show")
def show(uri: UriArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one memory: its text, its period of validity and its evidence."""
    with existing(store) as client:
        found = _memory(client, uri)
        said = client.memory.evidence([found])
    if as_json:
        print_json(_plain(found, said))
        return
    typer.echo(clean(found.text.rstrip()))
    typer.echo("")
    _print(_about(found))
    _print(evidence_lines(found, said, indent=""))


@app.command("history")
def history(uri: UriArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show all versions of a memory, oldest first, each with its evidence."""
    with existing(store) as client:
        _memory(client, uri)
        versions = client.memory.history(uri)
        said = client.memory.evidence(versions)
    if as_json:
        print_json([_plain(one, said) for one in versions])
        return
    for one in versions:
        typer.echo(f"{one.version}. {one.learnt_at.astimezone():%Y-%m-%d %H:%M} {one.did}")
        _print(f"   {line}" for line in clean(one.text.rstrip()).splitlines())
        _print(evidence_lines(one, said, indent="   "))
        if one.commit_id is not None:
            typer.echo(f"   commit {one.commit_id}")


@app.command("undo")
def undo(
    commit_id: CommitArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revert what a commit wrote to memory; its archive stays."""
    with existing(store) as client:
        undone = asdict(client.undo_commit(commit_id))
    if as_json:
        print_json(undone)
        return
    _print(f"{did}: {clean(uri)}" for did, uris in undone.items() for uri in uris)
    if not any(undone.values()):
        typer.echo("There was nothing to revert.", err=True)


@app.command("forget")
def forget(
    uri: Annotated[
        str | None, typer.Argument(metavar="[URI]", help="A memory, a folder or a session.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="A session, and everything derived from it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Permanently erase a memory, a folder or a session, with everything derived from it."""
    what = uri or session
    if what is None or (uri is not None and session is not None):
        raise ValidationError("Pass either a URI or --session NAME.")
    with existing(store) as client:
        if session is None:
            client.fs.stat(what.partition("#")[0])  # what follows names a line of the profile
        if not yes:
            told = f"Erase {clean(what)} and everything derived from it? This cannot be undone."
            typer.confirm(told, abort=True, err=True)
        forgotten: ForgetResult = client.forget(uri=uri, session=session)
    if as_json:
        print_json(asdict(forgotten))
        return
    gone = counted(forgotten.sessions, "session"), counted(forgotten.files, "file")
    typer.echo(f"Forgotten: {' and '.join(gone)}.")


def commit_lines(memory: Memory, result: CommitResult) -> Iterator[str]:
    """Yield the outcome of a commit, and each memory it wrote with its evidence."""
    if not result["archived"]:
        yield "Nothing to commit: there are no new messages."
        return
    numbers = ", ".join(f"{n} {did}" for did, n in result["counts"].items() if n)
    thought = f", by {result['method']}" if result["method"] else ""
    yield f"{result.status}: {numbers or 'no memories found'}{thought} ({result['archive']})"
    written = list(_written(memory, result))
    said = memory.evidence(written)
    for one in written:
        yield from memory_lines(one, said)
    yield from (f"warning: {clean(one)}" for one in result["warnings"])
    yield from (f"reason: {clean(one)}" for one in result.reasons)
    yield f"commit {result.task_id}"
    if result.status == "failed":
        yield f"The messages are archived. To retry: sennit memory retry {result.task_id}"


def _written(memory: Memory, result: CommitResult) -> Iterator[MemoryRecord]:
    """The memories that still say what a commit has written, by their addresses."""
    decided = memory.committed(result.task_id or "").decisions
    for uri in sorted({one["uri"].partition("#")[0] for one in decided}):
        with suppress(NotFoundError):  # it was forgotten meanwhile
            one = memory.get(uri)
            if str(one.commit_id) == result.task_id:
                yield one


def memory_lines(one: MemoryRecord, said: Mapping[EvidenceSource, QuotedMessage]) -> Iterator[str]:
    """A memory in a few lines: what it says, where it is, and what was said."""
    body = [line for line in clean(one.text).splitlines() if line.strip() and line[0] != "#"]
    ended = f" (until {one.valid_to.astimezone():%Y-%m-%d})" if one.valid_to else ""
    yield f"{one.category}{ended}  {clean(one.uri)}"
    yield from (f"  {one_line(line, _WIDTH)}" for line in body)
    yield from evidence_lines(one, said, indent="    ")


def evidence_lines(
    one: MemoryRecord, said: Mapping[EvidenceSource, QuotedMessage], *, indent: str
) -> Iterator[str]:
    """Yield who said what, when and in which session; a memory without evidence names its
    origin.
    """
    for source in one.evidence:
        if (words := said.get(source)) is None:
            yield f"{indent}← said in a session that was deleted or is not yours"
            continue
        when = f"{words.said_at.astimezone():%Y-%m-%d %H:%M}"
        told = one_line(words.text, _WIDTH)
        yield f"{indent}← {words.role}, {when}, in {clean(words.session)}: “{told}”"
    if not one.evidence:
        yield f"{indent}← {one.did or 'written'} by hand"


def _about(one: MemoryRecord) -> Iterator[str]:
    until = f" until {one.valid_to.astimezone():%Y-%m-%d}" if one.valid_to else ""
    yield f"{one.category or 'file'}, valid since {one.valid_from.astimezone():%Y-%m-%d}{until}"
    used = counted(one.active_count, "time")
    yield f"version {one.version}, {one.did}; used {used}"
    if one.commit_id is not None:
        yield f"commit {one.commit_id}"


def _plain(one: MemoryRecord, said: Mapping[EvidenceSource, QuotedMessage]) -> dict[str, Any]:
    """A memory for programs, each piece of evidence with its words if they are still kept."""
    evidence = [
        words.to_dict() if (words := said.get(source)) else {"message": str(source.message)}
        for source in one.evidence
    ]
    return {**one.to_dict(), "evidence": evidence}


def _category(given: str | None) -> str | None:
    from sennit.memory.extraction.values import Category

    known = [one.value for one in Category]
    if given is None or given in known:
        return given
    raise ValidationError(
        f"Unknown category {given!r}.{nearest(given, known)} Expected one of {known}."
    )


def _memory(client: Client, uri: str) -> MemoryRecord:
    """Return the memory at a URI; raises NotFoundError with the nearest one."""
    try:
        return client.memory.get(uri)
    except NotFoundError as error:
        known = [one.uri for one in client.memory.all()]
        told = f"{error}{nearest(uri, known)} sennit memory ls lists the memories."
        raise NotFoundError(told) from None


def _think_with(client: Client, model: str | None) -> None:
    if model is not None:
        client.memory.use(model=iModel(model))
        check_model(model)


def _working() -> Status:
    """Something that moves while a commit is thought about, on a terminal."""
    return Console(stderr=True).status("Extracting memories…")


def _tell(client: Client, result: CommitResult, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        _print(commit_lines(client.memory, result))
    if result.status == "failed":
        raise typer.Exit(1)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)

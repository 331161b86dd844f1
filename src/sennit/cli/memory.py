"""`sennit commit` and `sennit memory`: commit sessions; list, inspect, undo and forget memories.

Every memory is printed with its evidence. The chat prints memories in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sennit.api.local_models import check_model
from sennit.cli.help import CommandGroup
from sennit.cli.targets import (
    AtOption,
    BranchOption,
    JsonOption,
    SessionArgument,
    StoreOption,
    find_branch,
    find_session,
    latest_branch,
    open_store,
    to_utc,
)
from sennit.cli.text import clean, emit, one_line, pluralize, working
from sennit.errors import NotFoundError, ValidationError, did_you_mean, listed
from sennit.services.models.imodel import iModel

if TYPE_CHECKING:
    from sennit.api.client import Client
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.history.evidence import QuotedMessage
    from sennit.memory.history.forget import ForgetResult
    from sennit.memory.history.history import EvidenceSource, MemoryRecord
    from sennit.memory.memory import Memory

app = CommandGroup(help="List, inspect, revert and erase memories.")

_LINE_WIDTH = 100
_NOTHING_PINNED = (
    "There are memories, but none is pinned. Pinned are preferences about answers, such as "
    "“Answer in French.”, and the files in viking://user/pinned."
)
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
    typer.Option(
        metavar="MODEL",
        help="Model for extraction, such as openai:gpt-5 (default: built-in rules).",
    ),
]


def commit(
    name: SessionArgument,
    branch: BranchOption = None,
    keep_recent: Annotated[
        int, typer.Option(min=0, metavar="N", help="Recent messages to keep in the prompt.")
    ] = 0,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Archive the new messages of a session and extract memories from them."""
    with open_store(store) as client:
        session = find_session(client, name)
        target_branch = latest_branch(session) if branch is None else find_branch(session, branch)
        _use_model(client, model)
        with working("Extracting memories…"):
            result = session.commit(branch=target_branch, keep_recent=keep_recent)
        _print_result(client, result, as_json)


@app.command("retry")
def retry(
    commit_id: CommitArgument,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry a commit that failed."""
    with open_store(store) as client:
        _use_model(client, model)
        with working("Extracting memories…"):
            result = client.retry_task(commit_id)
        _print_result(client, result, as_json)


@app.command("ls")
def ls(
    category: Annotated[
        str | None,
        typer.Option(
            metavar="CATEGORY",
            help="profile, preferences, entities, events, cases or patterns.",
        ),
    ] = None,
    at: AtOption = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="List what is in every prompt, beside the profile.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the memories with their evidence."""
    moment, wanted = to_utc(at), _check_category(category)
    if pinned and (moment is not None or wanted is not None):
        raise typer.BadParameter("--pinned takes no category and no time.")
    with open_store(store) as client:
        memory = client.memory
        if pinned:
            records = memory.pinned()
        else:
            records = memory.all(wanted) if moment is None else memory.at(moment, wanted)
        evidence = client.memory.evidence(records)
        empty = "No memories yet; sennit commit SESSION extracts them."
        if moment is not None:
            empty = "No memory was valid at that time."
        elif not records and memory.all():
            empty = _NOTHING_PINNED if pinned else f"There are memories, but none in {wanted}."
    emit(
        as_json,
        [_to_dict(record, evidence) for record in records],
        (line for record in records for line in memory_lines(record, evidence)),
        empty,
    )


@app.command("show")
def show(uri: UriArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one memory: its text, its period of validity and its evidence."""
    with open_store(store) as client:
        record = _find_memory(client, uri)
        evidence = client.memory.evidence([record])
    details = [*_detail_lines(record), *evidence_lines(record, evidence, indent="")]
    emit(as_json, _to_dict(record, evidence), [record.text.rstrip(), "", *details])


@app.command("history")
def history(uri: UriArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show all versions of a memory, oldest first, each with its evidence."""
    with open_store(store) as client:
        _find_memory(client, uri)
        versions = client.memory.history(uri)
        evidence = client.memory.evidence(versions)
    lines = (line for record in versions for line in _version_lines(record, evidence))
    emit(as_json, [_to_dict(record, evidence) for record in versions], lines)


@app.command("undo")
def undo(
    commit_id: CommitArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revert what a commit wrote to memory; its archive stays."""
    with open_store(store) as client:
        undone = asdict(client.undo_commit(commit_id))
    lines = (f"{did}: {uri}" for did, uris in undone.items() for uri in uris)
    emit(as_json, undone, lines, "There was nothing to revert.")


@app.command("forget")
def forget(
    uri: Annotated[
        str | None, typer.Argument(metavar="URI", help="A memory, a folder or a session.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="A session, and everything derived from it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Permanently erase a memory, a folder or a session, with everything derived from it."""
    target = uri or session
    if target is None or (uri is not None and session is not None):
        raise ValidationError("Pass either a URI or --session NAME.")
    with open_store(store) as client:
        if session is None:
            client.fs.stat(target.partition("#")[0])  # the fragment names a line of the profile
        if not yes:
            question = (
                f"Erase {clean(target)} and everything derived from it? This cannot be undone."
            )
            typer.confirm(question, abort=True, err=True)
        with working("Erasing…"):
            forgotten: ForgetResult = client.forget(uri=uri, session=session)
    counts = pluralize(forgotten.sessions, "session"), pluralize(forgotten.files, "file")
    emit(as_json, asdict(forgotten), [f"Forgotten: {' and '.join(counts)}."])


def commit_lines(memory: Memory, result: CommitResult) -> Iterator[str]:
    """Yield the outcome of a commit, and each memory it wrote with its evidence."""
    if not result["archived"]:
        yield "Nothing to commit: there are no new messages."
        return
    counts = ", ".join(f"{n} {did}" for did, n in result["counts"].items() if n)
    method = f", by {result['method']}" if result["method"] else ""
    yield f"{result.status}: {counts or 'no memories found'}{method} ({result['archive']})"
    written = list(_written_memories(memory, result))
    evidence = memory.evidence(written)
    for record in written:
        yield from memory_lines(record, evidence)
    yield from (f"warning: {clean(warning)}" for warning in result["warnings"])
    yield from (f"reason: {clean(reason)}" for reason in result.reasons)
    yield f"commit {result.task_id}"
    if result.status == "failed":
        yield f"The messages are archived. To retry: sennit memory retry {result.task_id}"


def _written_memories(memory: Memory, result: CommitResult) -> Iterator[MemoryRecord]:
    """Yield the memories whose current version a commit has written, sorted by URI."""
    decisions = memory.committed(result.task_id or "").decisions
    for uri in sorted({decision["uri"].partition("#")[0] for decision in decisions}):
        with suppress(NotFoundError):  # forgotten in the meantime
            record = memory.get(uri)
            if str(record.commit_id) == result.task_id:
                yield record


def memory_lines(
    record: MemoryRecord, evidence: Mapping[EvidenceSource, QuotedMessage]
) -> Iterator[str]:
    """Yield the lines that print a memory: category and URI, text, evidence."""
    body = [line for line in clean(record.text).splitlines() if line.strip() and line[0] != "#"]
    ended = f" (until {record.valid_to.astimezone():%Y-%m-%d})" if record.valid_to else ""
    yield f"{record.category}{ended}  {clean(record.uri)}"
    yield from (f"  {one_line(line, _LINE_WIDTH)}" for line in body)
    yield from evidence_lines(record, evidence, indent="    ")


def evidence_lines(
    record: MemoryRecord, evidence: Mapping[EvidenceSource, QuotedMessage], *, indent: str
) -> Iterator[str]:
    """Yield one line per quoted message; a memory without evidence was written by hand."""
    for source in record.evidence:
        if (message := evidence.get(source)) is None:
            yield f"{indent}← said in a session that was deleted or is not yours"
            continue
        when = f"{message.said_at.astimezone():%Y-%m-%d %H:%M}"
        quote = one_line(message.text, _LINE_WIDTH)
        yield f"{indent}← {message.role}, {when}, in {clean(message.session)}: “{quote}”"
    if not record.evidence:
        yield f"{indent}← {record.did or 'written'} by hand"


def _version_lines(
    record: MemoryRecord, evidence: Mapping[EvidenceSource, QuotedMessage]
) -> Iterator[str]:
    yield f"{record.version}. {record.learnt_at.astimezone():%Y-%m-%d %H:%M} {record.did}"
    yield from (f"   {line}" for line in record.text.rstrip().splitlines())
    yield from evidence_lines(record, evidence, indent="   ")
    if record.commit_id is not None:
        yield f"   commit {record.commit_id}"


def _detail_lines(record: MemoryRecord) -> Iterator[str]:
    until = f" until {record.valid_to.astimezone():%Y-%m-%d}" if record.valid_to else ""
    since = f"{record.valid_from.astimezone():%Y-%m-%d}"
    yield f"{record.category or 'file'}, valid since {since}{until}"
    used = pluralize(record.active_count, "time")
    yield f"version {record.version}, {record.did}; used {used}"
    if record.commit_id is not None:
        yield f"commit {record.commit_id}"


def _to_dict(
    record: MemoryRecord, evidence: Mapping[EvidenceSource, QuotedMessage]
) -> dict[str, Any]:
    """Return a memory for JSON; evidence includes its text if the message still exists."""
    quotes = [
        message.to_dict() if (message := evidence.get(source)) else {"message": str(source.message)}
        for source in record.evidence
    ]
    return {**record.to_dict(), "evidence": quotes}


def _check_category(category: str | None) -> str | None:
    from sennit.memory.extraction.values import Category

    categories = [member.value for member in Category]
    if category is None or category in categories:
        return category
    raise ValidationError(
        f"Unknown category {category!r}.{did_you_mean(category, categories)} "
        f"The categories are {listed(categories)}."
    )


def _find_memory(client: Client, uri: str) -> MemoryRecord:
    """Return the memory at a URI; raise NotFoundError with the closest URI."""
    try:
        return client.memory.get(uri)
    except NotFoundError as error:
        uris = [record.uri for record in client.memory.all()]
        message = f"{error}{did_you_mean(uri, uris)} sennit memory ls lists the memories."
        raise NotFoundError(message) from None


def _use_model(client: Client, model: str | None) -> None:
    if model is not None:
        client.memory.use(model=iModel(model))
        check_model(model)


def _print_result(client: Client, result: CommitResult, as_json: bool) -> None:
    emit(as_json, result, commit_lines(client.memory, result))
    if result.status == "failed":
        raise typer.Exit(1)

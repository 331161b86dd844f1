"""Changes that a provider's prompt cache cannot follow, as events with what they cost.

Each prompt of a branch begins with the one before, unless the system message, the tools or earlier
messages change: by an edit, a commit, a summary, or because something was forgotten. What a cache
held of the earlier prompt from there on is lost. A run compares its prompts with the last one of
the branch: in this process message by message, else by the marks in the record of the last run,
between which a change may seem up to half a prompt larger than it is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sennit.messages.codec import dumps
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import tokens_of_chars, tool_char_count
from sennit.sessions.unarchived import archives_of
from sennit.turns.context import REPLACED_KEY
from sennit.turns.events import ChangeReason, PromptChanged
from sennit.turns.prompt_history import prompt_messages

if TYPE_CHECKING:
    from sennit.turns.run import Run

_DIGEST_BYTES = 6


class Mark(NamedTuple):
    """The first messages of a prompt: how many, with how many characters, and their digest."""

    messages: int
    chars: int
    digest: str


_NOTHING = Mark(0, 0, "")


class PromptNote(NamedTuple):
    """The note of its last prompt in the record of a run."""

    run: str
    model: str
    tools: str
    """The digest of the tools."""
    tool_chars: int
    commits: int
    """The number of the last commit."""
    version: int
    """The version of the branch in the store, which changes when its history does."""
    has_system: bool
    marks: list[Mark]
    """A few marks; the last one is that of all messages."""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The prompt that was last sent for a branch."""

    note: PromptNote
    messages: list[Mapping[str, Any]]
    marks: list[Mark]
    """The mark after each message."""
    tools: Any
    revision: int
    """The revision of the branch in this process, which changes when its history does."""


def note_prompt(run: Run, request: ModelRequest) -> None:
    """Compare a prompt with the last one of its branch, and emit what has changed."""
    known, stored = _known_prompt(run), run.stored_prompt
    sent, same = _sent(run, request, known)
    run.runs.sent_prompt = run.sent_prompt = sent
    if known is not None:
        _note_changes(run, known.note, sent, same, edited=known.revision != sent.revision)
    elif stored is not None:
        before = PromptNote(*stored)
        marks = [Mark(*mark) for mark in before.marks]
        shared = [mark for mark in marks if mark in sent.marks[mark.messages - 1 : mark.messages]]
        edited = before.version != sent.note.version
        before = before._replace(marks=marks)
        _note_changes(run, before, sent, shared[-1] if shared else _NOTHING, edited=edited)
    elif run.is_first:
        _note_edit(run)


def _known_prompt(run: Run) -> SentPrompt | None:
    """Return the last prompt, unless another process has sent a later one."""
    known: SentPrompt | None = run.runs.sent_prompt
    last = None if run.stored_prompt is None else run.stored_prompt[0]
    return known if known is not None and known.note.run in (str(run.id), last) else None


def _sent(run: Run, request: ModelRequest, known: SentPrompt | None) -> tuple[SentPrompt, Mark]:
    """Return a prompt, and the mark after the messages that it shares with the last one."""
    messages = list(request.messages)
    if run.output is not None and run.output.has_form:  # it is never sent again
        messages.pop()
    same = 0 if known is None else _common(known.messages, messages)
    marks = [] if known is None else known.marks[:same]
    shared = marks[-1] if marks else _NOTHING
    for message in messages[same:]:
        last, body = marks[-1] if marks else _NOTHING, dumps(message)
        digest = _digest(last.digest.encode() + body)
        marks.append(Mark(len(marks) + 1, last.chars + len(body), digest))
    if known is not None and known.tools == request.tools:
        tools = known.note.tools, known.note.tool_chars
    else:
        schemas = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
        tools = _digest(dumps(schemas)), tool_char_count(request.tools)
    branch, count = run.request.branch, len(marks)
    note = PromptNote(
        str(run.id),
        run.request.model_name,
        *tools,
        archives_of(branch.session).number,
        run.runs.version,
        bool(messages) and messages[0].get("role") == "system",
        [marks[end - 1] for end in sorted({1, count // 4, count // 2, count} - {0})],
    )
    return SentPrompt(note, messages, marks, request.tools, branch.revision), shared


def _common(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Return the number of first messages that two prompts share."""
    if new[: len(old)] == old:
        return len(old)
    return next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )


def _digest(body: bytes) -> str:
    return b64encode(blake2b(body, digest_size=_DIGEST_BYTES).digest()).decode()


def _note_changes(
    run: Run, before: PromptNote, sent: SentPrompt, same: Mark, *, edited: bool
) -> None:
    """Emit the changes since a prompt of the same model, of which the messages to `same` stand."""
    end = before.marks[-1] if before.marks else _NOTHING
    if before.model != sent.note.model:
        return
    if before.tools != sent.note.tools:
        _emit(run, "tools", end.chars + before.tool_chars)
    if same.messages < end.messages:
        reason = _reason(run, before, sent, same.messages, edited=edited)
        _emit(run, reason, end.chars - same.chars)


def _reason(
    run: Run, before: PromptNote, sent: SentPrompt, at: int, *, edited: bool
) -> ChangeReason:
    """Return the reason for a change that begins at the index of a message."""
    if at == 0 and (before.has_system or sent.note.has_system):
        return "system"
    if before.commits != sent.note.commits:
        return "commit"
    messages, last = prompt_messages(run.request.branch), UUID(before.run)
    if any(REPLACED_KEY in message.metadata and message.id > last for message in messages):
        return "summary"
    if edited:
        return "edit"
    return "forgotten" if run.request.contexts else "other"


def _note_edit(run: Run) -> None:
    """Emit an edit for the first prompt of a fork that edits or regenerates a message."""
    branch = run.request.branch
    origin = branch.forked_from
    source = None if origin is None else branch.session.get_branch(origin.branch_id, None)
    if origin is None or source is None:
        return
    if not any("edited_from" in m.metadata for m in prompt_messages(branch)):
        return
    with branch.session.lock:
        replaced = branch.session.messages.pick(source[origin.message_count :])
    chars = sum(len(message.content.rendered_text) for message in replaced)
    _emit(run, "edit", chars)


def _emit(run: Run, reason: ChangeReason, chars: int) -> None:
    run.emit(PromptChanged, reason=reason, tokens=tokens_of_chars(chars))

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


@dataclass(slots=True)
class SentPrompt:
    """The prompt that was last sent for a branch."""

    run: UUID
    model: str
    messages: list[Mapping[str, Any]]
    marks: list[Mark]
    """The mark after each message."""
    tools: Any
    tools_digest: str
    tool_chars: int
    commits: int
    """The number of the last commit."""
    version: int
    """The version of the branch in the store, which changes when its messages do."""
    revision: int
    """The same in this process."""

    def note(self) -> dict[str, Any]:
        """Return what the record of a run keeps of it."""
        count = len(self.marks)
        ends = sorted({1, count // 4, count // 2, count} - {0})
        return {
            "run": str(self.run),
            "model": self.model,
            "tools": [self.tools_digest, self.tool_chars],
            "commits": self.commits,
            "version": self.version,
            "system": bool(self.messages) and self.messages[0].get("role") == "system",
            "marks": [self.marks[end - 1] for end in ends],
        }


def note_prompt(run: Run, request: ModelRequest) -> None:
    """Compare a prompt with the last one of its branch, and emit what has changed."""
    known = _known_prompt(run)
    sent = _sent(run, request, known)
    run.runs.sent_prompt = run.sent_prompt = sent
    if known is not None:
        before = {**known.note(), "marks": known.marks, "revised": known.revision != sent.revision}
    elif (stored := run.stored_prompt) is not None:
        before = {**stored, "revised": stored["version"] != sent.version}
    else:
        before = None
    if before is not None and before["model"] == sent.model:
        _note_changes(run, before, sent)
    elif before is None and run.is_first:
        _note_edit(run)


def _known_prompt(run: Run) -> SentPrompt | None:
    """Return the last prompt, unless another process has sent a later one."""
    known: SentPrompt | None = run.runs.sent_prompt
    last = None if run.stored_prompt is None else run.stored_prompt["run"]
    return known if known is not None and (known.run == run.id or str(known.run) == last) else None


def _sent(run: Run, request: ModelRequest, known: SentPrompt | None) -> SentPrompt:
    branch = run.request.branch
    messages = list(request.messages)
    if run.output is not None and run.output.has_form:  # it is never sent again
        messages.pop()
    same = 0 if known is None else _common(known.messages, messages)
    marks = [] if known is None else known.marks[:same]
    chars, digest = (marks[-1].chars, marks[-1].digest) if marks else (0, "")
    for message in messages[same:]:
        body = dumps(message)
        chars, digest = chars + len(body), _digest(digest.encode() + body)
        marks.append(Mark(len(marks) + 1, chars, digest))
    if known is not None and known.tools == request.tools:
        tools_digest, tool_chars = known.tools_digest, known.tool_chars
    else:
        tools_digest = _digest(
            dumps([(t.name, t.description, t.parameters) for t in request.tools])
        )
        tool_chars = tool_char_count(request.tools)
    return SentPrompt(
        run.id,
        run.request.model_name,
        messages,
        marks,
        request.tools,
        tools_digest,
        tool_chars,
        archives_of(branch.session).number,
        run.runs.version,
        branch.revision,
    )


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


def _note_changes(run: Run, before: Mapping[str, Any], sent: SentPrompt) -> None:
    """Emit the changes since a prompt."""
    marks = [Mark(*mark) for mark in before["marks"]]
    tools_digest, tool_chars = before["tools"]
    total = marks[-1].chars if marks else 0
    if tools_digest != sent.tools_digest:
        _emit(run, "tools", total + tool_chars)
    count = len(sent.marks)
    same = max(
        (
            mark
            for mark in marks
            if mark.messages <= count and sent.marks[mark.messages - 1] == mark
        ),
        default=Mark(0, 0, ""),
    )
    if marks and same.messages < marks[-1].messages:
        _emit(run, _reason(run, before, sent, same.messages), total - same.chars)


def _reason(run: Run, before: Mapping[str, Any], sent: SentPrompt, at: int) -> ChangeReason:
    """Return the reason for a change that begins at the index of a message."""
    has_system = bool(sent.messages) and sent.messages[0].get("role") == "system"
    if at == 0 and (before["system"] or has_system):
        return "system"
    if before["commits"] != sent.commits:
        return "commit"
    messages, last = prompt_messages(run.request.branch), UUID(before["run"])
    if any(REPLACED_KEY in message.metadata and message.id > last for message in messages):
        return "summary"
    if before["revised"]:
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

"""Sessions as folders: read-only views of the store.

    viking://session/{session}/messages.jsonl, .abstract.md, .overview.md      current
    …/history/archive_NNN/messages.jsonl, .abstract.md, .overview.md           archived
    …/history/archive_NNN/memory_diff.json, .done                              result of the commit
    …/branches/{branch}/messages.jsonl         current on each branch, if there are several
    …/tools/{tool_id}/tool.json                                                tool calls

Current messages are the unarchived ones of the default branch; archives and tools are those of all
branches. A message on no branch and in no archive is in no file.

`messages.jsonl` has one line per message group. A group that was added by role and parts comes back
exactly. A message that was added by itself, or whose group is incomplete, gets a line of its own; a
tool call and its result share one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError, ValidationError
from sennit.memory.commit.archive import current_messages, group_id
from sennit.memory.commit.result import result_of
from sennit.memory.extraction import summarize
from sennit.memory.extraction.utterances import read
from sennit.memory.extraction.values import Summary
from sennit.memory.files import entry
from sennit.memory.files.entry import FileEntry, not_a_file, nothing_at
from sennit.memory.scope import MemoryScope, plain_uri
from sennit.memory.uri import Uri, archive_name, branch_folder, is_name, session_name
from sennit.messages.codec import dumps, loads
from sennit.messages.content import ActionRequestContent, ActionResponseContent, MessageRole
from sennit.messages.message import Message
from sennit.messages.parts import MessageGroup, Part, ToolPart, part_to_dict
from sennit.sessions.branch import Branch
from sennit.sessions.session import DEFAULT_BRANCH, SessionCore
from sennit.stores.records.commits import CommitRecord, CommitsRecord

ReadText: TypeAlias = Callable[[], str]

_PAGE = 500


class _Folder(dict[str, "_Folder | ReadText"]):
    """The entries of a folder, by name."""


@dataclass(frozen=True)
class SessionTree:
    """The sessions of a scope, as folders."""

    scope: MemoryScope
    open_session: Callable[[UUID], SessionCore]

    def entry(self, uri: Uri) -> FileEntry:
        """Return the entry at a path; raises NotFoundError."""
        if not uri.names:
            return entry.folder(uri)
        return _entry(uri, self._node(uri))

    def children(self, uri: Uri) -> list[FileEntry]:
        """List a folder; raises NotFoundError."""
        if not uri.names:
            return [entry.folder(uri / name) for name in self._names()]
        folder = self._node(uri)
        if not isinstance(folder, _Folder):
            return []
        return [_entry(uri / name, node) for name, node in folder.items()]

    def walk(self, uri: Uri) -> Iterator[tuple[FileEntry, ReadText]]:
        """Yield all entries below a folder of a session, or a file, each with its reader."""
        pending = [(uri, self._node(uri))]
        while pending:
            node_uri, node = pending.pop()
            if node_uri != uri or not isinstance(node, _Folder):
                yield _entry(node_uri, node), partial(_text, node_uri, node)
            if isinstance(node, _Folder):
                pending += [(node_uri / name, node[name]) for name in reversed(node)]

    def text(self, uri: Uri) -> str:
        """Return the text of a file; raises NotFoundError."""
        return _text(uri, self._node(uri) if uri.names else _Folder())

    def _names(self) -> list[str]:
        before: tuple[int, UUID] | None = None
        names: list[str] = []
        while page := self.scope.store.list_sessions(
            self.scope.user, contains=None, before=before, limit=_PAGE
        ):
            names += [session_name(record.key, record.id) for record in page]
            before = (page[-1].updated, page[-1].id)
        return sorted(names)

    def _node(self, uri: Uri) -> _Folder | ReadText:
        node: _Folder | ReadText = self._session(uri).tree()
        for name in uri.names[1:]:
            if not isinstance(node, _Folder) or name not in node:
                raise nothing_at(uri)
            node = node[name]
        return node

    def _session(self, uri: Uri) -> _Session:
        uid = self.scope.session_id(uri.names[0])
        try:
            session = self.open_session(uid)
            return _Session(session, self.scope.store.commits(self.scope.user, uid))
        except NotFoundError:
            raise nothing_at(uri) from None


def _entry(uri: Uri, node: _Folder | ReadText) -> FileEntry:
    return entry.folder(uri) if isinstance(node, _Folder) else entry.view(uri, node())


def _text(uri: Uri, node: _Folder | ReadText) -> str:
    if isinstance(node, _Folder):
        raise not_a_file(uri)
    return node()


@dataclass(frozen=True)
class _Session:
    """One session as a folder."""

    session: SessionCore
    record: CommitsRecord

    def tree(self) -> _Folder:
        archives = {
            archive_name(commit.number): self._archive(commit) for commit in self.record.commits
        }
        calls = tool_calls(self._attached())
        tools = {name: _Folder({"tool.json": partial(_json, tool)}) for name, tool in calls.items()}
        folder = _Folder(
            {
                "messages.jsonl": lambda: to_lines(self._current),
                ".abstract.md": self._abstract,
                ".overview.md": self._overview,
                "history": _Folder(archives),
                "tools": _Folder(tools),
            }
        )
        if len(self.session.branches) > 1:
            folder["branches"] = _Folder(self._branches())
        return folder

    def _branches(self) -> dict[str, _Folder]:
        def current_lines(branch: Branch) -> str:
            return to_lines(current_messages(self.session, branch))

        return {
            branch_folder(branch.name): _Folder({"messages.jsonl": partial(current_lines, branch)})
            for branch in list(self.session.branches)
        }

    def _attached(self) -> list[Message]:
        """Return the messages on branches and in archives, in the order of the session."""
        attached = {uid for commit in self.record.commits for uid in commit.entries}
        with self.session.lock:
            for branch in self.session.branches:
                attached.update(branch)
        return [message for message in self.session.messages if message.id in attached]

    @cached_property
    def _current(self) -> list[Message]:
        branches = list(self.session.branches)
        branch = self.session.get_branch(DEFAULT_BRANCH, branches[0] if branches else None)
        return [] if branch is None else current_messages(self.session, branch)

    def _abstract(self) -> str:
        return self._archived_text("abstract") or self._by_rules(summarize.abstract)

    def _overview(self) -> str:
        return self._archived_text("overview") or self._by_rules(summarize.markdown)

    def _archived_text(self, name: str) -> str:
        """Return the text of the last archive if there are no messages since."""
        return (
            ""
            if self._current or not self.record.commits
            else _commit_text(self.record.commits[-1], name)
        )

    def _by_rules(self, render: Callable[[Summary], str]) -> str:
        return render(self._summary) if self._current else ""

    @cached_property
    def _summary(self) -> Summary:
        """The rule-based summary of the current messages, cached because it is slow."""
        return summarize.summary_by_rules(read(self._current))

    def _archive(self, commit: CommitRecord) -> _Folder:
        files = _Folder({"messages.jsonl": lambda: to_lines(self._messages(commit))})
        if commit.state not in ("open", "failed"):
            files[".abstract.md"] = partial(_commit_text, commit, "abstract")
            files[".overview.md"] = partial(_commit_text, commit, "overview")
            files["memory_diff.json"] = partial(_diff, commit)
            files[".done"] = lambda: _json(result_of(commit))
        return files

    def _messages(self, commit: CommitRecord) -> list[Message]:
        return [
            message
            for uid in commit.entries
            if (message := self.session.messages.get(uid, None)) is not None
        ]


def _commit_text(commit: CommitRecord, name: str) -> str:
    body: dict[str, Any] = loads(commit.body)
    return body.get(name, "")


def _diff(commit: CommitRecord) -> str:
    body: dict[str, Any] = loads(commit.body)
    return _json(
        {
            "commit": str(commit.id),
            "archive": archive_name(commit.number),
            "status": commit.state,
            "memories": body.get("diff", []),
            "used": {plain_uri(name): times for name, times in body.get("used", {}).items()},
            "skills": body.get("skills", []),
        }
    )


def _json(value: Any) -> str:
    return dumps(value).decode() + "\n"


_ROLES = {MessageRole.USER: "user", MessageRole.SYSTEM: "system"}


def to_lines(messages: Iterable[Message]) -> str:
    """Return the lines of these messages, in order; each ends with a newline."""
    ordered = list(messages)
    results = _ToolResults(ordered)
    return "".join(
        line + "\n"
        for _, group in groupby(ordered, key=_group)
        for line in _lines(list(group), results)
    )


class _ToolResults:
    """Matches tool results to their calls."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._results = {
            str(message.content.request_id): message.content
            for message in messages
            if isinstance(message.content, ActionResponseContent)
        }
        self._calls = {
            name
            for message in messages
            if isinstance(message.content, ActionRequestContent)
            for name in (str(message.id), message.content.call_id)
        }

    def is_shown_with_its_call(self, message: Message) -> bool:
        """Return whether this is a tool result whose call is among the messages."""
        content = message.content
        return isinstance(content, ActionResponseContent) and content.request_id in self._calls

    def parts(self, message: Message) -> list[Part]:
        """Return the parts of a message; a call comes with its result."""
        parts = message.parts
        if isinstance(message.content, ActionRequestContent) and isinstance(parts[0], ToolPart):
            result = self._results.get(parts[0].tool_id or "") or self._results.get(str(message.id))
            if result is not None:
                parts[0] = replace(parts[0], output=result.result, error=result.error)
        return parts


def _group(message: Message) -> str:
    return group_id(message) or str(message.id)


def _lines(group: Sequence[Message], results: _ToolResults) -> Iterator[str]:
    if group_id(group[0]) is not None:
        try:
            yield MessageGroup.of(group).to_json()
            return
        except ValidationError:  # some were erased, or archived with another branch
            pass
    for message in group:
        if not results.is_shown_with_its_call(message):
            yield _line(message, results)


def _line(message: Message, results: _ToolResults) -> str:
    return dumps(
        {
            "id": f"msg_{message.id}",
            "role": _ROLES.get(message.role, "assistant"),
            "parts": [part_to_dict(part) for part in results.parts(message)],
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    ).decode()


def tool_calls(messages: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return the tool calls as `tool.json` shows them, by the name of their folder."""
    results = _ToolResults(messages)
    by_folder: dict[str, dict[str, Any]] = {}
    for message in messages:
        if not isinstance(message.content, ActionRequestContent):
            continue
        call = message.content.call_id
        name = call if isinstance(call, str) and is_name(call) else str(message.id)
        name = str(message.id) if name in by_folder else name
        fields = part_to_dict(results.parts(message)[0])
        del fields["type"]
        by_folder[name] = {
            **fields,
            "tool_id": name,
            "message_id": str(message.id),
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    return by_folder

"""Sessions as folders: read-only views of the store.

    viking://session/{session}/messages.jsonl, .abstract.md, .overview.md      what is current
    …/history/archive_NNN/messages.jsonl, .abstract.md, .overview.md           what was archived
    …/history/archive_NNN/memory_diff.json, .done                              what came of it
    …/branches/{branch}/messages.jsonl         what is current on each branch, if there are several
    …/tools/{tool_id}/tool.json                                                tool calls

Current is what the default branch has unarchived; archives and tools are those of all branches.
What stands on no branch and in no archive is in no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.memory.commit.archive import current_messages
from sennit.memory.commit.result import archive_name, result_of
from sennit.memory.extraction import summarize
from sennit.memory.extraction.utterances import read
from sennit.memory.extraction.values import Summary
from sennit.memory.files import entry, messages_jsonl
from sennit.memory.files.entry import FileEntry, not_a_file, nothing_at
from sennit.memory.scope import MemoryScope
from sennit.memory.uri import Uri, branch_folder, session_name
from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.session import DEFAULT_BRANCH, SessionCore
from sennit.stores.records.commits import CommitRecord, CommitsRecord

Text: TypeAlias = Callable[[], str]

_PAGE = 500


class _Folder(dict[str, "_Folder | Text"]):
    """The entries of a folder, by name."""


@dataclass(frozen=True)
class SessionTree:
    """The sessions of a realm, as folders."""

    realm: MemoryScope
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
        found = self._node(uri)
        if not isinstance(found, _Folder):
            return []
        return [_entry(uri / name, node) for name, node in found.items()]

    def walk(self, uri: Uri) -> Iterator[tuple[FileEntry, Text]]:
        """All that is below a folder of a session, or a file, read once, with what files say."""
        waiting = [(uri, self._node(uri))]
        while waiting:
            place, node = waiting.pop()
            if place != uri or not isinstance(node, _Folder):
                yield _entry(place, node), partial(_text, place, node)
            if isinstance(node, _Folder):
                waiting += [(place / name, node[name]) for name in reversed(node)]

    def text(self, uri: Uri) -> str:
        """Return the text of a file; raises NotFoundError."""
        return _text(uri, self._node(uri) if uri.names else _Folder())

    def _names(self) -> list[str]:
        before: tuple[int, UUID] | None = None
        names: list[str] = []
        while page := self.realm.store.list_sessions(
            self.realm.user, contains=None, before=before, limit=_PAGE
        ):
            names += [session_name(one.key, one.id) for one in page]
            before = (page[-1].updated, page[-1].id)
        return sorted(names)

    def _node(self, uri: Uri) -> _Folder | Text:
        node: _Folder | Text = self._session(uri).tree()
        for name in uri.names[1:]:
            if not isinstance(node, _Folder) or name not in node:
                raise nothing_at(uri)
            node = node[name]
        return node

    def _session(self, uri: Uri) -> _Session:
        uid = self.realm.session_id(uri.names[0])
        try:
            session = self.open_session(uid)
            return _Session(session, self.realm.store.commits(self.realm.user, uid))
        except NotFoundError:
            raise nothing_at(uri) from None


def _entry(uri: Uri, node: _Folder | Text) -> FileEntry:
    return entry.folder(uri) if isinstance(node, _Folder) else entry.view(uri, node())


def _text(uri: Uri, node: _Folder | Text) -> str:
    if isinstance(node, _Folder):
        raise not_a_file(uri)
    return node()


@dataclass(frozen=True)
class _Session:
    """One session, as a folder."""

    session: SessionCore
    found: CommitsRecord

    def tree(self) -> _Folder:
        archives = {archive_name(one.number): self._archive(one) for one in self.found.commits}
        calls = messages_jsonl.tools(self._attached())
        tools = {name: _Folder({"tool.json": partial(_json, tool)}) for name, tool in calls.items()}
        found = _Folder(
            {
                "messages.jsonl": lambda: messages_jsonl.lines(self._current),
                ".abstract.md": self._abstract,
                ".overview.md": self._overview,
                "history": _Folder(archives),
                "tools": _Folder(tools),
            }
        )
        if len(self.session.branches) > 1:
            found["branches"] = _Folder(self._branches())
        return found

    def _branches(self) -> dict[str, _Folder]:
        def current_lines(branch: Branch) -> str:
            return messages_jsonl.lines(current_messages(self.session, branch))

        return {
            branch_folder(branch.name): _Folder({"messages.jsonl": partial(current_lines, branch)})
            for branch in list(self.session.branches)
        }

    def _attached(self) -> list[Message]:
        """The messages on branches and in archives, in the order in which they were said."""
        known = {uid for commit in self.found.commits for uid in commit.entries}
        with self.session.lock:
            for branch in self.session.branches:
                known.update(branch)
        return [message for message in self.session.messages if message.id in known]

    @cached_property
    def _current(self) -> list[Message]:
        branches = list(self.session.branches)
        branch = self.session.get_branch(DEFAULT_BRANCH, branches[0] if branches else None)
        return [] if branch is None else current_messages(self.session, branch)

    def _abstract(self) -> str:
        return self._said("abstract") or self._by_rules(summarize.abstract)

    def _overview(self) -> str:
        return self._said("overview") or self._by_rules(summarize.markdown)

    def _said(self, name: str) -> str:
        """Return the text of the last archive if nothing was said since."""
        return (
            "" if self._current or not self.found.commits else _noted(self.found.commits[-1], name)
        )

    def _by_rules(self, how: Callable[[Summary], str]) -> str:
        return how(self._summary) if self._current else ""

    @cached_property
    def _summary(self) -> Summary:
        """Return the rule-based summary of the current messages, cached because it is slow."""
        return summarize.summary_by_rules(read(self._current))

    def _archive(self, commit: CommitRecord) -> _Folder:
        files = _Folder({"messages.jsonl": lambda: messages_jsonl.lines(self._messages(commit))})
        if commit.state not in ("open", "failed"):
            files[".abstract.md"] = partial(_noted, commit, "abstract")
            files[".overview.md"] = partial(_noted, commit, "overview")
            files["memory_diff.json"] = partial(_diff, commit)
            files[".done"] = lambda: _json(result_of(commit))
        return files

    def _messages(self, commit: CommitRecord) -> list[Message]:
        return [
            message
            for uid in commit.entries
            if (message := self.session.messages.get(uid, None)) is not None
        ]


def _noted(commit: CommitRecord, name: str) -> str:
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
            "used": body.get("used", {}),
            "skills": body.get("skills", []),
        }
    )


def _json(value: Any) -> str:
    return dumps(value).decode() + "\n"

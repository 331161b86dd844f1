"""Tools with which a model manages the user's memory during a conversation.

What a model writes is stored like what a commit extracts: compared with what is known, with its
history, and with the message that the model was answering as its evidence. So forgetting that
message, or its session, takes it back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from sennit import clock
from sennit.errors import NotFoundError, ToolError, ValidationError
from sennit.ids import new_id
from sennit.memory.commit.file_changes import FileChangeSet, SimilarMemories
from sennit.memory.extraction.dedup import decide_by_rules
from sennit.memory.extraction.english.clauses import is_injection
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence
from sennit.memory.files.stored_files import StoredTree
from sennit.memory.history.forget import forget_fact, forget_files
from sennit.memory.memory import MemoryEngine, session_memory
from sennit.memory.retrieval.find import find, where
from sennit.memory.scope import MEMORIES, MemoryScope
from sennit.memory.uri import Uri
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.services.tools.backend import ToolContext
from sennit.services.tools.tool import Tool
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.sessions.session import SessionCore
from sennit.stores.records.files import EvidenceRecord, PutFile, in_order

MAX_TEXT_CHARS = 1_000
_MAX_FOUND = 10
Kind = Literal["profile", "preferences", "entities", "events"]
_Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]


def memory_tools(session: SessionCore) -> list[Tool[..., Any]]:
    """Return the tools `remember`, `search_memory`, `update_memory` and `forget` for a session.

    They reach the memories of the session's user only. `forget` erases, so it needs approval.
    """
    tools = _MemoryTools(session, session_memory(session))
    return [
        Tool(tools.remember),
        Tool(tools.search_memory),
        Tool(tools.update_memory),
        Tool(tools.forget, needs_approval=True),
    ]


class _MemoryTools:
    def __init__(self, session: SessionCore, memory: MemoryEngine) -> None:
        self._session, self._memory = session, memory

    @property
    def _scope(self) -> MemoryScope:
        return self._memory.scope

    def remember(self, text: _Text, context: ToolContext, kind: Kind = "preferences") -> str:
        """Remember a statement of the user in later conversations, in one or two sentences.

        The kind is "profile" for facts about the user, "preferences" for likes and standing wishes
        such as the language of answers, "entities" for people and things, "events" for what
        happened or is planned.
        """
        _refuse_injection(text)
        asked = self._asked(context)
        candidate = Candidate(
            category=Category(kind),
            text=text.strip(),
            slug=slug(text),
            evidence=(QuotedEvidence(asked.id, text.strip()),),
            said_at=asked.created_at,
        )

        def write() -> FileChangeSet:
            # No commit has this id, so that no undo of a commit concerns the memory.
            changes = FileChangeSet(self._scope, self._session.id, new_id(), clock.now_us())
            changes.apply(decide_by_rules([candidate], SimilarMemories(self._scope, changes)))
            self._scope.store.change_files(changes.changes())
            return changes

        changes = retry_on_conflict(write, "the same memories")
        written = [f"{change.did}: {change.uri}" for change in changes.written]
        return "\n".join(written) or f"Not stored: {'; '.join(changes.refused)}"

    def search_memory(self, query: _Text) -> list[dict[str, str]]:
        """Search the memories of the user; return their addresses and texts."""
        filters = replace(where(self._scope), messages=False)
        found = find(self._scope, query, filters, limit=_MAX_FOUND, vectors=self._memory.vectors)
        return [{"uri": match.uri, "text": match.abstract} for match in found.memories]

    def update_memory(self, uri: str, text: _Text, context: ToolContext) -> str:
        """Replace the text of a memory by a new one, which the user has stated; not the profile."""
        _refuse_injection(text)
        asked, parsed = self._asked(context), self._own(uri)

        def write() -> int:
            file = self._scope.find(parsed)
            if file is None:
                raise NotFoundError(f"There is no memory at {uri!r}; use search_memory.")
            if file.category == Category.PROFILE:
                raise ValidationError("The profile has a fact per line; use remember instead.")
            put = StoredTree(self._scope).next_version(parsed, file, text.strip(), "updated")
            source = EvidenceRecord(self._scope.user, self._session.id, asked.id)
            version = replace(
                put.version,
                evidence=in_order((source,)),
                valid_from=clock.now_us(),
                valid_to=None,
            )
            self._scope.store.change_files(
                [PutFile(put.owner, put.id, put.path, put.category, version)]
            )
            return version.number

        return f"updated: {uri}, version {retry_on_conflict(write, repr(uri))}"

    def forget(self, uri: str) -> str:
        """Erase a memory with its history, for good; the user is asked first."""
        address, _, fact = uri.partition("#")
        parsed = self._own(address)
        if fact:
            forget_fact(self._scope, parsed, fact)
        else:
            forget_files(self._scope, parsed)
        return f"forgotten: {uri}"

    def _own(self, uri: str) -> Uri:
        """Return the parsed address of a memory of the user; raises ValidationError."""
        parsed = Uri.parse(uri)
        is_memory = parsed.scope in ("user", "agent") and not parsed.is_shared
        if not (is_memory and parsed.path.startswith(MEMORIES)):
            raise ValidationError(
                f"{uri!r} is not a memory of the user; use the address from search_memory."
            )
        if self._scope.find(parsed) is None:
            raise NotFoundError(f"There is no memory at {uri!r}; use search_memory.")
        return parsed

    def _asked(self, context: ToolContext) -> Message:
        """Return the message of the user that the model is answering."""
        branch = self._session.get_branch(context.branch or self._session.default_branch)
        for message in reversed(branch.messages):
            if isinstance(message.content, InstructionContent):
                return message
        raise ToolError("There is no message of the user that could be remembered.")


def _refuse_injection(text: str) -> None:
    if is_injection(text):
        raise ValidationError("The text is an instruction to the memory; state a fact instead.")

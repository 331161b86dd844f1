"""Tools with which a model manages the user's memory during a conversation.

What a model writes is stored like what a commit extracts: compared with what is known, with its
history, and with the user's message as its evidence. So forgetting that message, or its session,
takes it back. It is grounded like a model's claim in a commit: what no message of the user in the
current turn states, such as what a tool result asks to remember, is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from sennit import clock
from sennit.errors import NotFoundError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.memory.commit.file_changes import FileChangeSet, SimilarMemories
from sennit.memory.extraction.dedup import covers, decide_by_rules, supports
from sennit.memory.extraction.english.clauses import clauses, is_injection
from sennit.memory.extraction.extract import extract_facts
from sennit.memory.extraction.grounding import Claim, EvidenceChecker
from sennit.memory.extraction.utterances import Utterance, read
from sennit.memory.extraction.values import Candidate, Category
from sennit.memory.files.stored_files import StoredTree
from sennit.memory.history.forget import forget_fact, forget_files
from sennit.memory.memory import MemoryEngine, session_memory
from sennit.memory.retrieval.find import find, where
from sennit.memory.scope import MEMORIES, MemoryScope
from sennit.memory.uri import Uri
from sennit.messages.content import AssistantResponseContent, InstructionContent
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
        """Remember a statement of the user in later conversations, quoted from the user's message.

        The kind is "profile" for facts about the user, "preferences" for likes and standing wishes
        such as the language of answers, "entities" for people and things, "events" for what
        happened or is planned.
        """
        candidates = _by_fact(self._grounded(context, kind, text))

        def write() -> FileChangeSet:
            # No commit has this id, so that no undo of a commit concerns the memory.
            changes = FileChangeSet(self._scope, self._session.id, new_id(), clock.now_us())
            changes.apply(decide_by_rules(candidates, SimilarMemories(self._scope, changes)))
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
        """Replace the text of a memory, not the profile, by what the user has stated, quoted."""
        parsed = self._own(uri)

        def write() -> int:
            file = self._scope.find(parsed)
            if file is None:
                raise NotFoundError(f"There is no memory at {uri!r}; use search_memory.")
            if file.category == Category.PROFILE:
                raise ValidationError("The profile has a fact per line; use remember instead.")
            candidate = self._grounded(context, str(file.category), text)
            put = StoredTree(self._scope).next_version(parsed, file, candidate.text, "updated")
            still = covers(file.latest.body.decode(), candidate.text)
            version = replace(
                put.version,
                evidence=in_order(
                    (*self._sources(candidate), *(file.latest.evidence if still else ()))
                ),
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

    def _grounded(self, context: ToolContext, kind: str, text: str) -> Candidate:
        """Return a claim of the model in words of the user; raises ValidationError."""
        if is_injection(text):
            raise ValidationError("The text is an instruction to the memory; state a fact instead.")
        said = dict(enumerate(self._said(context)))
        candidate = EvidenceChecker(said).candidate(Claim(kind, text, tuple(said)))
        if isinstance(candidate, str):
            raise ValidationError(
                f"{short_repr(text)} cannot be stored: {candidate}. {_QUOTE_THE_USER}"
            )
        if not supports(candidate, text):
            raise ValidationError(
                f"{short_repr(text)} says more than the user, who said {candidate.text!r}. "
                f"{_QUOTE_THE_USER}"
            )
        return candidate

    def _said(self, context: ToolContext) -> list[Utterance]:
        """Return the user's utterances of the current turn."""
        branch = self._session.get_branch(context.branch or self._session.default_branch)
        turn: list[Message] = []
        for message in reversed(branch.messages):
            if isinstance(message.content, InstructionContent):
                turn.append(message)
            elif turn and isinstance(message.content, AssistantResponseContent):
                break
        return [said for said in read(reversed(turn)).utterances if said.speaker == "user"]

    def _sources(self, candidate: Candidate) -> list[EvidenceRecord]:
        return [
            EvidenceRecord(self._scope.user, self._session.id, quoted.message_id)
            for quoted in candidate.evidence
        ]


_QUOTE_THE_USER = "Quote what the user said in this turn, in the user's own words."


def _by_fact(candidate: Candidate) -> list[Candidate]:
    """Return a candidate for each fact, as a commit extracts them, if rules know all of them."""
    message = candidate.evidence[0].message_id
    stated = Utterance(message, "user", candidate.text, candidate.said_at)
    parts = [clause for sentence in stated.sentences for clause in clauses(sentence)]
    facts = list(extract_facts(stated))
    return facts if len(facts) == len(parts) > 1 else [candidate]

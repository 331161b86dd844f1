"""Phase 2 of a commit: extract memories from the archived messages, then write them at once.

Before the extraction ends only one thing is written: the output of a model is saved with the
commit, so that a retry after a crash does not call the model again. The end is one transaction with
the memories, use counts, summary and state of the commit. So a commit is either finished or open,
and finishing it a second time changes nothing.

The body of a commit names its agent, because any process may finish it, and the time until which
the process that made it holds it: before that no other process takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from sennit import clock, failpoints
from sennit.errors import ConflictError
from sennit.memory.commit.file_changes import FileChangeSet, SimilarMemories, WrittenChange
from sennit.memory.commit.result import CommitResult, result_of
from sennit.memory.commit.usage import count_uses, mark_injected, usage_changes
from sennit.memory.extraction import summarize
from sennit.memory.extraction.values import Candidate, Digest, KnownMemory
from sennit.memory.scope import MemoryScope
from sennit.memory.uri import archive_name
from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import (
    CommitRecord,
    CommitState,
    PutCommit,
    UseRecord,
    apply_change,
)
from sennit.stores.records.files import EndCommit

_RULES_HOLD_US = 60_000_000  # extraction by rules takes a fraction of a second
_MODEL_HOLD_US = 600_000_000  # a model takes longer


@dataclass(frozen=True, slots=True)
class ArchivedMessages:
    """The messages that a commit covers, ready for extraction."""

    messages: Sequence[Message]
    """Including injected texts, as messages that are marked as injected."""
    similar: Callable[[Candidate], Sequence[KnownMemory]]


Extractor = Callable[[ArchivedMessages], Digest]
"""Extraction by rules or by a model."""


def new_commit_body(agent: str, *, here: bool, model: bool) -> bytes:
    """Return the body of a new commit: its agent, and the end of its hold if finished `here`."""
    body: dict[str, Any] = {"agent": agent}
    return dumps(body | _hold_until(model=model) if here else body)


def _hold_until(*, model: bool) -> dict[str, int]:
    return {"held": clock.now_us() + (_MODEL_HOLD_US if model else _RULES_HOLD_US)}


class CommitFinalizer:
    """Finishes the commits of one user."""

    def __init__(self, scope: MemoryScope, extract: Extractor) -> None:
        self._scope, self._store, self._extract = scope, scope.store, extract

    def finish(self, commit: UUID, messages: Sequence[Message] = ()) -> CommitResult:
        """Finish a commit unless it is finished; `messages` saves reading its messages again.

        Raises NotFoundError if it is gone, ConflictError if every retry loses to other writers.
        """

        def finish_if_open() -> CommitResult:
            session, record = self._scope.commit(commit)
            if record.state == "open":
                record = self._finish(session, record, messages)
                failpoints.reach("memory.commit: finished")
            return result_of(record)

        return retry_on_conflict(finish_if_open, "the same memories")

    def takeover_delay(self, commit: UUID) -> float:
        """Return for how many more seconds the process that made a commit holds it."""
        body: dict[str, Any] = loads(self._scope.commit(commit)[1].body)
        return max(0.0, (body.get("held", 0) - clock.now_us()) / 1_000_000)

    def record_failure(self, commit: UUID, state: CommitState, reason: str) -> CommitResult:
        """Record why a commit could not be finished: it is "failed", or stays "open"."""
        session, record = self._scope.commit(commit)
        if record.state == "open":
            body: dict[str, Any] = loads(record.body)
            body["result"] = {**body.get("result", {}), "reasons": [reason]}
            if state == "failed":  # a failed commit must not go on quoting memories
                body.pop("digest", None)
            change = PutCommit(commit, state, dumps(body), record.version)
            with suppress(ConflictError):  # another process has changed it since
                self._store.write(self._scope.user, session, [change])
        return result_of(self._scope.commit(commit)[1])

    def reopen(self, commit: UUID, *, model: bool) -> None:
        """Reopen a failed commit and hold it."""
        session, record = self._scope.commit(commit)
        if record.state == "failed":
            body: dict[str, Any] = loads(record.body)
            body.pop("result", None)
            change = PutCommit(
                commit, "open", dumps(body | _hold_until(model=model)), record.version
            )
            self._store.write(self._scope.user, session, [change])

    def _finish(
        self, session: UUID, record: CommitRecord, cached: Sequence[Message]
    ) -> CommitRecord:
        """Extract and write; return the updated commit. Raises ConflictError."""
        failpoints.reach("memory.commit: read")
        messages = self._messages(session, record, cached)
        uses = self._store.uses_of(self._scope.user, session, record.number)
        scope = self._scope.of_agent(loads(record.body).get("agent", self._scope.agent_name))
        file_changes = FileChangeSet(scope, session, record.id, clock.now_us())
        digest, record = self._digest(session, record, messages, uses, file_changes)
        file_changes.apply(digest.decisions)
        use_counts, skills = count_uses(scope, uses, messages)
        count_changes = usage_changes(scope, use_counts)
        body = {
            "agent": scope.agent_name,
            "result": _result_fields(record, digest, file_changes, len(use_counts)),
            "abstract": summarize.abstract(digest.summary),
            "overview": summarize.markdown(digest.summary),
            "diff": [msgspec.to_builtins(change) for change in file_changes.written],
            "used": dict(use_counts),
            "skills": skills,
        }
        state = "partial" if file_changes.refused else "committed"
        change = PutCommit(record.id, state, dumps(body), record.version)
        failpoints.reach("memory.commit: write")
        self._store.change_files(
            [*file_changes.changes(), *count_changes], EndCommit(self._scope.user, session, change)
        )
        return apply_change(record, change)

    def _messages(
        self, session: UUID, record: CommitRecord, cached: Sequence[Message]
    ) -> list[Message]:
        by_id = {message.id.int: message for message in cached}
        if all(uid.int in by_id for uid in record.entries):
            return [by_id[uid.int] for uid in record.entries]
        return self._scope.messages(session, record.entries)

    def _digest(
        self,
        session: UUID,
        record: CommitRecord,
        messages: Sequence[Message],
        uses: Sequence[UseRecord],
        file_changes: FileChangeSet,
    ) -> tuple[Digest, CommitRecord]:
        """Return the digest, new or saved before, and the commit as it is then stored."""
        body: dict[str, Any] = loads(record.body)
        if "digest" in body:
            return msgspec.convert(body["digest"], Digest), record
        archived = ArchivedMessages(
            mark_injected(file_changes.scope, messages, uses),
            SimilarMemories(file_changes.scope, file_changes),
        )
        digest = self._extract(archived)
        failpoints.reach("memory.commit: thought")
        if not digest.calls:
            return digest, record  # rules give the same result again
        body["digest"] = msgspec.to_builtins(digest)
        change = PutCommit(record.id, "open", dumps(body), record.version)
        self._store.write(self._scope.user, session, [change])
        failpoints.reach("memory.commit: marked")
        return digest, msgspec.structs.replace(record, body=change.body, version=record.version + 1)


def _result_fields(
    record: CommitRecord, digest: Digest, file_changes: FileChangeSet, active: int
) -> dict[str, Any]:
    extracted = [change for change in file_changes.written if change.did != "confirmed"]
    return {
        "memories_extracted": len(extracted),
        "active_count_updated": active,
        "archive": archive_name(record.number),
        "method": digest.method,
        "summary_method": digest.summary_method,
        "counts": _counts(file_changes.written),
        "refused": digest.refused,
        "model_calls": digest.calls,
        "warnings": list(digest.warnings),
        "reasons": list(file_changes.refused),
    }


def _counts(written: Sequence[WrittenChange]) -> dict[str, int]:
    did = [change.did for change in written]
    return {name: did.count(name) for name in ("created", "updated", "merged", "confirmed")}

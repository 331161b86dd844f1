"""Phase 2 of a commit: extract from the archived messages, then write everything at once.

Nothing is written before the thinking is done but one mark: what models have said is noted with the
commit, so that going on after a crash asks no model again. The end is one transaction: memories,
counts, summary and the state of the commit. So a commit is finished or open, never in between, and
whoever finishes it a second time finds it done and changes nothing.

Who makes a commit says in it for which agent, as anyone may finish it, and until when they are at
it themselves: before that time, whoever finds it open by chance leaves it to them.
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
from sennit.memory.commit.file_changes import FileChangeSet, WrittenChange
from sennit.memory.commit.injected_context import with_injected
from sennit.memory.commit.result import CommitResult, archive_name, result_of
from sennit.memory.commit.similar import SimilarMemories
from sennit.memory.commit.usage import counted, counting
from sennit.memory.extraction import summarize
from sennit.memory.extraction.values import Candidate, Digest, KnownMemory
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.sessions.repository import message_from
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import (
    CommitRecord,
    CommitState,
    PutCommit,
    UseRecord,
    changed,
    no_commit,
)
from sennit.stores.records.files import EndCommit

_MOMENT = 60_000_000  # microseconds; rules need a fraction of one second
_WHILE = 600_000_000  # models need longer


@dataclass(frozen=True, slots=True)
class ArchivedMessages:
    """The messages that a commit covers, ready for extraction."""

    messages: Sequence[Message]
    """With texts that were put into prompts, marked as injected: nobody has said those."""
    similar: Callable[[Candidate], Sequence[KnownMemory]]


Thinking = Callable[[ArchivedMessages], Digest]
"""Whoever thinks: rules, or a model."""


def opening(agent: str, *, here: bool, model: bool) -> bytes:
    """Return the body of a new commit: its agent, and until when it is finished `here`."""
    body: dict[str, Any] = {"agent": agent}
    return dumps(body | _held(model=model) if here else body)


def _held(*, model: bool) -> dict[str, int]:
    return {"held": clock.now_us() + (_WHILE if model else _MOMENT)}


class CommitFinalizer:
    """Finishes commits of one user."""

    def __init__(self, realm: MemoryScope, think: Thinking) -> None:
        self._realm, self._store, self._think = realm, realm.store, think

    def finish(self, commit: UUID, messages: Sequence[Message] = ()) -> CommitResult:
        """Finish a commit, if it is not; `messages` need not be read again.

        Raises NotFoundError if it is gone, ConflictError if others are always faster.
        """

        def finished() -> CommitResult:
            session, record = self.found(commit)
            if record.state == "open":
                record = self._finish(session, record, messages)
                failpoints.reach("memory.commit: finished")
            return result_of(record)

        return retry_on_conflict(finished, "the same memories")

    def found(self, commit: UUID) -> tuple[UUID, CommitRecord]:
        """A commit and its session; raises NotFoundError."""
        found = self._store.find_commit(self._realm.user, commit)
        if found is None:
            raise no_commit(commit)
        return found

    def held(self, commit: UUID) -> float:
        """For how many seconds whoever has made a commit is given to finish it."""
        body: dict[str, Any] = loads(self.found(commit)[1].body)
        return max(0.0, (body.get("held", 0) - clock.now_us()) / 1_000_000)

    def fail(self, commit: UUID, reason: str) -> CommitResult:
        """Note that a commit could not be finished."""
        return self._note(commit, "failed", reason)

    def put_back(self, commit: UUID, reason: str) -> CommitResult:
        """Note why a commit could not be finished yet."""
        return self._note(commit, "open", reason)

    def _note(self, commit: UUID, state: CommitState, reason: str) -> CommitResult:
        session, record = self.found(commit)
        if record.state == "open":
            body: dict[str, Any] = loads(record.body)
            body["result"] = {**body.get("result", {}), "reasons": [reason]}
            if state == "failed":  # it would quote memories for as long as nobody tries again
                body.pop("digest", None)
            change = PutCommit(commit, state, dumps(body), record.version)
            with suppress(ConflictError):  # someone else has got further
                self._store.write(self._realm.user, session, [change])
        return result_of(self.found(commit)[1])

    def reopen(self, commit: UUID, *, model: bool) -> None:
        """Let a commit that failed be finished again, here."""
        session, record = self.found(commit)
        if record.state == "failed":
            body: dict[str, Any] = loads(record.body)
            body.pop("result", None)
            change = PutCommit(commit, "open", dumps(body | _held(model=model)), record.version)
            self._store.write(self._realm.user, session, [change])

    def _finish(
        self, session: UUID, record: CommitRecord, given: Sequence[Message]
    ) -> CommitRecord:
        """Think and write; gives the commit as it is then. Raises ConflictError."""
        failpoints.reach("memory.commit: read")
        messages = self._messages(session, record, given)
        uses = self._store.uses_of(self._realm.user, session, record.number)
        realm = self._realm.of_agent(loads(record.body).get("agent", self._realm.agent_name))
        drafts = FileChangeSet(realm, session, record.id, clock.now_us())
        digest, record = self._digest(session, record, messages, uses, drafts)
        drafts.apply(digest.decisions)
        times, skills = counted(uses, messages)
        counts = counting(realm, times)
        body = {
            "agent": realm.agent_name,
            "result": _told(record, digest, drafts, len(times)),
            "abstract": summarize.abstract(digest.summary),
            "overview": summarize.markdown(digest.summary),
            "diff": [msgspec.to_builtins(one) for one in drafts.written],
            "used": dict(times),
            "skills": skills,
        }
        state = "partial" if drafts.refused else "committed"
        change = PutCommit(record.id, state, dumps(body), record.version)
        failpoints.reach("memory.commit: write")
        self._store.change_files(
            [*drafts.changes(), *counts], EndCommit(self._realm.user, session, change)
        )
        return changed(record, change)

    def _messages(
        self, session: UUID, record: CommitRecord, given: Sequence[Message]
    ) -> list[Message]:
        known = {message.id.int: message for message in given}
        if all(uid.int in known for uid in record.entries):
            return [known[uid.int] for uid in record.entries]
        kept = self._store.messages(self._realm.user, session, record.entries)
        return [message_from(one) for one in kept]

    def _digest(
        self,
        session: UUID,
        record: CommitRecord,
        messages: Sequence[Message],
        uses: Sequence[UseRecord],
        drafts: FileChangeSet,
    ) -> tuple[Digest, CommitRecord]:
        """Return the digest, computed or stored before, and the commit, which may have been
        updated.
        """
        body: dict[str, Any] = loads(record.body)
        if "digest" in body:
            return msgspec.convert(body["digest"], Digest), record
        archived = ArchivedMessages(
            with_injected(drafts.realm, messages, uses), SimilarMemories(drafts.realm, drafts)
        )
        digest = self._think(archived)
        failpoints.reach("memory.commit: thought")
        if not digest.calls:
            return digest, record  # rules say the same again
        body["digest"] = msgspec.to_builtins(digest)
        change = PutCommit(record.id, "open", dumps(body), record.version)
        self._store.write(self._realm.user, session, [change])
        failpoints.reach("memory.commit: marked")
        return digest, msgspec.structs.replace(record, body=change.body, version=record.version + 1)


def _told(
    record: CommitRecord, digest: Digest, drafts: FileChangeSet, active: int
) -> dict[str, Any]:
    extracted = [one for one in drafts.written if one.did != "confirmed"]
    return {
        "memories_extracted": len(extracted),
        "active_count_updated": active,
        "archive": archive_name(record.number),
        "method": digest.method,
        "summary_method": digest.summary_method,
        "counts": _counts(drafts.written),
        "refused": digest.refused,
        "model_calls": digest.calls,
        "warnings": list(digest.warnings),
        "reasons": list(drafts.refused),
    }


def _counts(written: Sequence[WrittenChange]) -> dict[str, int]:
    did = [one.did for one in written]
    return {name: did.count(name) for name in ("created", "updated", "merged", "confirmed")}

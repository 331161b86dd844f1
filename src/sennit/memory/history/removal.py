"""Removal of the memories that rest on a removed message.

As with a forgotten session, what is derived from the message is erased, and a statement that was
also made elsewhere stays with that evidence alone. The summary of its archive is rebuilt from the
remaining messages, and a commit of that archive that is running conflicts and starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar
from uuid import UUID

from sennit.memory.extraction import summarize
from sennit.memory.extraction.pipeline import digest_by_rules
from sennit.memory.history.forget import forget_derived
from sennit.memory.naming import remove_references
from sennit.memory.scope import MemoryScope
from sennit.messages.codec import dumps, loads
from sennit.sessions.repository import message_from_record
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import CommitRecord, PutCommit
from sennit.stores.records.files import FileRecord

_T = TypeVar("_T")

_QUOTING_FIELDS = ("warnings", "reasons")
"""Error texts, which may quote a message in the words of a provider."""
_REMOVED_TEXT = "It is not told any more, as a message was removed."


def remove(
    scope: MemoryScope,
    session: UUID,
    messages: Sequence[UUID],
    erase: Callable[[], _T],
    *,
    forget: bool,
) -> _T:
    """Erase messages of the user with `erase` and, with `forget`, what is derived from them."""
    removed = set(messages)
    covering = [
        commit.id for commit in _commits(scope, session) if not removed.isdisjoint(commit.entries)
    ]
    derived = _forget_messages(scope, session, messages) if forget else []
    for commit in covering:  # first: later nobody knows which commits covered them
        _rewrite_commit(scope, session, commit, removed)
    erased = erase()
    for commit in _commits(scope, session):
        if commit.state == "open" or commit.id in covering:
            _rewrite_commit(scope, session, commit.id, removed)
    derived += _forget_messages(scope, session, messages) if forget else []  # again
    remove_references(scope, derived)
    scope.store.scrub()
    return erased


def _forget_messages(
    scope: MemoryScope, session: UUID, messages: Sequence[UUID]
) -> list[FileRecord]:
    return [file for message in messages for file in forget_derived(scope, session, message)]


def _commits(scope: MemoryScope, session: UUID) -> Sequence[CommitRecord]:
    return scope.store.commits(scope.user, session).commits


def _rewrite_commit(
    scope: MemoryScope, session: UUID, commit: UUID, removed: Container[UUID]
) -> None:
    """Remove the texts of messages from the body of a commit."""

    def rewrite() -> None:
        stored = scope.store.find_commit(scope.user, commit)
        if stored is None:
            return
        record = stored[1]
        body: dict[str, Any] = loads(record.body)
        body.pop("digest", None)  # the output of a model may quote them
        result: dict[str, Any] = body.get("result", {})
        result |= {name: [_REMOVED_TEXT] for name in _QUOTING_FIELDS if result.get(name)}
        if "overview" in body:
            body |= _summary(scope, session, record, removed)
        change = PutCommit(commit, record.state, dumps(body), record.version)
        scope.store.write(scope.user, session, [change])

    retry_on_conflict(rewrite, f"commit {commit}")


def _summary(
    scope: MemoryScope, session: UUID, commit: CommitRecord, removed: Container[UUID]
) -> dict[str, str]:
    entries = [entry for entry in commit.entries if entry not in removed]
    messages = map(message_from_record, scope.store.messages(scope.user, session, entries))
    summary = digest_by_rules(messages, lambda _: ()).summary
    return {"abstract": summarize.abstract(summary), "overview": summarize.markdown(summary)}

"""Runs and events in a session, for tests that need some and do not care which."""

from __future__ import annotations

from sennit import Session
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.sessions.repository import repository_of
from sennit.stores.records.sessions import AddEvents, EventRecord, PutRun, RunRecord

NOON = 1_700_000_000_000_000


def note_something(session: Session) -> None:
    """Note two runs on the first branch, with four events, one of them about its last message."""
    repository = repository_of(session).stored()
    branch = next(iter(session.branches))
    lease = repository.acquire(branch.id, "somebody", 1)
    runs = [
        RunRecord(new_id(), branch.id, state, NOON, NOON + 1, dumps({"n": state}))
        for state in ("ended", "suspended")
    ]
    about = branch[-1] if len(branch) else None
    events = tuple(
        EventRecord(seq, runs[seq // 3].id, about if seq == 3 else None, dumps(["text", str(seq)]))
        for seq in (1, 2, 3, 4)
    )
    changes = *(PutRun(run, lease.token) for run in runs), AddEvents(branch.id, events, lease.token)
    repository.record(*changes)

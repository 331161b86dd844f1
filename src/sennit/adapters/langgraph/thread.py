"""An open LangGraph thread: its session, its record log and the checkpoints in it.

Read `state` only while holding the lock. A record is durable before it is part of `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import RLock
from typing import Any

from sennit.adapters.langgraph.checkpoints import CheckpointKey, ThreadState
from sennit.adapters.record_log import RecordLog
from sennit.api.session import Session

_LOG_NAME = "langgraph"


class OpenThread:
    """A thread in the state of the last `sync`."""

    def __init__(self, session: Session) -> None:
        self.lock = RLock()
        self._session = session
        self._log = RecordLog(_LOG_NAME)
        self.state = ThreadState()

    def sync(self, session: Session) -> None:
        """Apply the records that were appended since the last sync."""
        with self.lock:
            self._session = session
            is_reset, messages = self._log.read_new(session)
            if is_reset:
                self.state = ThreadState()
            for message in messages:
                self.state.apply(message.id, message.metadata.get(_LOG_NAME, {}))

    def keys(self) -> list[CheckpointKey]:
        """Return the keys of all checkpoints."""
        with self.lock:
            return list(self.state.keys())

    def write(self, *records: Mapping[str, Any]) -> None:
        """Append records, all or none."""
        with self.lock:
            self._log.add(
                self._session,
                [self._log.new_record(record, _describe(record)) for record in records],
            )
            self.sync(self._session)

    def records(self) -> list[Mapping[str, Any]]:
        """Return all records of the log."""
        branch = self._session.get_branch(_LOG_NAME)
        records = (message.metadata.get(_LOG_NAME) for message in branch.messages)
        return [record for record in records if record is not None]

    def drop(self, choose: Callable[[ThreadState], Collection[CheckpointKey]]) -> None:
        """Erase the chosen checkpoints, after copying the values that others still need."""
        with self.lock:
            dropped = choose(self.state)
            if not dropped:
                return
            erased, values = self.state.plan_erasure(dropped)
            if values:
                self.write({"values": [list(value) for value in values]})
            self._session.remove_messages(erased)
            self.sync(self._session)


def _describe(record: Mapping[str, Any]) -> str:
    """Return a description of a record for people."""
    match record:
        case {"put": {"id": id, "ns": ns}}:
            return f"LangGraph checkpoint {id}{f' of {ns}' if ns else ''}"
        case {"writes": {"id": id, "task": task}}:
            return f"LangGraph writes of task {task} after checkpoint {id}"
        case _:
            return "LangGraph values"

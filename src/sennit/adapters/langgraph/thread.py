"""An open LangGraph thread: its session, its record log and the checkpoints in it.

Whoever looks at `known` holds the lock; a record is durable before it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import RLock
from typing import Any

from sennit.adapters.langgraph.checkpoints import CheckpointKey, ThreadState
from sennit.adapters.record_log import RecordLog
from sennit.api.session import Session

_LOG = "langgraph"


class OpenThread:
    """A thread, as it is after `follow`."""

    def __init__(self, session: Session) -> None:
        self.lock = RLock()
        self._session = session
        self._log = RecordLog(_LOG)
        self.known = ThreadState()

    def follow(self, session: Session) -> None:
        """Take in what is new."""
        with self.lock:
            self._session = session
            anew, messages = self._log.new(session)
            if anew:
                self.known = ThreadState()
            for message in messages:
                self.known.take(message.id, message.metadata.get(_LOG, {}))

    def keys(self) -> list[CheckpointKey]:
        """All its checkpoints."""
        with self.lock:
            return list(self.known.keys())

    def write(self, *records: Mapping[str, Any]) -> None:
        """Add records, all or none."""
        with self.lock:
            self._log.add(self._session, [self._log.record(one, _about(one)) for one in records])
            self.follow(self._session)

    def records(self) -> list[Mapping[str, Any]]:
        """All of its log."""
        branch = self._session.get_branch(_LOG)
        noted = (message.metadata.get(_LOG) for message in branch.messages)
        return [one for one in noted if one is not None]

    def drop(self, choose: Callable[[ThreadState], Collection[CheckpointKey]]) -> None:
        """Erase checkpoints; first what others need of them is kept elsewhere."""
        with self.lock:
            gone = choose(self.known)
            if not gone:
                return
            erased, values = self.known.without(gone)
            if values:
                self.write({"values": [list(one) for one in values]})
            self._session.remove_messages(erased)
            self.follow(self._session)


def _about(record: Mapping[str, Any]) -> str:
    """Describe a record for people."""
    match record:
        case {"put": {"id": id, "ns": ns}}:
            return f"LangGraph checkpoint {id}{f' of {ns}' if ns else ''}"
        case {"writes": {"id": id, "task": task}}:
            return f"LangGraph writes of task {task} after checkpoint {id}"
        case _:
            return "LangGraph values"

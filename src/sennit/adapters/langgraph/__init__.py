"""A LangGraph checkpointer on Sennit's store.

    graph = builder.compile(checkpointer=SennitSaver(client))

A thread is a session of its own ("langgraph:" and the thread's id), and each step one record in its
log (see `checkpoints` for what is in it, and `log`). So threads belong to the client's owner, are
listed, moved and erased like all sessions, and several processes may work on one.

Nothing is pickled, and reading runs no code: only types that LangGraph calls safe are rebuilt, and
those you name with a serialiser of your own.
"""

# The async twins are what the base class asks for, but their type is told in other words.
# pyright: reportAssignmentType=false

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

from sennit.adapters.branch_handle import LruCache, sessions_under
from sennit.adapters.langgraph.checkpoints import CheckpointRecord, Packed, ThreadState, Version
from sennit.adapters.langgraph.thread import OpenThread
from sennit.api.client import Client
from sennit.errors import MissingExtraError, NotFoundError, ValidationError, shown
from sennit.sessions.async_method import async_method

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
except ImportError as error:
    raise MissingExtraError.of("sennit.adapters.langgraph", "langgraph") from error

__all__ = ["SennitSaver"]

_KEY = "langgraph:"
_DELTAS = "counters_since_delta_snapshot"


class SennitSaver(BaseCheckpointSaver[str]):
    """Keeps the threads of a graph for the owner of a client."""

    def __init__(self, client: Client, *, serde: SerializerProtocol | None = None) -> None:
        """With a state of your own types give `serde`, which names them.

        Such as `JsonPlusSerializer(allowed_msgpack_modules=[MyState])`.
        """
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self._client = client
        self._open = LruCache[str, OpenThread]()

    def _thread(self, id: str, *, create: bool = False) -> OpenThread | None:
        """A thread as it is now; None if there is none."""
        try:
            session = self._client.session(_KEY + id, create=create)
        except NotFoundError:
            self._open.drop(id)
            return None
        found = self._open.get(id, lambda: OpenThread(session))
        found.follow(session)
        return found

    def _thread_ids(self) -> list[str]:
        found = sessions_under(self._client, _KEY)
        return [one.key.removeprefix(_KEY) for one in found if one.key is not None]

    def put(
        self,
        config: Any,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Any:
        """Keep a checkpoint."""
        thread_id, ns, parent = _asked(config)
        noted = get_checkpoint_metadata(config, metadata)
        body = {
            name: value
            for name, value in checkpoint.items()
            if name not in ("channel_values", "channel_versions")
        }
        thread = self._writable(thread_id)
        with thread.lock:
            before = thread.known.checkpoints.get(ns, {}).get(parent or "")
            values = checkpoint["channel_values"]
            record = {
                "ns": ns,
                "id": checkpoint["id"],
                "parent": parent,
                "versions": checkpoint["channel_versions"],
                "run": noted.get("run_id"),
                "body": self._packed(body),
                "metadata": self._packed(noted),
                "deltas": sorted(noted.get(_DELTAS) or ()),
                "values": [
                    [name, version, self._value(thread.known, ns, name, before, values)]
                    for name, version in new_versions.items()
                ],
            }
            thread.write({"put": record})
        return _config(thread_id, ns, checkpoint["id"])

    def _writable(self, thread_id: str) -> OpenThread:
        found = self._thread(thread_id, create=True)
        assert found is not None
        return found

    def _value(
        self,
        thread: ThreadState,
        ns: str,
        channel: str,
        before: CheckpointRecord | None,
        values: Mapping[str, Any],
    ) -> dict[str, Any]:
        if channel not in values:
            return {}
        value = values[channel]
        if not _is_divisible(value):
            return {"whole": self._packed(value)}
        version = None if before is None else before.versions.get(channel)
        return thread.listing(ns, channel, version, [self._packed(item) for item in value])

    def put_writes(
        self,
        config: Any,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a task wrote after a checkpoint."""
        thread_id, ns, id = _asked(config)
        if id is None:
            raise ValidationError(f"The writes of task {task_id!r} have no checkpoint_id.")
        listed = [
            [WRITES_IDX_MAP.get(channel, at), channel, self._packed(value)]
            for at, (channel, value) in enumerate(writes)
        ]
        record = {"ns": ns, "id": id, "task": task_id, "path": task_path, "writes": listed}
        self._writable(thread_id).write({"writes": record})

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """The checkpoint that is named, or else the newest; None if there is none."""
        thread_id, ns, id = _asked(config)
        thread = self._thread(thread_id)
        if thread is None:
            return None
        with thread.lock:
            chosen = thread.known.latest(ns) if id is None else id
            if chosen is None or chosen not in thread.known.checkpoints.get(ns, {}):
                return None
            return self._tuple(thread_id, thread.known, ns, chosen)

    def _tuple(self, thread_id: str, thread: ThreadState, ns: str, id: str) -> CheckpointTuple:
        one = thread.checkpoints[ns][id]
        return CheckpointTuple(
            config=_config(thread_id, ns, id),
            checkpoint=cast(
                "Checkpoint",
                {
                    **self._unpacked(one.body),
                    "channel_versions": dict(one.versions),
                    "channel_values": dict(self._values(thread, ns, one.versions)),
                },
            ),
            metadata=self._unpacked(one.metadata),
            parent_config=None if one.parent is None else _config(thread_id, ns, one.parent),
            pending_writes=[
                (task, write.channel, self._unpacked(write.value))
                for task, write in thread.ordered_writes(ns, id)
            ],
        )

    def _values(
        self, thread: ThreadState, ns: str, versions: Mapping[str, Version]
    ) -> Iterator[tuple[str, Any]]:
        for channel, version in versions.items():
            value = thread.values.get((ns, channel, version))
            if value is None:
                continue
            if "whole" in value.data:
                yield channel, self._unpacked(value.data["whole"])
            elif (items := thread.listed(ns, channel, version)) is not None:
                yield channel, [self._unpacked(item) for item in items]

    def list(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first; of all threads without a config."""
        left = limit
        for thread_id, ns, id in self._wanted(config, before):
            if left is not None and left <= 0:
                return
            found = self._matching(thread_id, ns, id, filter)
            if found is not None:
                left = None if left is None else left - 1
                yield found

    def _wanted(self, config: Any, before: Any) -> list[tuple[str, str, str]]:
        """The checkpoints in question, in order, before anyone has looked into them."""
        named: Mapping[str, Any] = config["configurable"] if config else {}
        last = None if before is None else get_checkpoint_id(before)
        threads = [str(named["thread_id"])] if "thread_id" in named else self._thread_ids()
        found: list[tuple[str, str, str]] = []
        for thread_id in threads:
            thread = self._thread(thread_id)
            found += [
                (thread_id, ns, id)
                for ns, id in ([] if thread is None else thread.keys())
                if named.get("checkpoint_ns", ns) == ns
                and named.get("checkpoint_id") in (None, id)
                and (last is None or id < last)
            ]
        return sorted(found, key=lambda one: one[2], reverse=True)

    def _matching(
        self, thread_id: str, ns: str, id: str, filter: Mapping[str, Any] | None
    ) -> CheckpointTuple | None:
        thread = self._thread(thread_id)
        if thread is None:  # erased meanwhile
            return None
        with thread.lock:
            one = thread.known.checkpoints.get(ns, {}).get(id)
            if one is None:
                return None
            if filter:
                noted = self._unpacked(one.metadata)
                if any(noted.get(name) != value for name, value in filter.items()):
                    return None
            return self._tuple(thread_id, thread.known, ns, id)

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread."""
        self._open.drop(str(thread_id))
        self._client.delete_session(f"{_KEY}{thread_id}")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, and what was written after them, in all threads."""
        runs = set(map(str, run_ids))
        for thread_id in self._thread_ids():
            thread = self._thread(thread_id)
            if thread is not None:
                thread.drop(lambda known: known.of_runs(runs))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Put all that a thread has into another."""
        source = self._thread(str(source_thread_id))
        if source is not None:
            self._writable(str(target_thread_id)).write(*source.records())

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase all but the newest checkpoint of each namespace, or all ("delete").

        What the newest is rebuilt from (of delta channels) stays. Raises ValidationError.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValidationError(f"strategy is 'keep_latest' or 'delete', got {shown(strategy)}.")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            thread = self._thread(thread_id)
            if thread is not None:
                thread.drop(lambda known: known.superseded())

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002 (LangGraph's)
        """A version after this one; two runs that go on from one checkpoint never get the same."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():.16f}"

    def _packed(self, value: Any) -> Packed:
        kind, data = self.serde.dumps_typed(value)
        _refuse_pickle(kind)
        return [kind, b64encode(data).decode()]

    def _unpacked(self, packed: Packed) -> Any:
        kind, data = packed
        _refuse_pickle(kind)
        return self.serde.loads_typed((kind, b64decode(data)))

    aput = async_method(put)
    aput_writes = async_method(put_writes)
    aget_tuple = async_method(get_tuple)
    adelete_thread = async_method(delete_thread)
    adelete_for_runs = async_method(delete_for_runs)
    acopy_thread = async_method(copy_thread)
    aprune = async_method(prune)
    _awanted = async_method(_wanted)
    _amatching = async_method(_matching)

    async def alist(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list` for async callers."""
        left = limit
        for thread_id, ns, id in await self._awanted(config, before):
            if left is not None and left <= 0:
                return
            found = await self._amatching(thread_id, ns, id, filter)
            if found is not None:
                left = None if left is None else left - 1
                yield found


def _asked(config: Any) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint that a config names; raises ValidationError."""
    named: Mapping[str, Any] = config.get("configurable") or {}
    if "thread_id" not in named:
        raise ValidationError(
            'The config has no thread_id; pass {"configurable": {"thread_id": "..."}}.'
        )
    return str(named["thread_id"]), named.get("checkpoint_ns", ""), get_checkpoint_id(config)


def _config(thread_id: str, ns: str, id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}


def _is_divisible(value: Any) -> bool:
    """Return whether a value is a list whose items are worth keeping one by one: not of numbers."""
    if type(value) is not list:
        return False
    small = (int, float, type(None))
    return not any(isinstance(item, small) for item in cast("list[Any]", value))


def _refuse_pickle(kind: str) -> None:
    if kind == "pickle":
        raise ValidationError(
            "Pickled values are refused, because reading a pickle runs code; use a serializer "
            "without pickle_fallback."
        )

"""LangGraph checkpointer on Sennit's store.

    graph = builder.compile(checkpointer=SennitSaver(client))

Each thread is a session (key "langgraph:" plus the thread id), and each step one record in its log
(see `checkpoints` and `record_log`). So threads belong to the client's owner, are listed, moved and
erased like all sessions, and several processes can work on one thread.

Nothing is pickled, and reading runs no code: only types that LangGraph considers safe are restored,
and those that a serializer of your own allows.
"""

# The async methods match the base class, but pyright cannot tell from the type of async_method.
# pyright: reportAssignmentType=false

from __future__ import annotations

import asyncio
import random
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from sennit.adapters.branch_history import LruCache, sessions_with_prefix
from sennit.adapters.langgraph.checkpoints import CheckpointRecord, Packed, ThreadState, Version
from sennit.api.client import Client
from sennit.errors import MissingExtraError, NotFoundError, ValidationError, short_repr
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

_KEY_PREFIX = "langgraph:"
_DELTA_COUNTERS = "counters_since_delta_snapshot"


class SennitSaver(BaseCheckpointSaver[str]):
    """A checkpointer that stores the threads of a graph for the client's owner."""

    def __init__(self, client: Client, *, serde: SerializerProtocol | None = None) -> None:
        """Store threads with a client; `serde` must allow the custom types of a state.

        For example `JsonPlusSerializer(allowed_msgpack_modules=[MyState])`.
        """
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=None))
        self._client = client
        self._cache = LruCache[str, ThreadState]()

    def _thread(self, id: str, *, create: bool = False) -> ThreadState | None:
        """Return a thread in its current state; None if it does not exist."""
        try:
            session = self._client.session(_KEY_PREFIX + id, create=create)
        except NotFoundError:
            self._cache.discard(id)
            return None
        thread = self._cache.get(id, lambda: ThreadState(session))
        thread.sync(session)
        return thread

    def _thread_ids(self) -> list[str]:
        infos = sessions_with_prefix(self._client, _KEY_PREFIX)
        return [info.key.removeprefix(_KEY_PREFIX) for info in infos if info.key is not None]

    def put(
        self,
        config: Any,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Any:
        """Store a checkpoint."""
        thread_id, ns, parent = _parse_config(config)
        full_metadata = get_checkpoint_metadata(config, metadata)
        body = {
            name: value
            for name, value in checkpoint.items()
            if name not in ("channel_values", "channel_versions")
        }
        thread = self._get_or_create_thread(thread_id)
        with thread.lock:
            previous = thread.checkpoints.get(ns, {}).get(parent or "")
            values = checkpoint["channel_values"]
            record = {
                "ns": ns,
                "id": checkpoint["id"],
                "parent": parent,
                "versions": checkpoint["channel_versions"],
                "run": full_metadata.get("run_id"),
                "body": self._pack(body),
                "metadata": self._pack(full_metadata),
                "deltas": sorted(full_metadata.get(_DELTA_COUNTERS) or ()),
                "values": [
                    [name, version, self._encode_value(thread, ns, name, previous, values)]
                    for name, version in new_versions.items()
                ],
            }
            thread.write({"put": record})
        return _config(thread_id, ns, checkpoint["id"])

    def _get_or_create_thread(self, thread_id: str) -> ThreadState:
        thread = self._thread(thread_id, create=True)
        assert thread is not None
        return thread

    def _encode_value(
        self,
        thread: ThreadState,
        ns: str,
        channel: str,
        previous: CheckpointRecord | None,
        values: Mapping[str, Any],
    ) -> dict[str, Any]:
        if channel not in values:
            return {}
        value = values[channel]
        if not _is_divisible(value):
            return {"whole": self._pack(value)}
        version = None if previous is None else previous.versions.get(channel)
        return thread.encode_list(ns, channel, version, [self._pack(item) for item in value])

    def put_writes(
        self,
        config: Any,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task after a checkpoint."""
        thread_id, ns, id = _parse_config(config)
        if id is None:
            raise ValidationError(f"The writes of task {task_id!r} have no checkpoint_id.")
        packed_writes = [
            [WRITES_IDX_MAP.get(channel, index), channel, self._pack(value)]
            for index, (channel, value) in enumerate(writes)
        ]
        record = {"ns": ns, "id": id, "task": task_id, "path": task_path, "writes": packed_writes}
        self._get_or_create_thread(thread_id).write({"writes": record})

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """Return the checkpoint of the config, by default the newest; None if there is none."""
        thread_id, ns, id = _parse_config(config)
        thread = self._thread(thread_id)
        if thread is None:
            return None
        with thread.lock:
            checkpoint_id = thread.latest(ns) if id is None else id
            if checkpoint_id is None or checkpoint_id not in thread.checkpoints.get(ns, {}):
                return None
            return self._tuple(thread_id, thread, ns, checkpoint_id)

    def _tuple(self, thread_id: str, thread: ThreadState, ns: str, id: str) -> CheckpointTuple:
        record = thread.checkpoints[ns][id]
        return CheckpointTuple(
            config=_config(thread_id, ns, id),
            checkpoint=cast(
                "Checkpoint",
                {
                    **self._unpack(record.body),
                    "channel_versions": dict(record.versions),
                    "channel_values": dict(self._decode_values(thread, ns, record.versions)),
                },
            ),
            metadata=self._unpack(record.metadata),
            parent_config=None if record.parent is None else _config(thread_id, ns, record.parent),
            pending_writes=[
                (task, write.channel, self._unpack(write.value))
                for task, write in thread.ordered_writes(ns, id)
            ],
        )

    def _decode_values(
        self, thread: ThreadState, ns: str, versions: Mapping[str, Version]
    ) -> Iterator[tuple[str, Any]]:
        for channel, version in versions.items():
            value = thread.values.get((ns, channel, version))
            if value is None:
                continue
            if "whole" in value.data:
                yield channel, self._unpack(value.data["whole"])
            elif (items := thread.list_items(ns, channel, version)) is not None:
                yield channel, [self._unpack(item) for item in items]

    def list(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first; those of all threads without a config."""
        keys = self._find_keys(config, before)
        loaded = (self._load_matching(*key, filter) for key in keys)
        matching = (checkpoint for checkpoint in loaded if checkpoint is not None)
        yield from islice(matching, None if limit is None else max(limit, 0))

    def _find_keys(self, config: Any, before: Any) -> list[tuple[str, str, str]]:
        """Return the keys of the checkpoints that match the config, newest first."""
        configurable: Mapping[str, Any] = config["configurable"] if config else {}
        before_id = None if before is None else get_checkpoint_id(before)
        threads = (
            [str(configurable["thread_id"])] if "thread_id" in configurable else self._thread_ids()
        )
        keys: list[tuple[str, str, str]] = []
        for thread_id in threads:
            thread = self._thread(thread_id)
            keys += [
                (thread_id, ns, id)
                for ns, id in ([] if thread is None else thread.keys())
                if configurable.get("checkpoint_ns", ns) == ns
                and configurable.get("checkpoint_id") in (None, id)
                and (before_id is None or id < before_id)
            ]
        return sorted(keys, key=lambda key: key[2], reverse=True)

    def _load_matching(
        self, thread_id: str, ns: str, id: str, filter: Mapping[str, Any] | None
    ) -> CheckpointTuple | None:
        thread = self._thread(thread_id)
        if thread is None:  # erased in the meantime
            return None
        with thread.lock:
            record = thread.checkpoints.get(ns, {}).get(id)
            if record is None:
                return None
            if filter:
                metadata = self._unpack(record.metadata)
                if any(metadata.get(name) != value for name, value in filter.items()):
                    return None
            return self._tuple(thread_id, thread, ns, id)

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread."""
        self._cache.discard(str(thread_id))
        self._client.delete_session(f"{_KEY_PREFIX}{thread_id}")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, and the writes after them, in all threads."""
        runs = set(map(str, run_ids))
        for thread_id in self._thread_ids():
            thread = self._thread(thread_id)
            if thread is not None:
                thread.drop(partial(thread.created_by_runs, runs))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Append all records of one thread to another."""
        source = self._thread(str(source_thread_id))
        if source is not None:
            self._get_or_create_thread(str(target_thread_id)).write(*source.records())

    def import_threads(
        self, source: BaseCheckpointSaver[Any], thread_ids: Sequence[str] | None = None
    ) -> list[str]:
        """Copy threads, by default all, from another checkpointer, and return their ids.

        Nothing is removed at the source. A thread that was imported before gets what is new.
        """
        imported: dict[str, None] = {}
        for config in _oldest_first(source, thread_ids):
            checkpoint = source.get_tuple(config)
            if checkpoint is not None:  # else erased in the meantime
                thread_id, ns, id = _parse_config(checkpoint.config)
                self._import_checkpoint(checkpoint, thread_id, ns)
                self._import_writes(checkpoint, _config(thread_id, ns, str(id)))
                imported[thread_id] = None
        return list(imported)

    def _import_checkpoint(self, checkpoint: CheckpointTuple, thread_id: str, ns: str) -> None:
        parent = checkpoint.parent_config
        config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
        if parent is not None:
            config["configurable"]["checkpoint_id"] = get_checkpoint_id(parent)
        versions = checkpoint.checkpoint["channel_versions"]
        known = self._get_or_create_thread(thread_id).values
        new = {name: at for name, at in versions.items() if (ns, name, at) not in known}
        self.put(config, checkpoint.checkpoint, checkpoint.metadata, new)

    def _import_writes(self, checkpoint: CheckpointTuple, config: Any) -> None:
        writes: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in checkpoint.pending_writes or ():
            writes.setdefault(task, []).append((channel, value))
        for number, (task, task_writes) in enumerate(writes.items()):
            self.put_writes(config, task_writes, task, f"{number:06}")  # which keeps the order

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase all but the newest checkpoint of each namespace, or the whole thread ("delete").

        The ancestors that delta channels are rebuilt from are not erased. Raises ValidationError
        for any other strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValidationError(
                f"strategy must be 'keep_latest' or 'delete', got {short_repr(strategy)}."
            )
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            thread = self._thread(thread_id)
            if thread is not None:
                thread.drop(thread.superseded)

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002 (LangGraph's)
        """Return the next version, with a random part so that concurrent runs never share one."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():.16f}"

    def _pack(self, value: Any) -> Packed:
        kind, data = self.serde.dumps_typed(value)
        _refuse_pickle(kind)
        return [kind, b64encode(data).decode()]

    def _unpack(self, packed: Packed) -> Any:
        kind, data = packed
        _refuse_pickle(kind)
        return self.serde.loads_typed((kind, b64decode(data)))

    aput: Final = async_method(put)
    aput_writes: Final = async_method(put_writes)
    aget_tuple: Final = async_method(get_tuple)
    adelete_thread: Final = async_method(delete_thread)
    adelete_for_runs: Final = async_method(delete_for_runs)
    acopy_thread: Final = async_method(copy_thread)
    aimport_threads: Final = async_method(import_threads)
    aprune: Final = async_method(prune)

    async def alist(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints like `list`, without blocking the event loop."""
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await asyncio.to_thread(next, checkpoints, None)) is not None:
            yield checkpoint


def _oldest_first(source: BaseCheckpointSaver[Any], thread_ids: Sequence[str] | None) -> list[Any]:
    """Return the configs of all checkpoints of threads, without keeping their values in memory."""
    configs: list[Any] = [None]
    if thread_ids is not None:
        configs = [{"configurable": {"thread_id": str(thread_id)}} for thread_id in thread_ids]
    found = [one.config for config in configs for one in source.list(config)]
    return sorted(found, key=lambda config: str(get_checkpoint_id(config)))


def _parse_config(config: Any) -> tuple[str, str, str | None]:
    """Return thread id, namespace and checkpoint id of a config; raises ValidationError."""
    configurable: Mapping[str, Any] = config.get("configurable") or {}
    if "thread_id" not in configurable:
        raise ValidationError(
            'The config has no thread_id; pass {"configurable": {"thread_id": "..."}}.'
        )
    return (
        str(configurable["thread_id"]),
        configurable.get("checkpoint_ns", ""),
        get_checkpoint_id(config),
    )


def _config(thread_id: str, ns: str, id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}


def _is_divisible(value: Any) -> bool:
    """Return whether to store a value as a list of items; a list with numbers is stored whole."""
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

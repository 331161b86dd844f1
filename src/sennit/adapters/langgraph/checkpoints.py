"""State of a LangGraph thread: checkpoints, channel values and writes, built from its record log.

The cost of a step must not grow with the thread. LangGraph passes whole channel values. Most are
stored whole, but a list, such as the messages of a chat, is stored as a delta to the list of the
previous checkpoint: the length of the common prefix, and the items after it. Only the values that a
checkpoint needs are decoded.

A version of a channel may be put more than once, for example when a thread is copied: the last put
wins, for all checkpoints with that version. So a list refers to its base by an id that is new with
every put, never by version. No list can become its own base, and a list keeps its items when the
version of its base is put again.

A record is one of: a checkpoint with its new values ("put"), the writes of tasks after a checkpoint
("writes"), or values that others still need after their checkpoint was erased ("values").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from sennit.adapters.record_log import RecordLog
from sennit.ids import new_id
from sennit.messages.message import Message

Packed: TypeAlias = list[str]
"""Output of the serializer: the type, and the bytes in base64."""
Version: TypeAlias = str | int | float
ValueKey: TypeAlias = tuple[str, str, Version]
"""Namespace, channel, version."""
CheckpointKey: TypeAlias = tuple[str, str]
"""Namespace, checkpoint id."""
_ERASED = "erased"
"""The base of a list whose base is gone; no list has this id."""


@dataclass(frozen=True, slots=True)
class ChannelValue:
    """One version of a channel's value, and the message that stores it."""

    message: UUID
    key: ValueKey
    data: Mapping[str, Any]
    """{} for no value; {"whole": Packed}; or a list: its "id", the id of its "base" (or None), the
    number of items to "keep" from the base, and the "items" after those.
    """


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint without its channel values."""

    message: UUID
    parent: str | None
    versions: Mapping[str, Version]
    run: str | None
    body: Packed
    metadata: Packed
    deltas: tuple[str, ...]
    """The delta channels, whose value is rebuilt from the writes of earlier checkpoints."""


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """One write of a task."""

    message: UUID
    path: str
    channel: str
    value: Packed


class ThreadState(RecordLog):
    """The checkpoints, channel values and writes of a thread."""

    name = "langgraph"

    def _reset(self) -> None:
        self.checkpoints: dict[str, dict[str, CheckpointRecord]] = {}
        """By namespace and id."""
        self.values: dict[ValueKey, ChannelValue] = {}
        self.writes: dict[CheckpointKey, dict[tuple[str, int], TaskWrite]] = {}
        self._lists: dict[str, ChannelValue] = {}
        """All lists by id, including those whose version was put again."""
        self._older: set[str] = set()
        """The ids of the lists whose record names the base by version."""
        self._messages: dict[CheckpointKey, set[UUID]] = {}
        """The messages that store a checkpoint and the writes after it, with superseded ones."""
        self._last_read: dict[tuple[str, str], tuple[str, list[Packed]]] = {}
        """A cache of the list that was last read: its id and items, by namespace and channel."""

    def write(self, *records: Mapping[str, Any]) -> None:
        """Append records, all or none."""
        self.append([self.new_record(record, _describe(record)) for record in records])

    def records(self) -> list[Mapping[str, Any]]:
        """Return all records of the log."""
        records = (m.metadata.get(self.name) for m in self.session.get_branch(self.name).messages)
        return [record for record in records if record is not None]

    def drop(self, choose: Callable[[], Collection[CheckpointKey]]) -> None:
        """Erase the chosen checkpoints, after copying the values that others still need."""
        with self.lock:
            if dropped := choose():
                erased, values = self._plan_erasure(dropped)
                if values:
                    self.write({"values": [list(value) for value in values]})
                self.session.remove_messages(erased)
                self.sync(self.session)

    def _apply(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._apply_record(message.id, message.metadata.get(self.name, {}))

    def _apply_record(self, message: UUID, record: Mapping[str, Any]) -> None:
        match record:
            case {"put": put}:
                self._messages.setdefault((put["ns"], put["id"]), set()).add(message)
                for channel, version, data in put["values"]:
                    self._apply_value(message, (put["ns"], channel, version), data)
                self.checkpoints.setdefault(put["ns"], {})[put["id"]] = CheckpointRecord(
                    message,
                    put["parent"],
                    put["versions"],
                    put["run"],
                    put["body"],
                    put["metadata"],
                    tuple(put["deltas"]),
                )
            case {"writes": writes}:
                self._messages.setdefault((writes["ns"], writes["id"]), set()).add(message)
                self._apply_writes(message, writes)
            case {"values": values}:
                for ns, channel, version, *current, data in values:
                    key = (ns, channel, version)
                    self._apply_value(message, key, data, current=all(current))
            case _:
                pass  # a record kind of a later version

    def _apply_value(
        self, message: UUID, key: ValueKey, data: Mapping[str, Any], *, current: bool = True
    ) -> None:
        """Store a value; one that is not `current` serves only as the base of lists."""
        older = "items" in data and "id" not in data
        if older:
            data = self._with_ids(message, key, data)
            self._older.add(data["id"])
        value = ChannelValue(message, key, data)
        if current:
            self.values[key] = value
        if "id" in data:
            self._lists[data["id"]] = value
            if not older:
                self._older.discard(data["id"])

    def _with_ids(self, message: UUID, key: ValueKey, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a list of an older log, whose base is a version, with ids.

        The base is the list that had the version when this one was written; it may have had the
        same version, so that the list would be its own base.
        """
        ns, channel, _ = key
        base = None if data["base"] is None else self.values.get((ns, channel, data["base"]))
        base_id = None if base is None else base.data.get("id")
        if data["base"] is not None and base_id is None:
            base_id = _ERASED  # its base was erased
        return {**data, "id": f"{message.hex} {ns} {channel}", "base": base_id}

    def _apply_writes(self, message: UUID, record: Mapping[str, Any]) -> None:
        writes = self.writes.setdefault((record["ns"], record["id"]), {})
        for index, channel, value in record["writes"]:
            # A task that runs again writes the same; only special writes (index < 0) may change.
            if index < 0 or (record["task"], index) not in writes:
                writes[record["task"], index] = TaskWrite(message, record["path"], channel, value)

    def latest(self, ns: str) -> str | None:
        """Return the id of the newest checkpoint of a namespace; ids sort by time."""
        return max(self.checkpoints.get(ns, ()), default=None)

    def list_items(self, ns: str, channel: str, version: Version | None) -> list[Packed] | None:
        """Return the items of a value stored as a list; None if it is not one.

        The result is valid until the next call for the channel, which changes it in place.
        """
        value = None if version is None else self.values.get((ns, channel, version))
        if value is None or "items" not in value.data:
            return None
        items: list[Packed] = []
        links: list[Mapping[str, Any]] = []
        cached_id, cached_items = self._last_read.get((ns, channel), (None, items))
        for link in self._chain(value):
            if link.data["id"] == cached_id:
                items = cached_items  # start from the cache: most threads grow at the end
                break
            links.append(link.data)
        else:
            if links[-1]["base"] is not None:
                return None  # its base was erased
        for link in reversed(links):
            del items[link["keep"] :]
            items += link["items"]
        self._last_read[ns, channel] = (value.data["id"], items)
        return items

    def _chain(self, value: ChannelValue) -> Iterator[ChannelValue]:
        """Yield a value, its base, the base of that, and so on; a cycle of damaged data ends."""
        link: ChannelValue | None = value
        ids: set[str | None] = set()
        while link is not None and (link_id := link.data.get("id")) not in ids:
            yield link
            ids.add(link_id)
            base: str | None = link.data.get("base")
            link = None if base is None else self._lists.get(base)

    def encode_list(
        self, ns: str, channel: str, base_version: Version | None, items: list[Packed]
    ) -> dict[str, Any]:
        """Return the data of a list, as a delta to the list of `base_version`."""
        list_id = new_id().hex
        base = self.list_items(ns, channel, base_version)
        if base is None or base_version is None:
            return {"id": list_id, "items": items, "base": None, "keep": 0}
        shared = min(len(base), len(items))
        keep = next((index for index in range(shared) if base[index] != items[index]), shared)
        base_id: str = self.values[ns, channel, base_version].data["id"]
        return {"id": list_id, "items": items[keep:], "base": base_id, "keep": keep}

    def ordered_writes(self, ns: str, id: str) -> Iterator[tuple[str, TaskWrite]]:
        """Yield the task writes after a checkpoint, in the order in which they are applied."""
        writes = self.writes.get((ns, id), {})
        for task, index in sorted(writes, key=lambda key: (writes[key].path, *key)):
            yield task, writes[task, index]

    def keys(self) -> list[CheckpointKey]:
        """Return the keys of all checkpoints."""
        with self.lock:
            return [(ns, id) for ns, found in self.checkpoints.items() for id in found]

    def created_by_runs(self, runs: Collection[str]) -> list[CheckpointKey]:
        """Return the keys of the checkpoints that these runs created."""
        return [(ns, id) for ns, id in self.keys() if self.checkpoints[ns][id].run in runs]

    def superseded(self) -> list[CheckpointKey]:
        """Return the checkpoints that the newest one of their namespace does not need."""
        needed = {
            (ns, id)
            for ns, checkpoints in self.checkpoints.items()
            for id in self._with_ancestors(ns, max(checkpoints))
        }
        return [key for key in self.keys() if key not in needed]

    def _with_ancestors(self, ns: str, id: str) -> set[str]:
        """Return a checkpoint and the ancestors that its delta channels are rebuilt from."""
        ids, checkpoints = {id}, self.checkpoints[ns]
        missing = set(checkpoints[id].deltas)
        ancestor = checkpoints[id].parent
        while missing and ancestor is not None and ancestor in checkpoints:
            ids.add(ancestor)
            checkpoint = checkpoints[ancestor]
            missing -= {name for name in missing if self._has_value(ns, name, checkpoint)}
            ancestor = checkpoint.parent
        return ids

    def _has_value(self, ns: str, channel: str, checkpoint: CheckpointRecord) -> bool:
        version = checkpoint.versions.get(channel)
        value = None if version is None else self.values.get((ns, channel, version))
        return value is not None and bool(value.data)

    def _plan_erasure(
        self, keys: Collection[CheckpointKey]
    ) -> tuple[set[UUID], list[tuple[str, str, Version, bool, Mapping[str, Any]]]]:
        """Return the messages to erase with checkpoints, and their values that others need."""
        dropped = set(keys)
        erased = {message for key in dropped for message in self._messages.get(key, ())}
        needed = {
            id(value): value
            for ns, checkpoints in self.checkpoints.items()
            for name, checkpoint in checkpoints.items()
            if (ns, name) not in dropped
            for value in self._values_of(ns, checkpoint)
        }
        moved = [
            value
            for value in needed.values()
            if value.message in erased or value.data.get("id") in self._older
        ]
        return erased | self._orphaned_messages(needed.values(), erased), [
            (*value.key, self.values.get(value.key) is value, value.data) for value in moved
        ]

    def _values_of(self, ns: str, checkpoint: CheckpointRecord) -> Iterator[ChannelValue]:
        for channel, version in checkpoint.versions.items():
            value = self.values.get((ns, channel, version))
            if value is not None:
                yield from self._chain(value)

    def _orphaned_messages(self, needed: Iterable[ChannelValue], erased: set[UUID]) -> set[UUID]:
        """Return the messages of "values" records in which no value is needed any more."""
        referenced = {message for messages in self._messages.values() for message in messages}
        still_needed = {value.message for value in needed}
        all_messages = {
            value.message for values in (self.values, self._lists) for value in values.values()
        }
        return all_messages - referenced - still_needed - erased


def _describe(record: Mapping[str, Any]) -> str:
    """Return a description of a record for people."""
    match record:
        case {"put": {"id": id, "ns": ns}}:
            return f"LangGraph checkpoint {id}{f' of {ns}' if ns else ''}"
        case {"writes": {"id": id, "task": task}}:
            return f"LangGraph writes of task {task} after checkpoint {id}"
        case _:
            return "LangGraph values"

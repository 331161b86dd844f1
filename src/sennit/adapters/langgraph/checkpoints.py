"""Checkpoints of one LangGraph thread, folded from the records of its log; pure functions.

What one step costs must not grow with the thread. The framework hands over whole channel values,
and of most of them a whole is what has to be kept; but a list, such as the messages of a chat, is
kept as what it adds to the list that the checkpoint before has: where the two part, and what comes
after. Nothing is read back but what a checkpoint needs.

A version of a channel may be put more than once, for example when a thread is moved: the last put
counts, for all checkpoints that name the version. So a list refers to the list it is based on by an
id that every put makes anew, never by version. No list can become its own base, and a list keeps
its items when the version it was based on is put again.

A record says one of: a checkpoint with the values that are new in it ("put"), what tasks wrote on
the way to the next one ("writes"), values that others still need after their checkpoint is gone
("values").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from sennit.ids import new_id

Packed: TypeAlias = list[str]
"""What the serialiser gave: the type, and the bytes in base64."""
Version: TypeAlias = str | int | float
ValueKey: TypeAlias = tuple[str, str, Version]
"""Namespace, channel, version."""
CheckpointKey: TypeAlias = tuple[str, str]
"""Namespace, checkpoint id."""


@dataclass(frozen=True, slots=True)
class ChannelValue:
    """A channel's value in one version, and the message that holds it."""

    message: UUID
    key: ValueKey
    data: Mapping[str, Any]
    """{}: no value; {"whole": Packed}; or a list: its "id", the "base" it goes on from (an id or
    None), how many items of that it "keep"s, and the "items" that follow.
    """


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint."""

    message: UUID
    parent: str | None
    versions: Mapping[str, Version]
    run: str | None
    body: Packed
    metadata: Packed
    deltas: tuple[str, ...]
    """The channels whose value has to be rebuilt from what was written before."""


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """One write of a task."""

    message: UUID
    path: str
    channel: str
    value: Packed


@dataclass(slots=True)
class ThreadState:
    """All that is known of a thread."""

    checkpoints: dict[str, dict[str, CheckpointRecord]] = field(
        default_factory=dict[str, dict[str, CheckpointRecord]]
    )
    """By namespace and id."""
    values: dict[ValueKey, ChannelValue] = field(default_factory=dict[ValueKey, ChannelValue])
    writes: dict[CheckpointKey, dict[tuple[str, int], TaskWrite]] = field(
        default_factory=dict[CheckpointKey, dict[tuple[str, int], TaskWrite]]
    )
    _lists: dict[str, ChannelValue] = field(default_factory=dict[str, ChannelValue])
    """All lists by their ids, also those whose version was put again."""
    _messages: dict[CheckpointKey, set[UUID]] = field(
        default_factory=dict[CheckpointKey, set[UUID]]
    )
    """The messages that hold a checkpoint and what was written after it, also outdated ones."""
    _last: dict[tuple[str, str], tuple[str, list[Packed]]] = field(
        default_factory=dict[tuple[str, str], tuple[str, list[Packed]]]
    )
    """The id and the items of the list that was last read, by namespace and channel."""

    def take(self, message: UUID, record: Mapping[str, Any]) -> None:
        """Fold in one record."""
        match record:
            case {"put": one}:
                self._messages.setdefault((one["ns"], one["id"]), set()).add(message)
                for channel, version, data in one["values"]:
                    self._take_value(message, (one["ns"], channel, version), data)
                self.checkpoints.setdefault(one["ns"], {})[one["id"]] = CheckpointRecord(
                    message,
                    one["parent"],
                    one["versions"],
                    one["run"],
                    one["body"],
                    one["metadata"],
                    tuple(one["deltas"]),
                )
            case {"writes": one}:
                self._messages.setdefault((one["ns"], one["id"]), set()).add(message)
                self._take_writes(message, one)
            case {"values": one}:
                for ns, channel, version, current, data in one:
                    self._take_value(message, (ns, channel, version), data, current=current)
            case _:
                pass  # of a later version of this module

    def _take_value(
        self, message: UUID, key: ValueKey, data: Mapping[str, Any], *, current: bool = True
    ) -> None:
        """Know a value; one that is not `current` is only the base of others."""
        value = ChannelValue(message, key, data)
        if current:
            self.values[key] = value
        if "id" in data:
            self._lists[data["id"]] = value

    def _take_writes(self, message: UUID, one: Mapping[str, Any]) -> None:
        held = self.writes.setdefault((one["ns"], one["id"]), {})
        for index, channel, value in one["writes"]:
            # A task that runs again gives the same; only the marks (negative) may change.
            if index < 0 or (one["task"], index) not in held:
                held[one["task"], index] = TaskWrite(message, one["path"], channel, value)

    def latest(self, ns: str) -> str | None:
        """The newest checkpoint of a namespace; their ids are in order of time."""
        return max(self.checkpoints.get(ns, ()), default=None)

    def listed(self, ns: str, channel: str, version: Version | None) -> list[Packed] | None:
        """The items of a list that was kept as one; good until the next list is asked for."""
        value = None if version is None else self.values.get((ns, channel, version))
        if value is None or "items" not in value.data:
            return None
        items: list[Packed] = []
        links: list[Mapping[str, Any]] = []
        known_id, known_items = self._last.get((ns, channel), (None, items))
        for link in self._chain(value):
            if link.data["id"] == known_id:
                items = known_items  # goes on from there: a thread mostly grows at its end
                break
            links.append(link.data)
        else:
            if links[-1]["base"] is not None:
                return None  # what it is based on is gone
        for link in reversed(links):
            del items[link["keep"] :]
            items += link["items"]
        self._last[ns, channel] = (value.data["id"], items)
        return items

    def _chain(self, value: ChannelValue) -> Iterator[ChannelValue]:
        """A value, then the lists that it is based on, one after the other."""
        at: ChannelValue | None = value
        while at is not None:
            yield at
            base: str | None = at.data.get("base")
            at = None if base is None else self._lists.get(base)

    def listing(
        self, ns: str, channel: str, before: Version | None, items: list[Packed]
    ) -> dict[str, Any]:
        """A list as what it adds to the one before."""
        made = new_id().hex
        base = self.listed(ns, channel, before)
        if base is None or before is None:
            return {"id": made, "items": items, "base": None, "keep": 0}
        shared = min(len(base), len(items))
        keep = next((at for at in range(shared) if base[at] != items[at]), shared)
        on: str = self.values[ns, channel, before].data["id"]
        return {"id": made, "items": items[keep:], "base": on, "keep": keep}

    def ordered_writes(self, ns: str, id: str) -> Iterator[tuple[str, TaskWrite]]:
        """Yield what tasks wrote after a checkpoint, in the order in which it is applied."""
        held = self.writes.get((ns, id), {})
        for task, index in sorted(held, key=lambda one: (held[one].path, *one)):
            yield task, held[task, index]

    def keys(self) -> Iterator[CheckpointKey]:
        """All checkpoints."""
        return ((ns, id) for ns, held in self.checkpoints.items() for id in held)

    def of_runs(self, runs: Collection[str]) -> list[CheckpointKey]:
        """The checkpoints that runs have made."""
        return [(ns, id) for ns, id in self.keys() if self.checkpoints[ns][id].run in runs]

    def superseded(self) -> list[CheckpointKey]:
        """All but the newest checkpoint of each namespace, and those it is rebuilt from."""
        kept = {
            (ns, id)
            for ns, held in self.checkpoints.items()
            for id in self._with_ancestors(ns, max(held))
        }
        return [key for key in self.keys() if key not in kept]

    def _with_ancestors(self, ns: str, id: str) -> set[str]:
        """A checkpoint and those before it that its delta channels are rebuilt from."""
        found, held = {id}, self.checkpoints[ns]
        missing = set(held[id].deltas)
        at = held[id].parent
        while missing and at is not None and at in held:
            found.add(at)
            one = held[at]
            missing -= {name for name in missing if self._has_value(ns, name, one)}
            at = one.parent
        return found

    def _has_value(self, ns: str, channel: str, checkpoint: CheckpointRecord) -> bool:
        version = checkpoint.versions.get(channel)
        value = None if version is None else self.values.get((ns, channel, version))
        return value is not None and bool(value.data)

    def without(
        self, gone: Collection[CheckpointKey]
    ) -> tuple[set[UUID], list[tuple[str, str, Version, bool, Mapping[str, Any]]]]:
        """The messages to erase with some checkpoints, and the values in them that others need."""
        dropped = set(gone)
        erased = {message for key in dropped for message in self._messages.get(key, ())}
        needed = {
            id(value): value
            for ns, held in self.checkpoints.items()
            for name, one in held.items()
            if (ns, name) not in dropped
            for value in self._needed(ns, one)
        }
        moved = [value for value in needed.values() if value.message in erased]
        return erased | self._orphaned(needed.values(), erased), [
            (*value.key, self.values.get(value.key) is value, value.data) for value in moved
        ]

    def _needed(self, ns: str, checkpoint: CheckpointRecord) -> Iterator[ChannelValue]:
        for channel, version in checkpoint.versions.items():
            value = self.values.get((ns, channel, version))
            if value is not None:
                yield from self._chain(value)

    def _orphaned(self, needed: Iterable[ChannelValue], erased: set[UUID]) -> set[UUID]:
        """Messages of values alone, of which none is needed any more."""
        putting = {message for held in self._messages.values() for message in held}
        useful = {value.message for value in needed}
        every = {one.message for held in (self.values, self._lists) for one in held.values()}
        return every - putting - useful - erased

"""The checkpoints of one LangGraph thread, folded from the records of its log; pure.

What one step costs must not grow with the thread. The framework hands over whole channel values,
and of most of them a whole is what has to be kept; but a list, such as the messages of a chat, is
kept as what it adds to the list that the checkpoint before has: where the two part, and what comes
after. Nothing is read back but what a checkpoint needs.

A record says one of: a checkpoint with the values that are new in it ("put"), what tasks wrote on
the way to the next one ("writes"), values that others still need after their checkpoint is gone
("values").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

Packed: TypeAlias = list[str]
"""What the serialiser gave: the type, and the bytes in base64."""
Version: TypeAlias = str | int | float
ValueKey: TypeAlias = tuple[str, str, Version]
"""Namespace, channel, version."""
CheckpointKey: TypeAlias = tuple[str, str]
"""Namespace, checkpoint id."""


@dataclass(frozen=True, slots=True)
class Value:
    """A channel's value in one version, and the message that holds it."""

    message: UUID
    data: Mapping[str, Any]
    """{}: no value; {"whole": Packed}; or {"items": […], "base": Version | None, "keep": n}."""


@dataclass(frozen=True, slots=True)
class Kept:
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
class Written:
    """One write of a task."""

    message: UUID
    path: str
    channel: str
    value: Packed


@dataclass(slots=True)
class Thread:
    """All that is known of a thread."""

    checkpoints: dict[str, dict[str, Kept]] = field(default_factory=dict[str, dict[str, Kept]])
    """By namespace and id."""
    values: dict[ValueKey, Value] = field(default_factory=dict[ValueKey, Value])
    writes: dict[CheckpointKey, dict[tuple[str, int], Written]] = field(
        default_factory=dict[CheckpointKey, dict[tuple[str, int], Written]]
    )
    _last: dict[tuple[str, str], tuple[Version, list[Packed]]] = field(
        default_factory=dict[tuple[str, str], tuple[Version, list[Packed]]]
    )
    """The list that was last looked at, by namespace and channel."""

    def take(self, message: UUID, record: Mapping[str, Any]) -> None:
        """Fold in one record."""
        match record:
            case {"put": one}:
                self._take_values(message, one["ns"], one["values"])
                self.checkpoints.setdefault(one["ns"], {})[one["id"]] = Kept(
                    message,
                    one["parent"],
                    one["versions"],
                    one["run"],
                    one["body"],
                    one["metadata"],
                    tuple(one["deltas"]),
                )
            case {"writes": one}:
                self._take_writes(message, one)
            case {"values": one}:
                for ns, channel, version, data in one:
                    self.values[ns, channel, version] = Value(message, data)
            case _:
                pass  # of a later version of this module

    def _take_values(self, message: UUID, ns: str, values: Iterable[Any]) -> None:
        for channel, version, data in values:
            self.values[ns, channel, version] = Value(message, data)

    def _take_writes(self, message: UUID, one: Mapping[str, Any]) -> None:
        held = self.writes.setdefault((one["ns"], one["id"]), {})
        for index, channel, value in one["writes"]:
            # A task that runs again gives the same; only the marks (negative) may change.
            if index < 0 or (one["task"], index) not in held:
                held[one["task"], index] = Written(message, one["path"], channel, value)

    def latest(self, ns: str) -> str | None:
        """The newest checkpoint of a namespace; their ids are in order of time."""
        return max(self.checkpoints.get(ns, ()), default=None)

    def listed(self, ns: str, channel: str, version: Version | None) -> list[Packed] | None:
        """The items of a list that was kept as one; good until the next list is asked for."""
        if version is None:
            return None
        items: list[Packed] = []
        links: list[Mapping[str, Any]] = []
        known = self._last.get((ns, channel))
        at: Version | None = version
        while at is not None:
            if known is not None and known[0] == at:
                items = known[1]  # goes on from there: a thread mostly grows at its end
                break
            value = self.values.get((ns, channel, at))
            if value is None or "items" not in value.data:
                return None
            links.append(value.data)
            at = value.data["base"]
        for link in reversed(links):
            del items[link["keep"] :]
            items += link["items"]
        self._last[ns, channel] = (version, items)
        return items

    def listing(
        self, ns: str, channel: str, before: Version | None, items: list[Packed]
    ) -> dict[str, Any]:
        """A list as what it adds to the one before."""
        base = self.listed(ns, channel, before)
        if base is None:
            return {"items": items, "base": None, "keep": 0}
        shared = min(len(base), len(items))
        keep = next((at for at in range(shared) if base[at] != items[at]), shared)
        return {"items": items[keep:], "base": before, "keep": keep}

    def ordered_writes(self, ns: str, id: str) -> Iterator[tuple[str, Written]]:
        """What tasks wrote after a checkpoint, in the order in which it is applied."""
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

    def _has_value(self, ns: str, channel: str, checkpoint: Kept) -> bool:
        version = checkpoint.versions.get(channel)
        value = None if version is None else self.values.get((ns, channel, version))
        return value is not None and bool(value.data)

    def without(
        self, gone: Collection[CheckpointKey]
    ) -> tuple[set[UUID], list[tuple[str, str, Version, Mapping[str, Any]]]]:
        """The messages to erase with some checkpoints, and the values in them that others need."""
        dropped = set(gone)
        erased = {self.checkpoints[ns][id].message for ns, id in dropped}
        for key in dropped:
            erased |= {one.message for one in self.writes.get(key, {}).values()}
        needed = {
            key
            for ns, held in self.checkpoints.items()
            for id, one in held.items()
            if (ns, id) not in dropped
            for key in self._needed(ns, one)
        }
        return erased | self._orphaned(needed, erased), [
            (*key, self.values[key].data) for key in needed if self.values[key].message in erased
        ]

    def _needed(self, ns: str, checkpoint: Kept) -> Iterator[ValueKey]:
        for channel, version in checkpoint.versions.items():
            at: Version | None = version
            while at is not None and (value := self.values.get((ns, channel, at))) is not None:
                yield ns, channel, at
                at = value.data.get("base")

    def _orphaned(self, needed: set[ValueKey], erased: set[UUID]) -> set[UUID]:
        """Messages of values alone, of which none is needed any more."""
        putting = {one.message for held in self.checkpoints.values() for one in held.values()}
        useful = {self.values[key].message for key in needed}
        return {one.message for one in self.values.values()} - putting - useful - erased

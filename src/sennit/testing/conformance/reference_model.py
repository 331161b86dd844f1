"""A reference model: after random writes the store must agree with dicts and lists.

The writes are drawn from a seed, so that failures are reproducible. After the writes the loaded
session is compared with the model; observers that refresh through `changes` in between must see the
same histories as a full load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

from sennit.errors import SennitError
from sennit.ids import new_id
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    ChangeBranch,
    MessageRecord,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    SegmentRecord,
    Snapshot,
)
from sennit.testing.conformance.fixtures import (
    Scenario,
    View,
    branch,
    ids,
    message,
    raises,
    same,
    segment,
)

_WRITES = 150
_ALL = 100_000
_LATE = 2**62  # after all that ever happens


@dataclass
class _Model:
    """The expected session: messages, and each branch with its whole history."""

    scene: Scenario
    random: Random
    erases: bool = False
    """Whether messages on branches are erased too, which `changes` does not report."""
    messages: dict[UUID, MessageRecord] = field(default_factory=dict[UUID, MessageRecord])
    branches: dict[UUID, BranchRecord] = field(default_factory=dict[UUID, BranchRecord])
    histories: dict[UUID, list[UUID]] = field(default_factory=dict[UUID, list[UUID]])
    named: int = 0

    def step(self) -> None:
        """Apply one random write to the model and to the store."""
        if not self.branches:
            return self.add_branch()
        likely: list[tuple[Callable[[], None], int]] = [
            (self.append_new, 10),
            (self.append_old, 3),
            (self.append_again, 2),
            (self.add_branch, 1),
            (self.fork, 4),
            (self.rewrite, 3),
            (self.change, 2),
            (self.rename, 2),
            (self.remove_branch, 2),
            (self.erase_hidden, 2),
            (self.erase_removed, 1),
            (self.erase_any, 1),
            (self.fail, 2),
        ]
        steps, weights = zip(*likely, strict=True)
        return self.random.choices(steps, weights)[0]()

    def check(self, view: View, *, loaded: bool) -> None:
        """Assert that a view equals the model."""
        same(view.branches, self._listed(), "The branches")
        for uid, record in self.branches.items():
            same(view.history(uid), self.histories[uid], f"The history of {record.name!r}")
            assert {*self.histories[uid]} <= {*view.messages}, "A history without its messages."
        if loaded:
            same(list(view.messages.values()), list(self.messages.values()), "The messages")
            self.check_found()

    def check_found(self) -> None:
        """Assert that a search finds exactly the messages on branches."""
        store, home = self.scene.store, self.scene.id
        same(self.scene.found("message", here=True), self._shown(), "What is found")
        gone = store.removed(self.scene.owner, home, _LATE, _ALL)
        removed = self.messages.keys() - self._shown()
        same({one.message for one in gone}, removed, "What was removed from its last branch")
        names = store.branches_holding(self.scene.owner, home, list(self.messages))
        same(names.keys(), self._shown(), "What stands on a branch")
        by_name = {record.name: record for record in self.branches.values()}
        for uid, name in names.items():
            record = by_name[name]
            assert uid in (*self.histories[record.id], record.system), "It stands elsewhere."

    def _shown(self) -> set[UUID]:
        shown = {uid for history in self.histories.values() for uid in history}
        return shown | {record.system for record in self.branches.values() if record.system}

    def append_new(self) -> None:
        records = [self._message() for _ in range(self.random.randint(1, 4))]
        self._append(self._any(), ids(records), AddMessages(tuple(records)))

    def append_old(self) -> None:
        record = self._any()
        standing = set(self.histories[record.id])
        free = [uid for uid in self.messages if uid not in standing]
        self._append(record, tuple(self.random.sample(free, min(2, len(free)))))

    def append_again(self) -> None:
        record = self._any()
        if history := self.histories[record.id]:
            at = self.random.randrange(len(history))
            self.scene.write(Append(record.id, tuple(history[at : at + 3])))

    def add_branch(self) -> None:
        records = [self._message() for _ in range(self.random.randint(0, 3))]
        self._put(segment(ids(records)), list(ids(records)), AddMessages(tuple(records)))

    def fork(self) -> None:
        source = self._any()
        history = self.histories[source.id]
        at = self.random.randint(0, len(history))
        self._put(segment((), self._holder(source, at), at), history[:at])

    def rewrite(self) -> None:
        record = self._any()
        history = self.histories[record.id]
        at = self.random.randint(0, len(history))
        rest = history[at:]
        self.random.shuffle(rest)
        del rest[: self.random.randint(0, 2)]
        on = segment(rest, self._holder(record, at), at)
        change = ChangeBranch(replace(record, segment=on.id), on)
        self.scene.write(change)
        if self.random.random() < 0.3:
            self.scene.write(change)
        self.histories[record.id] = [*history[:at], *rest]
        self._keep(replace(record, segment=on.id, length=len(rest), version=record.version + 1))

    def change(self) -> None:
        record = self._any()
        system = self.random.choice([None, *self.messages])
        wanted = replace(record, system=system, resources=frozenset({f"{self.random.random()}"}))
        self.scene.write(ChangeBranch(wanted))
        self._keep(replace(wanted, version=wanted.version + 1))

    def rename(self) -> None:
        record, name = self._any(), f"renamed {self.random.random()}"
        self.scene.write(RenameBranch(record.id, name))
        self._keep(replace(record, name=name))

    def remove_branch(self) -> None:
        record = self._any()
        self.scene.write(RemoveBranch(record.id))
        del self.branches[record.id], self.histories[record.id]

    def erase_hidden(self) -> None:
        shown = self._shown()
        self._erase([uid for uid in self.messages if uid not in shown])

    def erase_removed(self) -> None:
        removed = sorted(self.messages.keys() - self._shown())
        erased = self.scene.store.erase_removed(self.scene.owner, self.scene.id, _LATE)
        same(sorted(erased), removed, "What was erased of what had been removed")
        for uid in removed:
            del self.messages[uid]

    def erase_any(self) -> None:
        if self.erases:
            self._erase(list(self.messages))

    def fail(self) -> None:
        one, record, on = message("lost"), self._any(), segment()
        changes: list[Change] = [
            AddMessages((one,)),
            Append(record.id, (one.id,)),
            AddBranch(branch("lost", on), on),
            RemoveBranch(record.id),
            RemoveBranch(new_id()),
        ]
        raises(SennitError, lambda: self.scene.write(*changes), "A write that must fail")

    def _erase(self, likely: list[UUID]) -> None:
        gone = set(self.random.sample(likely, min(2, len(likely))))
        self.scene.write(RemoveMessages(tuple(gone)))
        for uid in gone:
            del self.messages[uid]
        stored = self.scene.load().branches
        for record in list(self.branches.values()):
            history = self.histories[record.id]
            if gone.isdisjoint((*history, record.system)):
                continue
            current = stored[record.id]
            assert current.version > record.version, "A branch lost a message, not its version."
            self.histories[record.id] = [uid for uid in history if uid not in gone]
            system = None if record.system in gone else record.system
            self._keep(
                replace(record, system=system, length=current.length, version=current.version)
            )

    def _any(self) -> BranchRecord:
        return self.random.choice(list(self.branches.values()))

    def _listed(self) -> dict[UUID, BranchRecord]:
        ordered = sorted(self.branches.values(), key=lambda one: (one.created, one.id))
        return {record.id: record for record in ordered}

    def _message(self) -> MessageRecord:
        one = message(f"message {self.random.random()}")
        self.messages[one.id] = one
        return one

    def _append(self, record: BranchRecord, entries: tuple[UUID, ...], *before: Change) -> None:
        heads = self.scene.write(*before, Append(record.id, entries)).heads
        same(heads[0].length, record.length, "The head before an append")
        self.histories[record.id] += entries
        self._keep(replace(record, length=record.length + len(entries)))

    def _put(self, on: SegmentRecord, history: list[UUID], *before: Change) -> None:
        self.named += 1
        record = branch(f"branch {self.named}", on)
        self.scene.write(*before, AddBranch(record, on))
        self.histories[record.id] = list(history)
        self._keep(record)

    def _keep(self, record: BranchRecord) -> None:
        self.branches[record.id] = record

    def _holder(self, record: BranchRecord, at: int) -> UUID | None:
        return self.scene.load().holder(record.segment, at - 1) if at else None


class _Observer:
    """A reader that loads once and then refreshes incrementally."""

    def __init__(self, scene: Scenario) -> None:
        self.scene = scene
        self.snapshot = scene.store.load(scene.owner, scene.id)

    def refresh_or_load(self) -> View:
        """Refresh incrementally, or reload if a branch is gone or has another version."""
        new = self.scene.store.changes(self.scene.owner, self.scene.id, {})
        versions = {record.id: record.version for record in new.branches}
        if any(versions.get(one.id) != one.version for one in self.snapshot.branches):
            self.snapshot = self.scene.store.load(self.scene.owner, self.scene.id)
        return self.refresh()

    def refresh(self) -> View:
        """Apply the changes; return the complete view."""
        old = {part.id: part for part in self.snapshot.segments}
        known = {uid: len(part.entries) for uid, part in old.items()}
        new = self.scene.store.changes(self.scene.owner, self.scene.id, known)
        for part in new.segments:
            before = old[part.id].entries if part.id in old else ()
            old[part.id] = replace(part, entries=before + part.entries)
        texts = {one.id: one for one in [*self.snapshot.messages, *new.messages]}
        self.snapshot = Snapshot(
            new.session, list(texts.values()), list(old.values()), new.branches
        )
        return View(self.snapshot)


def _observed(
    model: _Model, observers: list[_Observer], refresh: Callable[[_Observer], View]
) -> None:
    """Apply random writes; let an observer refresh now and then, and all of them at the end."""
    for _ in range(_WRITES):
        model.step()
        if model.random.random() < 0.3:
            model.check(refresh(model.random.choice(observers)), loaded=False)
    for observer in observers:
        model.check(refresh(observer), loaded=False)


def random_writes_agree_with_a_plain_model_all_along(s: Scenario) -> None:
    model = _Model(s, Random(3), erases=True)
    for _ in range(_WRITES):
        model.step()
        model.check(s.load(), loaded=True)
    model.check(s.changes({}), loaded=False)


def changes_from_any_earlier_point_lead_to_what_is_loaded(s: Scenario) -> None:
    model, observers = _Model(s, Random(5)), list[_Observer]()
    for step in range(_WRITES):
        model.step()
        if step % 30 == 0:
            observers.append(_Observer(s))
    for observer in observers:
        model.check(observer.refresh(), loaded=False)


def observers_who_refresh_now_and_then_see_the_same(s: Scenario) -> None:
    _observed(_Model(s, Random(6)), [_Observer(s) for _ in range(3)], _Observer.refresh)


def observers_who_load_when_a_version_changed_notice_erasures(s: Scenario) -> None:
    model = _Model(s, Random(10), erases=True)
    _observed(model, [_Observer(s) for _ in range(3)], _Observer.refresh_or_load)


def sessions_written_to_in_turns_stay_apart(s: Scenario) -> None:
    models = [_Model(s.beside(), Random(seed), erases=True) for seed in (7, 8, 9)]
    for step in range(300):
        models[step % 3].step()
    for model in models:
        model.check(model.scene.load(), loaded=True)

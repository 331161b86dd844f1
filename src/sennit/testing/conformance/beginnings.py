"""A branch taken together with what a run writes first: all of it where nobody was there since."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from sennit.errors import ConflictError, SennitError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.commits import AddCommit, CommitRecord
from sennit.stores.records import (
    AddEvents,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    Head,
    MessageRecord,
    PutRun,
    RunRecord,
    Standing,
    TakeLease,
    Taken,
    Write,
)
from sennit.testing.conformance.scene import NOON, OWNER, Notes, Scene, message, raises, same, told

_TTL = 60_000_000


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that is about to begin on a branch it knows."""

    branch: BranchRecord
    known: Standing
    said: MessageRecord
    holder: str = "ada"

    @classmethod
    def on(cls, scene: Scene) -> _Run:
        record = scene.branch("main", "one")
        known = Standing(record.segment, length=1, version=0, seq=0, token=0, commits=0)
        return cls(record, known, message("two"))

    @property
    def changes(self) -> tuple[Change, ...]:
        branch, token = self.branch.id, self.known.token + 1
        run = RunRecord(self.said.id, branch, "running", NOON, NOON, b"{}")
        return (
            TakeLease(branch, self.holder, _TTL, self.known),
            AddMessages((self.said,)),
            Append(branch, (self.said.id,)),
            PutRun(run, token),
            AddEvents(branch, tuple(told(run, self.known.seq + 1, self.known.seq + 2)), token),
        )

    def write(self, scene: Scene) -> Write:
        return Write(scene.owner, scene.id, self.changes)


def _taken(heads: list[Head]) -> Taken:
    taken = heads[0].taken
    assert taken is not None, "Taking a lease tells of it"
    return taken


def what_follows_a_lease_is_done_where_the_branch_stands_as_known(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    heads = scene.write(*run.changes)
    same(_taken(heads).as_known, True, "Whether it stood as known")
    same([head.length for head in heads], [1, 1], "Where it stood, and where the message was put")
    same(scene.said(), ["one", "two"], "The branch")
    same(store.last_event(OWNER, scene.id, run.branch.id), 2, "The last event")
    last = store.last_run(OWNER, scene.id, run.branch.id)
    same(last and last.state, "running", "The run")


def the_lease_that_was_taken_so_is_one_like_any_other(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    lease = _taken(scene.write(*run.changes)).lease
    same(lease.token, run.known.token + 1, "Its token is the next one")
    again = store.renew(OWNER, scene.id, lease, _TTL)
    same(again.token, lease.token, "It can be renewed")
    other = TakeLease(run.branch.id, "bob", _TTL)
    raises(ConflictError, lambda: scene.write(other), "Taking a held branch")


def a_branch_that_stands_otherwise_is_taken_and_nothing_else_is_done(store: Store) -> None:
    for field, value in (
        ("segment", new_id()),
        ("length", 0),
        ("version", 1),
        ("seq", 1),
        ("token", 1),
        ("commits", 1),
    ):
        scene = Scene(store)
        run = _Run.on(scene)
        wrong = _Run(run.branch, replace(run.known, **{field: value}), run.said)
        heads = scene.write(*wrong.changes)
        same((len(heads), _taken(heads).as_known), (1, False), f"Heads with another {field}")
        same(scene.said(), ["one"], "The branch")
        same(store.runs(OWNER, scene.id, run.branch.id), [], "Its runs")
        same(store.last_event(OWNER, scene.id, run.branch.id), 0, "Its last event")
        same(_taken(heads).lease.token > run.known.token + 1, True, "A token nobody reckons with")
        store.renew(OWNER, scene.id, _taken(heads).lease, _TTL)


def what_others_have_done_on_a_branch_is_noticed(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    scene.append(run.branch.id, "meanwhile")
    heads = scene.write(*run.changes)
    same((heads[0].length, _taken(heads).as_known), (2, False), "How the branch stands")
    same(scene.said(), ["one", "meanwhile"], "The branch")


def a_commit_of_the_session_is_noticed(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    entry = scene.load().history(run.branch.id)[0]
    made = CommitRecord(new_id(), 1, run.branch.id, NOON, "committed", (entry,))
    scene.write(AddCommit(made))
    taken = _taken(scene.write(*run.changes))
    same((taken.as_known, taken.commits), (False, 1), "How the session stands")


def a_run_that_was_there_is_told_of_where_the_branch_stands_otherwise(store: Store) -> None:
    scene = Scene(store)
    notes = Notes(scene)
    noted = notes.run()
    notes.add(*told(noted, 1))
    record = scene.stored(notes.branch)
    known = Standing(record.segment, record.length, record.version, 0, 1, 0)
    taken = _taken(scene.write(*_Run(record, known, message("two")).changes))
    same((taken.as_known, taken.seq), (False, 1), "How the branch stands")
    same(taken.run and taken.run.id, noted.id, "The run")


def a_write_whose_acknowledgement_was_lost_is_made_once(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    first = _taken(scene.write(*run.changes)).lease
    taken = _taken(scene.write(*run.changes))
    same((taken.as_known, taken.lease.token), (True, first.token), "The same lease")
    same(scene.said(), ["one", "two"], "The branch")
    same(store.last_event(OWNER, scene.id, run.branch.id), 2, "The last event")


def a_branch_that_another_holds_is_refused_with_all_that_follows(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    # With the very token that is reckoned with.
    store.acquire(OWNER, scene.id, run.branch.id, "bob", _TTL)
    raises(ConflictError, lambda: scene.write(*run.changes), "Taking a held branch")
    (refused,) = store.write_many([run.write(scene)])
    same(isinstance(refused, ConflictError), True, "Taking it in a group is refused")
    same(scene.said(), ["one"], "The branch")
    same(store.runs(OWNER, scene.id, run.branch.id), [], "Its runs")


def beginnings_of_a_group_succeed_or_fail_alone(store: Store) -> None:
    scenes = [Scene(store) for _ in range(4)]
    good, stale, held, last = (_Run.on(scene) for scene in scenes)
    scenes[1].append(stale.branch.id, "meanwhile")
    store.acquire(OWNER, scenes[2].id, held.branch.id, "bob", _TTL)
    runs = (good, stale, held, last)
    writes = [run.write(scene) for run, scene in zip(runs, scenes, strict=True)]
    made = store.write_many(writes)
    counts = ["refused" if isinstance(one, SennitError) else len(one) for one in made]
    same(counts, [2, 1, "refused", 2], "Heads")
    same(
        [scene.said() for scene in scenes],
        [["one", "two"], ["one", "meanwhile"], ["one"], ["one", "two"]],
        "The branches",
    )


def a_run_begins_and_ends_in_two_writes(store: Store) -> None:
    scene = Scene(store)
    run = _Run.on(scene)
    for turn in range(3):
        token = run.known.token + 1
        made = store.write_many([run.write(scene)])
        same([isinstance(one, SennitError) for one in made], [False], "Whether it was refused")
        record = RunRecord(run.said.id, run.branch.id, "ended", NOON, NOON, b"{}")
        scene.write(PutRun(record, token, release=True))
        known = replace(run.known, length=turn + 2, seq=2 * turn + 2, token=token)
        run = _Run(run.branch, known, message(f"turn {turn}"), f"holder {turn}")
    same(scene.said(), ["one", "two", "turn 0", "turn 1"], "The branch")
    same(len(store.runs(OWNER, scene.id, run.branch.id)), 3, "Its runs")

"""Rewrites that reuse the entries of other segments instead of listing them again."""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import ConflictError, ExistsError, NotFoundError, SennitError, ValidationError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddBranch, BranchRecord, ChangeBranch, SegmentRecord
from sennit.testing.conformance.fixtures import StoreFixture, branch, raises, same, segment


class _Braid:
    """A branch "main" with "abc" in one segment and "de" in a segment on top of it."""

    def __init__(self, store: Store) -> None:
        self.scene = scene = StoreFixture(store)
        first = scene.branch("main", *"abc")
        upper = segment((), first.segment, 3)
        scene.write(ChangeBranch(replace(first, segment=upper.id), upper))
        scene.append(first.id, *"de")
        self.lower, self.upper = first.segment, upper.id
        self.ids = dict(zip("abcde", scene.load().messages, strict=True))

    @property
    def main(self) -> BranchRecord:
        return self.scene.stored(self.scene.load().named("main").id)

    def rewrite(self, texts: str, **fields: object) -> ChangeBranch:
        """Return a rewrite that puts `texts` before the entries of the upper segment."""
        below = segment([self.ids[text] for text in texts])
        above = SegmentRecord(new_id(), below.id, len(texts), (), self.upper)
        above = replace(above, **fields)  # pyright: ignore[reportArgumentType]
        return ChangeBranch(replace(self.main, segment=above.id), below, (above,))


def a_rewrite_takes_over_what_comes_after_it(store: Store) -> None:
    braid = _Braid(store)
    change = braid.rewrite("ca")
    braid.scene.write(change)
    same(braid.scene.texts(), list("cade"), "The branch")
    same(braid.main.segment, change.above[0].id, "The segment it ends with")
    same(braid.main.length, 2, "How many entries that has")
    same(len(braid.scene.load().segments), 2, "Segments")
    braid.scene.append(braid.main.id, "f")
    same(braid.scene.texts(), list("cadef"), "The branch, with one more")


def a_fork_keeps_what_a_rewrite_takes_over(store: Store) -> None:
    braid = _Braid(store)
    fork = braid.scene.fork(braid.main.id, "fork")
    part = braid.scene.fork(braid.main.id, "part", at=4)
    braid.scene.write(braid.rewrite("b"))
    braid.scene.append(braid.main.id, "f")
    braid.scene.append(fork.id, "g")
    braid.scene.append(part.id, "h")
    same(braid.scene.texts(), list("bdef"), "The branch")
    same(braid.scene.texts("fork"), list("abcdeg"), "A fork of all of it")
    same(braid.scene.texts("part"), list("abcdh"), "A fork of a part of it")


def one_may_be_taken_over_again_and_again(store: Store) -> None:
    braid = _Braid(store)
    for texts in ("ab", "b", "", "cba"):
        change = braid.rewrite(texts)
        braid.scene.write(change)
        braid.upper = change.above[0].id
        same(braid.scene.texts(), list(texts + "de"), "The branch")
    same(len(braid.scene.load().segments), 2, "Segments")


def a_rewrite_that_takes_over_is_made_once(store: Store) -> None:
    braid = _Braid(store)
    change = braid.rewrite("b")
    braid.scene.write(change)
    version = braid.main.version
    braid.scene.write(change)
    same(braid.scene.texts(), list("bde"), "The branch")
    same(braid.main.version, version, "Its version")


def a_rewrite_that_takes_over_is_refused_if_the_branch_has_grown(store: Store) -> None:
    braid = _Braid(store)
    change = braid.rewrite("b")
    braid.scene.append(braid.main.id, "f")
    raises(ConflictError, lambda: braid.scene.write(change), "A rewrite that missed an append")
    same(braid.scene.texts(), list("abcdef"), "The branch")


def what_cannot_be_taken_over_changes_nothing(store: Store) -> None:
    braid = _Braid(store)
    wrong: list[tuple[type[SennitError], ChangeBranch]] = [
        (NotFoundError, braid.rewrite("b", taken=new_id())),
        (NotFoundError, braid.rewrite("b", base=new_id())),
        (ValidationError, braid.rewrite("b", offset=2)),
        (ValidationError, braid.rewrite("b", offset=-1)),
        (ExistsError, braid.rewrite("b", id=braid.lower)),
    ]
    before = braid.scene.load()
    for kind, change in wrong:
        raises(kind, lambda change=change: braid.scene.write(change), "A wrong rewrite")
        after = braid.scene.load()
        same(after.segments, before.segments, "The segments")
        same(after.branches, before.branches, "The branches")


def nobody_builds_on_what_was_taken_over(store: Store) -> None:
    braid = _Braid(store)
    braid.scene.write(braid.rewrite("b"))
    on = segment((), braid.upper, 4)
    late = AddBranch(branch("late", on), on)
    raises(NotFoundError, lambda: braid.scene.write(late), "A fork of what is no more")


def a_message_is_erased_from_what_was_taken_over(store: Store) -> None:
    braid = _Braid(store)
    fork = braid.scene.fork(braid.main.id, "fork", at=4)
    braid.scene.write(braid.rewrite("ba"))
    late = braid.scene.fork(braid.main.id, "late", at=3)
    braid.scene.append(late.id, "x")
    records = braid.scene.load().messages
    braid.scene.forget(records[braid.ids["b"]], records[braid.ids["d"]])
    same(braid.scene.texts(), list("ae"), "The branch")
    same(braid.scene.texts("fork"), list("ac"), "A fork from before")
    same(braid.scene.texts("late"), list("ax"), "A fork from after")
    braid.scene.append(fork.id, "y")
    same(braid.scene.texts("fork"), list("acy"), "A fork from before, with one more")


def others_find_what_was_taken_over(store: Store) -> None:
    braid = _Braid(store)
    known = {uid: len(part.entries) for uid, part in braid.scene.load().segments.items()}
    braid.scene.write(braid.rewrite("b"))
    view = braid.scene.changes(known)
    same(view.texts("main"), list("bde"), "The branch, through changes")

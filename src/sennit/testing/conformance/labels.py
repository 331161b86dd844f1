"""Labels: one per message and judge, deleted with the message."""

from __future__ import annotations

from uuid import UUID

from sennit.errors import NotFoundError, SennitError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import LabelRecord, PutLabels, RemoveMessages
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    StoreFixture,
    empty,
    ids,
    raises,
    same,
)


class _Judged:
    """A session with messages to label."""

    def __init__(self, store: Store) -> None:
        self.scene, self.store = StoreFixture(store), store
        self.branch = self.scene.branch("main").id
        self.first, self.second = ids(self.scene.append(self.branch, "one", "two"))

    def put(
        self, message: UUID, score: float | None, judge: str = "ann", at: int = NOON
    ) -> LabelRecord:
        label = LabelRecord(message, judge, score, at)
        self.scene.write(PutLabels((label,)))
        return label

    def labels(self) -> list[LabelRecord]:
        return self.store.labels(OWNER, self.scene.id)


def a_session_that_nobody_judged_has_no_labels(store: Store) -> None:
    empty("Labels", _Judged(store).labels())


def labels_of_an_unknown_session_are_not_found(store: Store) -> None:
    judged = _Judged(store)
    judged.scene.id = new_id()
    raises(NotFoundError, judged.labels, "Asking in an unknown session")


def labels_come_back_as_they_were_given_the_oldest_first(store: Store) -> None:
    judged = _Judged(store)
    late = judged.put(judged.first, 0.1 + 0.2, at=NOON + 1)
    early = judged.put(judged.second, -1e300, judge="Bö'b\n", at=NOON)
    same(judged.labels(), [early, late], "The labels")


def a_judge_has_one_label_per_message_and_the_last_one_counts(store: Store) -> None:
    judged = _Judged(store)
    judged.put(judged.first, 0.0)
    other = judged.put(judged.first, 0.5, judge="bob", at=NOON + 1)
    last = judged.put(judged.first, 1.0, at=NOON + 2)
    same(judged.labels(), [other, last], "The labels")


def a_label_without_a_score_takes_the_judges_last_one_back(store: Store) -> None:
    judged = _Judged(store)
    judged.put(judged.first, 0.0)
    other = judged.put(judged.first, 0.5, judge="bob")
    judged.put(judged.first, None)
    judged.put(judged.second, None)
    same(judged.labels(), [other], "The labels")


def a_message_that_is_not_there_cannot_be_judged(store: Store) -> None:
    judged = _Judged(store)
    good = LabelRecord(judged.first, "ann", 1.0, NOON)
    bad = LabelRecord(new_id(), "ann", 1.0, NOON)
    raises(NotFoundError, lambda: judged.scene.write(PutLabels((good, bad))), "An unknown message")
    empty("Labels", judged.labels())


def labels_are_erased_with_their_message(store: Store) -> None:
    judged = _Judged(store)
    judged.put(judged.first, 1.0)
    label = judged.put(judged.second, 1.0)
    judged.scene.write(RemoveMessages((judged.first,)))
    same(judged.labels(), [label], "The labels")


def labels_are_erased_with_their_session(store: Store) -> None:
    judged = _Judged(store)
    judged.put(judged.first, 1.0)
    store.delete_session(OWNER, judged.scene.id)
    raises(NotFoundError, judged.labels, "A deleted session")


def what_another_owner_thinks_of_it_is_refused(store: Store) -> None:
    judged = _Judged(store)
    label = PutLabels((LabelRecord(judged.first, "bob", 0.0, NOON),))
    raises(
        NotFoundError, lambda: store.write(STRANGER, judged.scene.id, [label]), "Another's session"
    )
    raises(NotFoundError, lambda: store.labels(STRANGER, judged.scene.id), "Another's labels")
    empty("Labels", judged.labels())


def labels_are_kept_or_refused_with_the_rest_of_a_write(store: Store) -> None:
    judged = _Judged(store)
    label = PutLabels((LabelRecord(judged.first, "ann", 1.0, NOON),))
    wrong = PutLabels((LabelRecord(new_id(), "ann", 1.0, NOON),))
    raises(SennitError, lambda: judged.scene.write(label, wrong), "A write that fails half-way")
    empty("Labels", judged.labels())

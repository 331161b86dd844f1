"""Labels: one per message and judge, deleted with the message."""

from __future__ import annotations

from sennit.stores.records.sessions import LabelRecord, PutLabels
from sennit.testing.conformance.fixtures import NOON, OWNER, Scenario, same


def _label(
    s: Scenario, text: str, score: float | None, judge: str = "ann", at: int = 0
) -> LabelRecord:
    """Label a message."""
    label = LabelRecord(s[text], judge, score, NOON + at)
    s.write(PutLabels((label,))).again()
    return label


def _labelled(s: Scenario, *labels: LabelRecord) -> None:
    same(s.store.labels(OWNER, s.id), list(labels), "The labels")


def labels_come_back_as_they_were_given_the_oldest_first(s: Scenario) -> None:
    _labelled(s.branch("main", "ab"))
    late = _label(s, "a", 0.1 + 0.2, at=1)
    early = _label(s, "b", -1e300, judge="Bö'b\n")
    _labelled(s, early, late)


def a_judge_has_one_label_per_message_and_the_last_one_counts(s: Scenario) -> None:
    _label(s.branch("main", "ab"), "a", 0.0)
    other = _label(s, "a", 0.5, judge="bob", at=1)
    _labelled(s, other, _label(s, "a", 1.0, at=2))
    _label(s, "a", None)
    _label(s, "b", None)
    _labelled(s, other)


def labels_are_erased_with_their_message(s: Scenario) -> None:
    _label(s.branch("main", "ab"), "a", 1.0)
    label = _label(s, "b", 1.0)
    _labelled(s.erase("a"), label)

"""Numbers that tests add up, printed in one line each at the end of a run.

A crash test that passes says little; one that says how often it killed says more. A test counts
with `record_property("counted", [label, {...}])`, which reaches the main process from any worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

NAME = "counted"


def lines(reports: Iterable[Any]) -> list[str]:
    """One line for each label, with the sums of its numbers."""
    sums: dict[str, Counter[str]] = {}
    for report in reports:
        if getattr(report, "when", None) == "teardown":  # it has all, the other phases have some
            for label, counts in (value for name, value in report.user_properties if name == NAME):
                sums.setdefault(label, Counter()).update(counts)
    return [f"{label}: {told(sums[label])}" for label in sorted(sums)]


def told(counts: dict[str, int]) -> str:
    """Such as "212 killed, 0 lost"."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())

"""Numbers that tests add up, printed in one line each at the end of a run.

A crash test that passes says little; one that says how often it killed says more. A test counts
with `record_property("counted", [label, {...}])`, which reaches the main process from any worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def lines(reports: Iterable[Any]) -> list[str]:
    """One line for each label, with the sums of its numbers."""
    sums: dict[str, Counter[str]] = {}
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "counted":
                label, counts = value
                sums.setdefault(label, Counter()).update(counts)
    return [f"{label}: {told(sums[label])}" for label in sorted(sums)]


def told(counts: dict[str, int]) -> str:
    """Such as "212 killed, 0 lost"."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())

"""What all tests share: how hard hypothesis looks, and what is printed at the end."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests import browsers, counts

settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "torture", settings.get_profile("default"), max_examples=200, stateful_step_count=80
)
settings.load_profile("default")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    for line in counts.lines(reports):
        terminalreporter.write_line(line)
    if any("tests/studio/" in getattr(report, "nodeid", "") for report in reports):
        for line in browsers.lines():
            terminalreporter.write_line(line)

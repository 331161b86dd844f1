"""What all tests share: how hard hypothesis looks, what is done once, what is told at the end."""

from __future__ import annotations

import gc
import os
import signal
import ssl
from collections.abc import Generator, Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from tests import browsers, counts

settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=50,
    stateful_step_count=30,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=300, stateful_step_count=50
)
settings.load_profile("default")

# A shell's background jobs ignore it, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all modules without looking for garbage in what they bring, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read those of the machine once, not for each client: that takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    for line in counts.lines(reports):
        terminalreporter.write_line(line)
    if any("tests/studio/" in getattr(report, "nodeid", "") for report in reports):
        for line in browsers.lines():
            terminalreporter.write_line(line)

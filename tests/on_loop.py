"""What a store was asked on an event loop, which then stands still for everyone."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from sennit.stores.sqlite.store import SQLiteStore

_DOORS = ("_snapshot", "_transaction", "_unsynced_transaction", "_write_all")
"""All that a SQLite store does goes through one of them."""


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where SQLite was read or written in a thread that runs an event loop."""
    found: list[str] = []

    def watched(door: Any) -> Any:
        def ask(*args: Any, **kwargs: Any) -> Any:
            if _runs_a_loop():
                found.append("".join(traceback.format_stack(limit=12)))
            return door(*args, **kwargs)

        return ask

    for name in _DOORS:
        monkeypatch.setattr(SQLiteStore, name, watched(getattr(SQLiteStore, name)))
    return found

"""Clients for adapters, on a real file."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import sennit
from sennit import Client


@pytest.fixture
def client(tmp_path: Path) -> Generator[Client]:
    """A client on a file."""
    with sennit.open(tmp_path / "adapters.db", durability="normal") as opened:
        yield opened


@pytest.fixture
def elsewhere(tmp_path: Path) -> Generator[Client]:
    """Another client on the same file, as another process has one."""
    with sennit.open(tmp_path / "adapters.db", durability="normal") as opened:
        yield opened

"""Ids: UUID version 7, ordered by time, never the same twice whatever is done to `random`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from sennit import clock, ids
from sennit.ids import new_id


@pytest.fixture
def fresh_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that do not remember a later time than the test's own clock, nor leave one behind."""
    monkeypatch.setattr(ids, "_latest", 0)


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = new_id()
    assert type(made) is UUID
    assert made.version == 7
    assert made.variant == RFC_4122
    assert UUID(str(made)) == made
    assert hash(UUID(str(made))) == hash(made)


def test_an_id_begins_with_the_milliseconds_of_its_time(fresh_ids: None) -> None:
    with clock.wall_clock_from(lambda: 1_700_000_000_123_456_789):
        made = new_id()
    assert made.int >> 80 == 1_700_000_000_123


def test_ids_grow_within_a_thread() -> None:
    made = [new_id() for _ in range(5000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_grow_while_the_clock_stands_still_or_goes_back(fresh_ids: None) -> None:
    times = iter([5_000_000, 5_000_000, 3_000_000, 5_000_000, 0])
    with clock.wall_clock_from(lambda: next(times)):
        made = [new_id() for _ in range(5)]
    assert made == sorted(made)
    assert len(set(made)) == 5


def test_ids_made_by_many_threads_all_differ() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [
            uid
            for batch in pool.map(lambda _: [new_id() for _ in range(2000)], range(8))
            for uid in batch
        ]
    assert len(set(made)) == len(made)


def test_seeding_random_does_not_make_ids_repeat(fresh_ids: None) -> None:
    def made_after_seeding() -> UUID:
        random.seed(42)
        ids._latest = 0
        return new_id()

    with clock.wall_clock_from(lambda: 1_000_000):
        assert made_after_seeding() != made_after_seeding()


_IN_PARENT_AND_CHILD = """
import os
from sennit import clock, ids
with clock.wall_clock_from(lambda: 1_000_000):
    ids.new_id()
    reader, writer = os.pipe()
    child = os.fork()
    made = ids.new_id()
    if child == 0:
        os.write(writer, made.bytes)
        os._exit(0)
    os.waitpid(child, 0)
    print(os.read(reader, 16) != made.bytes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _IN_PARENT_AND_CHILD], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True\n"

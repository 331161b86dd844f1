"""A disk that is full, or may not be written to: a clear error, nothing lost, and on we go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture import full_disk


@pytest.mark.parametrize("how", sorted({full_disk.way(), "limit"}))
def test_a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(
    how: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = full_disk.run(how, tmp_path)
    full, freed = told["full"], told["freed"]
    record_property(
        "counted",
        [
            f"full disk, by {how}",
            {"acknowledged": full["acknowledged"], "lost": freed["lost"]},
        ],
    )
    assert full["acknowledged"] > 20
    assert full["kept"], "What was refused was half done."
    assert full["readable"]
    for said in (full["said"], *full["refused"].values()):
        assert "no room left on its disk; free some" in said or "not full" in said
    assert freed == {"goes on": True, "same": True, "found": 5, "findings": [], "lost": 0}
    if told["forbidden"] is not None:
        assert "permissions" in told["forbidden"]

"""A PostgreSQL server that crashes in mid-write; `make torture` does it more often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.torture import restarts

if TYPE_CHECKING:
    from tests.postgres import OwnServer

pytest_plugins = ("tests.postgres",)


def test_a_server_that_crashes_in_mid_write_loses_and_doubles_nothing(
    own_server: OwnServer, url: str, record_property: Callable[[str, object], None]
) -> None:
    counts = restarts.crash(own_server, url, rounds=2)
    record_property("counted", ["server crashes", counts])
    assert (counts["lost"], counts["doubled"], counts["disordered"]) == (0, 0, 0)
    assert counts["acknowledged"] >= 30

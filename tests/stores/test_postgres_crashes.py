"""A client that dies, or is cut off, at any statement leaves a PostgreSQL database whole.

`make torture` does all points; here it is a share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

from sennit import NotFoundError
from sennit.ids import new_id
from sennit.testing import faults
from tests.torture.acts import ACTS, Act, group
from tests.torture.crashes import Crashes, numbered, rehearse, share
from tests.torture.fork_server import ForkServer
from tests.torture.ground import Databases, opened

if TYPE_CHECKING:
    from tests.postgres import Server

pytest_plugins = ("tests.durable",)

EVERY = 80
SELDOM = 40

# One act of each kind: the others are made of the same changes. All of them die on SQLite.
OFTEN = {
    "append of many", "append with a picture", "insert at the beginning", "erase a message",
    "delete a session", "embed",
    "write a group with a refused one", "acquire a lease", "note a run", "commit", "undo a commit",
    "move a file", "forget a session", "import", "expire",
}  # fmt: skip


@pytest.fixture(scope="module")
def databases(server: Server) -> Generator[Databases]:
    databases = Databases(server)
    yield databases
    databases.close()


@pytest.fixture
def crashes(
    databases: Databases, fork_server: ForkServer, record_property: Callable[[str, object], None]
) -> Generator[Crashes]:
    crashes = Crashes(databases, fork_server)
    yield crashes
    record_property("counted", ["crash points on PostgreSQL", crashes.tally.counts])


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(act, id=name, marks=() if name in OFTEN else pytest.mark.slow)
        for name, act in ACTS.items()
    ],
)
def test_an_act_that_is_killed_or_cut_off_is_done_or_not_done(crashes: Crashes, act: Act) -> None:
    rehearsal = rehearse(crashes.ground, act)
    for point in share(rehearsal.points, EVERY, act.name):
        crashes.kill(rehearsal, point)
    for point in share(rehearsal.points, SELDOM, act.name):
        crashes.cut(rehearsal, point)
    assert crashes.tally.trouble == []
    assert crashes.tally.killed


def test_a_new_database_whose_making_was_killed_can_be_opened(crashes: Crashes) -> None:
    for point in share(crashes.opening_points(), EVERY):
        crashes.kill_opening(point)
    assert crashes.tally.trouble == []


def test_a_group_that_is_cut_off_while_one_of_it_is_refused_is_not_lost(
    databases: Databases,
) -> None:
    with databases.scene() as address, faults.record(), opened(address) as client:
        session = client.session("chat")
        writes = group(client, session)
        refused = type(writes[0])(client._owner, new_id(), writes[0].changes)
        # The driver would end such a transaction without a commit and without a word.
        touched = "postgres.after: UPDATE sennit.sessions SET"
        with faults.arm(touched, lambda _: databases.cut_off(address), at=len(writes) + 1) as armed:
            *made, last = client._store.write_many([*writes, refused])
        assert armed.fired
        assert isinstance(last, NotFoundError)
        assert all(isinstance(one, list) for one in made)
        assert len(client.search_messages("gathered")) == len(writes)


def test_every_statement_of_a_watched_store_is_a_point_before_and_after(
    databases: Databases,
) -> None:
    with (
        databases.scene() as address,
        faults.record("postgres.*") as points,
        opened(address) as client,
    ):
        session = client.session("chat")
        session.fork("main", name="new")
        client._store.write_many(group(client, session))
        told = [point for point, _ in numbered(points)]
    before = sorted(point.partition(": ")[2] for point in told if ".before: " in point)
    after = sorted(point.partition(": ")[2] for point in told if ".after: " in point)
    assert before == after
    assert {"BEGIN", "COMMIT", "WITH session AS", "INSERT INTO sennit.branches"} <= set(before)

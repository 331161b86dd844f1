"""Flipped bits: a damaged file is told of, or says what was said; it never says something else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import sennit
from sennit import Client, Message, SennitError, SystemContent

_SEEDS = 3


def write_something(path: Path) -> None:
    """Fill a store with conversations on forks, a commit, memories and labels."""
    with sennit.open(path, durability="normal") as client:
        for key in ("harbour", "garden"):
            session = client.session(key)
            main = session.create_branch("main", system=Message(SystemContent("Be brief.")))
            for number in range(8):
                session.add_message("user", f"I moor at berth {number} on Mondays.")
                session.add_message("assistant", f"Berth {number} it is.")
            for at in (3, 7):
                fork = session.fork(main, at=at, name=f"fork at {at}")
                session.add_message("user", f"Rather at {at}.", branches=fork)
            session.describe({"title": f"About the {key}"})
            session.label(main[2], 0.5)
        client.session("harbour").commit()
        client.fs.write("viking://resources/tides.md", "High water at 7:40.")
        client.search_messages("berth")


def everything_said(client: Client) -> list[object]:
    """What a reader gets to see: sessions, branches, messages, memories and files."""
    seen: list[object] = []
    for found in client.sessions():
        session = client.session(found.id)
        seen.append((session.key, dict(session.metadata)))
        for branch in sorted(session.branches, key=lambda branch: branch.name):
            said = [message.to_json() for message in branch.messages]
            system = branch.system.to_json() if branch.system else None
            seen.append((branch.name, system, said, branch.resources, branch.fenced))
    seen += [(one.uri, one.text) for one in client.memory.all()]
    seen.append(client.fs.read("viking://resources/tides.md"))
    return seen


def outcome(path: Path, before: list[object]) -> str:
    """Return what came of a flip; anything but a SennitError is raised."""
    try:
        with sennit.open(path) as client:
            reported = bool(client.doctor())
            try:
                same = everything_said(client) == before
            except SennitError:
                return "refused"
    except SennitError:
        return "refused"
    if reported:
        return "reported"
    return "harmless" if same else "changed"


def flip_bits(path: Path, folder: Path, seed: int, count: int) -> dict[str, int]:
    """Flip so many bits, each in a fresh copy of the file; count the outcomes."""
    with sennit.open(path) as client:
        before = everything_said(client)
    whole = path.read_bytes()
    draw = random.Random(seed)
    counted = {"harmless": 0, "reported": 0, "refused": 0}
    for _ in range(count):
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        data = bytearray(whole)
        data[at] ^= 1 << bit
        copy = folder / "copy.db"
        copy.write_bytes(data)
        for beside in ("copy.db-wal", "copy.db-shm"):
            (folder / beside).unlink(missing_ok=True)
        found = outcome(copy, before)
        assert found != "changed", f"byte {at}, bit {bit}"
        counted[found] += 1
    return counted


def test_a_flipped_bit_never_changes_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    write_something(path)
    counted = flip_bits(path, tmp_path, seed=11, count=60)
    assert counted["reported"] + counted["refused"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_thousands_of_flipped_bits_never_change_what_was_said(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "sennit.db"
    write_something(path)
    flip_bits(path, tmp_path, seed=100 + seed, count=1500)

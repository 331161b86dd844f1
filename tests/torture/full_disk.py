"""Fill a real, small disk while writing to a store on it, and say what happened.

A program of its own, because the small disk is a file system mounted where nobody else sees it. Its
ways, the first that this machine allows: `mount` (by root, in a namespace), `user namespace` (as
root of one), and `limit`, which mounts nothing and lets files grow no further instead.

On the disk is a SQLite file, or the tables of a database whose server runs inside the program. The
server's journal is elsewhere: without room for that a server stops, as if it had crashed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import sennit
from sennit import Client, Session, StoreError
from tests.torture.crashes import state

MEGABYTE = 1 << 20
SIZES = {"sqlite": 4, "postgres": 32}  # in megabytes; an empty database of PostgreSQL takes ten
LAUNCHERS = {"mount": ["unshare", "-m"], "user namespace": ["unshare", "-rm"], "limit": []}


@cache
def way() -> str:
    """The most real way that is allowed here."""
    for name, launcher in LAUNCHERS.items():
        probe = [*launcher, "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
        if not launcher or subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return name
    raise AssertionError("unreachable: the last way needs nothing")


def ways() -> list[tuple[str, str]]:
    """The kinds of stores, and the ways in which their disk can be filled here."""
    found = [("sqlite", how) for how in sorted({way(), "limit"})]
    return found if way() == "limit" else [*found, ("postgres", way())]


def run(kind: str, how: str) -> dict[str, Any]:
    """Have it done in a process of its own, in one of the ways."""
    # Not below a folder that nobody but root may enter, as pytest's is: the server is not root.
    with TemporaryDirectory(prefix="sennit-disk-") as folder:
        Path(folder).chmod(0o755)
        program = [sys.executable, "-m", "tests.torture.full_disk", kind, how, folder]
        command = [*LAUNCHERS[how], *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Disk:
    """A disk with room for a few megabytes, of which some can be freed."""

    def __init__(self, how: str, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self.place = folder / "data"
        self._limited = how == "limit"
        if self._limited:
            self._limit(megabytes - 1)
        else:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
            subprocess.run(mount, check=True)
            self._ballast.write_bytes(b"x" * (megabytes // 4 * MEGABYTE))
        self.place.mkdir()

    def free(self) -> None:
        """Make room."""
        if self._limited:
            self._limit(8)
        else:
            self._ballast.unlink()

    def _limit(self, megabytes: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes * MEGABYTE, hard))

    def forbid(self) -> bool:
        """Make it read-only; False if this cannot be done here."""
        if self._limited:
            self.place.chmod(0o555)
            return os.geteuid() != 0
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
        return True


@contextmanager
def opening(kind: str, folder: Path) -> Generator[Callable[[], Client]]:
    """What opens a store on this disk, the same one each time."""
    if kind == "sqlite":
        yield lambda: sennit.open(folder / "sennit.db")
        return
    from sennit.stores.postgres.store import PostgresStore
    from tests.postgres_server import running

    with running() as server:
        address = server.address(server.create_in(folder))
        yield lambda: Client(PostgresStore(address))


def texts(session: Session) -> list[str]:
    return [one.content.to_dict()["instruction"] for one in session.default_branch.messages]


def refused(act: Callable[[], object]) -> str:
    """What an act says when it is refused; "" if it is done."""
    try:
        act()
    except StoreError as error:
        return str(error)
    return ""


def noise(seed: int, size: int) -> str:
    """Text that cannot be made smaller."""
    return Random(seed).randbytes(size // 2).hex()


def fill(session: Session) -> tuple[list[str], str]:
    """Add messages until no more fit; gives those acknowledged, and what was said then."""
    acknowledged: list[str] = []
    for number in range(10_000):
        text = f"knot {number} {noise(number, 5_000)}"
        if said := refused(lambda text=text: session.add_message("user", text)):
            return acknowledged, said
        acknowledged.append(text)
    raise AssertionError("the disk never became full")


def whole_acts(client: Client, session: Session) -> dict[str, str]:
    """Try acts that need room; each is done or refused, and none is half done."""
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: session.add_message("user", noise(1, 2_000_000)),
        "fork": lambda: session.fork("main", at=3).edit(1, noise(2, 2_000_000)),
        "rewrite": session.default_branch.reverse,
        "search": lambda: client.search_messages("knot"),
        "create": lambda: client.session("another", metadata={"a": noise(3, 2_000_000)}),
    }
    return {name: refused(act) for name, act in acts.items()}


def same_as_stored(other: Client, session: Session) -> bool:
    """Whether a second client finds what this session shows."""
    with other:
        found = other.session("chat")
        return texts(found) == texts(session) and {
            one.name: list(one) for one in found.branches
        } == {one.name: list(one) for one in session.branches}


def main(kind: str, how: str, folder: Path) -> dict[str, Any]:
    """Do it all on a store of a kind."""
    disk = Disk(how, folder, SIZES[kind])
    with opening(kind, disk.place) as opened:
        told = filled_and_freed(disk, opened)
        if kind == "sqlite" and disk.forbid():
            told["forbidden"] = refused(lambda: opened().session("new"))
        return told


def filled_and_freed(disk: Disk, opened: Callable[[], Client]) -> dict[str, Any]:
    """Fill the disk, look, free some, go on, look again."""
    client = opened()
    session = client.session("chat")
    acknowledged, said = fill(session)
    full = {
        "said": said,
        "acknowledged": len(acknowledged),
        "kept": texts(session) == acknowledged,
        "readable": bool(client.sessions()),
        "refused": whole_acts(client, session),
    }
    disk.free()
    session.add_message("user", "afterwards")
    freed = {
        "goes on": texts(session)[-1] == "afterwards",
        "same": same_as_stored(opened(), session),
        "found": len(client.search_messages("knot", limit=5)),
        "findings": [finding.said for finding in client.doctor()],
        "lost": len(set(acknowledged) - set(texts(session))),
    }
    state(client)
    client.close()
    return {"full": full, "freed": freed}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))

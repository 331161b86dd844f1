"""Many processes on one store: on one branch, and each on a session of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sennit import Session
from tests.torture.fork_server import ForkServer, Say
from tests.torture.ground import opened


def append(job: dict[str, Any], say: Say) -> None:
    """In a child: open the store, and add numbered messages to a session."""
    with opened(job["address"]) as client:
        session = client.session(job["session"])
        for number in range(job["count"]):
            session.add_message("user", f"{job['name']} {number}")
    say("done")


def on_one_branch(
    fork_server: ForkServer, address: str, processes: int, count: int
) -> dict[str, int]:
    """Have all add to one branch; gives what came of it."""
    names = [f"writer {number}" for number in range(processes)]
    return _together(fork_server, address, dict.fromkeys(names, "shared"), count)


def on_their_own(
    fork_server: ForkServer, address: str, processes: int, count: int
) -> dict[str, int]:
    """Have each add to a session of its own; gives what came of it."""
    sessions = {f"writer {number}": f"session {number}" for number in range(processes)}
    return _together(fork_server, address, sessions, count)


def _together(
    fork_server: ForkServer, address: str, sessions: dict[str, str], count: int
) -> dict[str, int]:
    jobs = [
        {
            "do": "torture.processes.append",
            "address": address,
            "session": one,
            "name": name,
            "count": count,
        }
        for name, one in sessions.items()
    ]
    endings = fork_server.run_all(jobs)
    failed = [(code, said[-2:]) for code, said in endings if (code, said) != (0, ["done"])]
    assert not failed, f"{len(failed)} of {len(jobs)} failed: {failed[:3]}"
    lost, doubled, disordered = 0, 0, 0
    with opened(address) as client:
        said = {one: texts(client.session(one)) for one in set(sessions.values())}
    for name, one in sessions.items():
        mine = [text for text in said[one] if text.startswith(f"{name} ")]
        wanted = [f"{name} {number}" for number in range(count)]
        lost += len(set(wanted) - set(mine))
        doubled += sum(times - 1 for times in Counter(mine).values())
        disordered += mine != wanted
    written = sum(map(len, said.values()))
    processes = len(sessions)
    return {
        "processes": processes,
        "appends": written,
        "lost": lost,
        "doubled": doubled,
        "disordered": disordered,
    }


def texts(session: Session) -> list[str]:
    """What its main branch says."""
    return [one.content.to_dict()["instruction"] for one in session.default_branch.messages]

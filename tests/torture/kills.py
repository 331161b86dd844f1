"""Kill a writing program again and again, at any moment, and look at what is left.

Nothing acknowledged may be lost, nothing may be there twice or half, and the session must work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from random import Random

import sennit
from sennit import Session
from tests.torture.actions import perform, state
from tests.torture.progress import Progress


def kill_once(path: Path, seed: int) -> tuple[int, str]:
    """Kill a victim at a random moment; gives how much it had done, and what went wrong."""
    victim = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.killed_program", str(path), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    first = victim.stdout.readline()  # it has started: from here on, any moment is as good
    timer = threading.Timer(Random(seed).uniform(0, 0.25), victim.kill)
    timer.start()
    lines = [first, *victim.stdout]
    victim.wait()
    victim.stdout.close()
    return judge(path, [line.strip() for line in lines])


def judge(path: Path, lines: list[str]) -> tuple[int, str]:
    """Compare what is in the file with what the victim said it had done."""
    tried = [json.loads(line[4:]) for line in lines if line.startswith("try ") and line[-1] == "}"]
    done = lines.count("done")
    model = Session()
    for action in tried[:done]:
        perform(model, action)
    with sennit.open(path) as client:
        session = client.session("torture")
        found = state(session)
        if found != state(model):
            for action in tried[done : done + 1]:
                perform(model, action)
            if found != state(model):
                return done, f"after {done} acts the file says {found}, not {state(model)}"
        perform(session, {"do": "create", "name": "afterwards"})
        stored = {str(message.id) for message in session.messages}
        missing = {
            str(m.id) for m in model.messages if any(m in b for b in model.branches)
        } - stored
        return done, f"messages are missing: {missing}" if missing else ""


def kill_many(kills: int, seed: int) -> dict[str, int]:
    """Kill as often as asked; gives what came of it."""
    acts, wrong = 0, 0
    progress = Progress("kills", kills)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(kills):
            path = Path(folder) / f"{number}.db"
            done, trouble = kill_once(path, seed + number)
            acts += done
            if trouble:
                wrong += 1
                print(f"kill {number}: {trouble}", flush=True)
            for file in Path(folder).glob(f"{number}.db*"):
                file.unlink()
            progress.advance()
    return {"killed": kills, "acknowledged acts": acts, "lost or torn": wrong}

"""A program that changes a session without end, and says before and after what it does.

It is killed at any moment. What it said after (`done`) was acknowledged; of what it said before
(`try`) only the last may have happened or not.
"""

from __future__ import annotations

import json
import sys
from random import Random

import sennit
from tests.torture.actions import choose, perform


def main(path: str, seed: int) -> None:
    random = Random(seed)
    session = sennit.open(path).session("torture")
    number = 0
    while True:
        action = choose(session, random, number)
        print("try", json.dumps(action), flush=True)
        perform(session, action)
        print("done", flush=True)
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""`make bench`: run all benchmarks, print a table, write JSON beside it."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

from benchmarks import (
    blobs,
    completions,
    find,
    foundation,
    learning,
    local,
    memory,
    operations,
    postgres,
    server,
    services,
    startup,
    stores,
    turns,
)
from benchmarks.harness import Result, machine, save, show

OUTPUT = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    """Measure; the exit code says whether all bars were held."""
    results: list[Result] = []
    rooms = (
        foundation,
        stores,
        blobs,
        postgres,
        services,
        operations,
        turns,
        learning,
        local,
        find,
        server,
        memory,
        completions,
        startup,
    )
    for result in chain.from_iterable(room.run() for room in rooms):
        results.append(result)
        print(f"  {result.name}: {result.ratio:.2f} × {result.floor_name}", file=sys.stderr)
    print(show(results))
    print("\nOn " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")
    save(results, OUTPUT)
    print(f"Written to {OUTPUT.relative_to(Path.cwd())}.")
    missed = [result for result in results if result.verdict == "MISSED"]
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

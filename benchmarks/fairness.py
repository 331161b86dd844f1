"""Fairness: how long another tenant waits while one sends the largest allowed requests.

Each route gets its largest request, on the largest data that one request can create, a few times
with a pause before each. Meanwhile another tenant adds one-line messages, one after the other.
Server, sender and writer are three processes. The result of a route is the slowest write during a
large request (the median over the rounds), as a ratio to the median write in the pauses. Beside it
stands the slowest write in a pause of the same length: among many writes one is slow anyway, at a
WAL checkpoint or when the machine has other work. "Without other programs" counts the CPU time of
the server during the slowest write instead of wall-clock time. It overstates the delay where
threads of the server run in parallel, and understates it where other programs slow the quiet
writes. The ratio of CPU times is not affected by other programs; because of parallel threads it is
an upper bound of the delay that the server causes.
`python -m benchmarks.fairness run [PART OF A ROUTE [POSTGRESQL URL]]` prints the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import clock_gettime, perf_counter, sleep

import httpx

from benchmarks.fairness_cases import LIMITS, Case, Setup, worst_cases
from benchmarks.harness import Result, show
from sennit.memory.retrieval.embedders import WordEmbedder
from sennit.server.http.tokens import SCOPES, add_token, new_token

ROUNDS = 3
PAUSE_SECONDS = 0.3
BAR = 5.0


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: its start, its duration, and the CPU time of the server during it."""

    at: float
    took: float
    computed: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measured times of one route, in milliseconds."""

    name: str
    took: float
    quiet: float
    quiet_slowest: float
    """The slowest write in a pause as long as the request."""
    slowest: float
    computed: float
    """Processor time of the server during the slowest write, beyond that of a quiet one."""
    quiet_computed: float

    @property
    def processor_ratio(self) -> float:
        """The processor time of the server during the slowest write to that during a quiet one."""
        return (self.quiet_computed + self.computed) / self.quiet_computed

    @property
    def own_ratio(self) -> float:
        """The ratio without the time that other programs took: the server's own delay."""
        return (self.quiet + self.computed) / self.quiet

    @property
    def result(self) -> Result:
        """The row in the table of all benchmarks."""
        name = f"a write beside {self.name} ({self.took:,.0f} ms)"
        return Result(name, self.slowest, self.quiet, "quiet median", "ms", bar=BAR)


def run() -> Iterator[Result]:
    """Yield the result of each route."""
    yield from (measurement.result for measurement in measure())


def measure(only: str = "", url: str = "") -> Iterator[Measurement]:
    """Measure every route whose name holds `only`, on a new SQLite file or at a store's URL."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.json"
        large, small = (_token(tokens, name) for name in ("large", "small"))
        with _child("serve", folder, url) as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            with httpx.Client(
                base_url=address, headers=large, trust_env=False, timeout=600
            ) as client:
                setup = Setup.create(client)
                cases = [case for case in worst_cases(setup) if only in case.name]
                writer = (address, small["authorization"], str(server.pid))
                yield from _measure_cases(writer, client, cases)


def _token(tokens: Path, tenant: str) -> dict[str, str]:
    secret, line = new_token(tenant=tenant, user=tenant, scopes=SCOPES)
    add_token(tokens, line)
    return {"authorization": f"Bearer {secret}"}


def _measure_cases(
    writer_arguments: tuple[str, str, str], client: httpx.Client, cases: list[Case]
) -> Iterator[Measurement]:
    for case in cases:
        spans: list[tuple[float, float]] = []
        with _child("write", *writer_arguments) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()  # it has begun to write
            began = perf_counter()
            pause = PAUSE_SECONDS
            for _ in range(ROUNDS):
                sleep(PAUSE_SECONDS)
                spans.append(_send(client, case, pause))
                pause = max(PAUSE_SECONDS, spans[-1][1] - spans[-1][0])
            sleep(PAUSE_SECONDS)
            output, _ = writer.communicate("\n")
        writes = [_Write(*write) for write in json.loads(output) if write[0] > began]
        yield _summarize(case, spans, writes)


def _send(client: httpx.Client, case: Case, pause: float) -> tuple[float, float]:
    target = case.path if case.before is None else case.before()
    path, body = (target, case.body) if isinstance(target, str) else target
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sleep(pause)
    began = perf_counter()
    answer = client.request(case.method, path, content=body, headers=headers)
    ended = perf_counter()
    if answer.status_code >= 400 and answer.status_code not in case.refused:
        raise AssertionError(f"{case.name}: {answer.status_code} {answer.text[:300]}")
    return began, ended


def _summarize(case: Case, spans: list[tuple[float, float]], writes: list[_Write]) -> Measurement:
    def during(began: float, ended: float) -> list[_Write]:
        return [write for write in writes if write.at < ended and write.at + write.took > began]

    pauses = [(began - PAUSE_SECONDS, began) for began, _ in spans]
    equal_pauses = [(began - (ended - began), began) for began, ended in spans[1:]]
    quiet = [write for pause in pauses for write in during(*pause)]
    computed = median(write.computed for write in quiet)

    def slowest(times: list[tuple[float, float]]) -> float:
        return median(max((write.took for write in during(*span)), default=0.0) for span in times)

    def longest(span: tuple[float, float]) -> float:
        return max((write.computed for write in during(*span)), default=0.0)

    return Measurement(
        case.name,
        median(ended - began for began, ended in spans) * 1e3,
        median(write.took for write in quiet) * 1e3,
        slowest(equal_pauses) * 1e3,
        slowest(spans) * 1e3,
        max(0.0, median(map(longest, spans)) - computed) * 1e3,
        computed * 1e3,
    )


@contextmanager
def _child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start this module in another process; all share one clock."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fairness", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _serve(folder: str, url: str) -> None:
    from benchmarks.server import Instant, running
    from sennit.server.app import create_app
    from sennit.server.run import tune
    from sennit.server.settings import ServerSettings

    tune()
    settings = ServerSettings(
        url=url or Path(folder) / "s.db",
        port=0,
        models=(Instant(),),
        tokens=Path(folder) / "tokens.json",
        limits=LIMITS,
    )
    app = create_app(settings)
    app.state.server.embedder = WordEmbedder()  # of this route alone, not of search
    with running(app, settings) as port:
        print(f"http://127.0.0.1:{port}", flush=True)
        Event().wait()


def _write(url: str, token: str, server: str) -> None:
    """Write until stdin has a line; print start, duration and server CPU time of each write."""
    ended = Event()
    clock = (~int(server) << 3) | 2  # the processor time of another process, as Linux numbers it
    Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    writes: list[tuple[float, float, float]] = []
    headers = {"authorization": token}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=600) as client:
        session = client.post("/api/sessions", json={}).json()["id"]
        path = f"/api/sessions/{session}/branches/main/messages"
        while not ended.is_set():
            began, computed = perf_counter(), clock_gettime(clock)
            answer = client.post(path, json={"role": "user", "text": "Hello"})
            writes.append((began, perf_counter() - began, clock_gettime(clock) - computed))
            answer.raise_for_status()
            if len(writes) == 10:
                print("begun", flush=True)
    print(json.dumps(writes[10:]))


def _print_table(only: str = "", url: str = "") -> None:
    print("| route | took | quiet median | quiet slowest | slowest | server computed", end="")
    print(" | ratio | without other programs | of processor times | |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for measurement in measure(only, url):
        line = (
            measurement.took,
            measurement.quiet,
            measurement.quiet_slowest,
            measurement.slowest,
            measurement.computed,
        )
        times = " | ".join(f"{value:,.1f} ms" for value in line)
        values = (measurement.result.ratio, measurement.own_ratio, measurement.processor_ratio)
        ratios = " | ".join(f"{value:.1f} ×" for value in values)
        print(
            f"| {measurement.name} | {times} | {ratios} | {measurement.result.verdict} |",
            flush=True,
        )


_ROLES: dict[str, Callable[..., None]] = {"serve": _serve, "write": _write, "run": _print_table}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        _ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        print(show(list(run())))

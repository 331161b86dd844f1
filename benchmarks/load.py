"""Load on a server from a process of its own, so that asking does not slow down what is measured.

    took = under_load(port, [request, ...], each=200)

There is one client per request; each sends its own over and over on one connection, and reads every
answer to its end. `python -m benchmarks.load` is that process: it reads the work as JSON and prints
what came of it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Took:
    """What a server did under load."""

    seconds: float
    """From the first request to the last answer."""
    answers: int
    first_byte: float
    """Seconds from a request to the first byte of its answer, for the one in the middle."""
    statuses: dict[str, int]

    @property
    def each(self) -> float:
        """Microseconds per answer."""
        return 1e6 * self.seconds / self.answers


def request(
    method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> str:
    """A request as it is sent."""
    data = "" if body is None else json.dumps(body)
    fields = {"Host": "localhost", "Content-Length": str(len(data.encode())), **(headers or {})}
    if body is not None:
        fields["Content-Type"] = "application/json"
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n{data}"


def under_load(port: int, requests: Sequence[str], *, each: int) -> Took:
    """Send each request so often, all clients at once, from another process."""
    work = json.dumps({"port": port, "requests": list(requests), "each": each})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=work,
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    return Took(**json.loads(done.stdout))


async def _client(port: int, sent: bytes, each: int, waits: list[float]) -> list[str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses: list[str] = []
    for _ in range(each):
        began = perf_counter()
        writer.write(sent)
        line = await reader.readuntil(b"\r\n")
        waits.append(perf_counter() - began)
        statuses.append(line.split()[1].decode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await _body(reader, head)
    writer.close()
    return statuses


async def _body(reader: asyncio.StreamReader, head: bytes) -> None:
    _, header, rest = head.partition(b"content-length:")
    if header:
        await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    elif b"transfer-encoding: chunked" in head:
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")


async def _main(port: int, requests: list[str], each: int) -> Took:
    waits: list[float] = []
    began = perf_counter()
    clients = (_client(port, sent.encode(), each, waits) for sent in requests)
    statuses = [
        status for client_statuses in await asyncio.gather(*clients) for status in client_statuses
    ]
    took = perf_counter() - began
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    return Took(took, len(statuses), sorted(waits)[len(waits) // 2], counts)


if __name__ == "__main__":
    took = asyncio.run(_main(**json.loads(sys.stdin.read())))
    print(json.dumps({name: getattr(took, name) for name in Took.__slots__}))

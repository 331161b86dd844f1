"""What the server does to a connection that uvicorn does not."""

from __future__ import annotations

import asyncio
from typing import Any

from sennit.server.http.uvicorn_protocol import BufferedTransport


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed_after: int | None = None

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed_after = len(self.sent)

    def is_closing(self) -> bool:
        return self.closed_after is not None


def written(*pieces: bytes | None, close: bool = False) -> Wire:
    """What is sent of these pieces, with a pause for each None."""
    wire = Wire()

    async def write() -> None:
        together: Any = BufferedTransport(wire, asyncio.get_running_loop(), 60)
        for piece in pieces:
            if piece is None:
                await asyncio.sleep(0)
            else:
                together.write(piece)
        if close:
            together.close()
            assert together.is_closing()
        await asyncio.sleep(0)

    asyncio.run(write())
    return wire


def test_what_is_written_without_a_pause_is_sent_in_one_piece() -> None:
    assert written(b"head", b"body", b"").sent == [b"headbody"]


def test_what_comes_later_is_sent_later() -> None:
    assert written(b"head", None, b"one", b"two", None, b"three").sent == [
        b"head",
        b"onetwo",
        b"three",
    ]


def test_a_lot_is_sent_at_once_and_in_order() -> None:
    large = bytes(70_000)
    assert written(b"head", large, b"rest").sent == [b"head" + large, b"rest"]


def test_all_is_sent_before_a_connection_is_closed() -> None:
    wire = written(b"head", b"body", close=True)
    assert (wire.sent, wire.closed_after) == ([b"headbody"], 1)

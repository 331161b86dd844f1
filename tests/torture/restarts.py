"""Crash a PostgreSQL server in mid-write, again and again, under clients that go on by themselves.

`pg_ctl stop -m immediate` is how a server dies: no goodbye, no checkpoint, recovery from its log.
Writers keep writing all along, each with a client of its own; what was acknowledged must be there
afterwards, once and in order. A write that was refused may have been made or not.
"""

from __future__ import annotations

from collections import Counter
from threading import Condition, Thread
from typing import TYPE_CHECKING

from sennit import Session, StoreError
from tests.torture.ground import opened
from tests.torture.processes import texts

if TYPE_CHECKING:
    from tests.postgres import OwnServer

BETWEEN = 5
"""How many writes each writer gets acknowledged between two crashes."""
_PATIENCE = 60.0


class Writer(Thread):
    """Adds numbered messages, and forks now and then, until told to stop."""

    def __init__(self, name: str, address: str, news: Condition) -> None:
        super().__init__(name=name)
        self.acknowledged: list[str] = []
        self.forks: dict[str, int] = {}
        self.refused = 0
        self.stopped = False
        self.error: BaseException | None = None
        self._news = news
        self._client = opened(address)
        self._session = self._client.session("shared")

    def run(self) -> None:
        try:
            number = 0
            while not self.stopped:
                self._write(number)
                number += 1
        except BaseException as error:
            self.error = error
        with self._news:
            self._news.notify()
        self._client.close()

    def _write(self, number: int) -> None:
        text = f"{self.name} {number}"
        try:
            self._session.add_message("user", text)
            self._note(text)
            if number % 10 == 0:
                self._session.refresh()
                fork = self._session.fork("main", name=text)
                self.forks[text] = len(fork)
        except StoreError:
            self.refused += 1

    def _note(self, text: str) -> None:
        with self._news:
            self.acknowledged.append(text)
            self._news.notify()


def crash(server: OwnServer, address: str, *, rounds: int, writers: int = 2) -> dict[str, int]:
    """Crash the server so many times under writers; gives what came of it."""
    news = Condition()
    crew = [Writer(f"writer {number}", address, news) for number in range(writers)]
    for writer in crew:
        writer.start()
    try:
        for _ in range(rounds):
            _wait_for_all(crew, news)
            server.stop("immediate")
            server.start()
        _wait_for_all(crew, news)
    finally:
        for writer in crew:
            writer.stopped = True
        for writer in crew:
            writer.join()
    return {"crashes": rounds, **_judged(crew, address)}


def _wait_for_all(crew: list[Writer], news: Condition) -> None:
    """Until each has so many more writes acknowledged: all are connected, and in mid-write."""
    goals = [(writer, len(writer.acknowledged) + BETWEEN) for writer in crew]
    with news:
        reached = news.wait_for(
            lambda: all(len(one.acknowledged) >= goal or one.error for one, goal in goals),
            _PATIENCE,
        )
    errors = [writer.error for writer in crew if writer.error is not None]
    if errors:
        raise errors[0]
    assert reached, "A client did not come back after a crash."


def _judged(crew: list[Writer], address: str) -> dict[str, int]:
    with opened(address) as client:
        session = client.session("shared")
        said = texts(session)
        lost = sum(len(set(writer.acknowledged) - set(said)) for writer in crew)
        lost += sum(_missing_forks(writer, session) for writer in crew)
    doubled = sum(times - 1 for times in Counter(said).values())
    return {
        "acknowledged": sum(len(writer.acknowledged) for writer in crew),
        "refused": sum(writer.refused for writer in crew),
        "lost": lost,
        "doubled": doubled,
        "disordered": sum(not _in_order(writer.name, said) for writer in crew),
    }


def _missing_forks(writer: Writer, session: Session) -> int:
    names = {branch.name: len(branch) for branch in session.branches}
    return sum(names.get(name) != length for name, length in writer.forks.items())


def _in_order(name: str, said: list[str]) -> bool:
    numbers = [int(text.rpartition(" ")[2]) for text in said if text.startswith(f"{name} ")]
    return numbers == sorted(numbers)

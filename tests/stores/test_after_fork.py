"""A forked child: refused at once by what its parent opened, and free to open its own client."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings
from collections.abc import Callable
from threading import Event, Thread

import pytest

import sennit
from sennit import Client, StoreError

pytest_plugins = ("tests.durable",)
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked child that does some work; 0 if nothing was raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the parent has threads: on purpose
        pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@pytest.fixture
def written(address: str) -> Client:
    """A client with its writer's thread running."""
    client = sennit.open(address)
    asyncio.run(client.session("chat").aadd_message("user", "one"))
    return client


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(StoreError, match="forked"):
        work()


def test_a_child_is_refused_at_once_and_the_parent_goes_on(written: Client) -> None:
    session = written.session("chat")

    def child() -> None:
        refused(lambda: session.add_message("user", "from the child"))
        refused(lambda: asyncio.run(session.aadd_message("user", "from the child")))
        refused(lambda: written.session("other").add_message("user", "from the child"))
        refused(lambda: written.find("one"))
        written.close()

    with written:
        assert in_child(child) == 0
        written.session("chat").add_message("user", "two")
        asyncio.run(written.session("chat").aadd_message("user", "three"))
        assert len(written.session("chat").messages) == 3


def test_a_child_opens_a_client_of_its_own(written: Client, address: str) -> None:
    def child() -> None:
        with sennit.open(address) as own:
            own.session("chat").add_message("user", "sync")
            asyncio.run(own.session("chat").aadd_message("user", "async"))

    with written:
        assert in_child(child) == 0
        written.session("chat").add_message("user", "last")
    with sennit.open(address) as again:
        said = [str(one.rendered) for one in again.session("chat").messages]
        assert said == [f"Instruction: {text}" for text in ("one", "sync", "async", "last")]


def test_a_child_may_fork_while_another_thread_of_the_parent_writes(written: Client) -> None:
    stop = Event()

    def write() -> None:
        while not stop.is_set():
            written.session("busy").add_message("user", "again")

    with written:
        writer = Thread(target=write)
        writer.start()
        try:
            codes = [in_child(lambda: refused(lambda: written.find("one"))) for _ in range(10)]
        finally:
            stop.set()
            writer.join()
        assert codes == [0] * 10

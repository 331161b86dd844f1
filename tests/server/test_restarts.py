"""Servers that are killed or stopped, and others that go on: nothing is lost or told twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.http_server import Told, all_events, following, new_branch, run, texts
from tests.http_server_process import Served, served

WORDS = 5


def heard_until_it_stalls(server: Served, started: dict) -> list[Told]:
    heard: list[Told] = []
    with following(server, started["events"]) as events:
        for one in events:
            heard.append(one)
            if sum(it.kind == "text.delta" for it in heard) == WORDS:
                break
    return heard


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_stream_goes_on_at_another_server_where_it_broke_off(
    tmp_path: Path, how: signal.Signals
) -> None:
    store = tmp_path / "s.db"
    with served(store, WORDS) as server:
        branch = new_branch(server)
        started = run(server, branch)
        heard = heard_until_it_stalls(server, started)
        assert server.end(how) in (0, -how)
    with served(store) as server:
        state = server.get(f"{branch}/runs").json()["runs"][0]["state"]
        assert state == ("interrupted" if how is signal.SIGKILL else "suspended")
        assert server.get(branch).json()["interrupted"] is True
        answer = server.post(f"{branch}/resume")
        assert answer.status_code == 202, answer.text
        heard += all_events(server, started["events"], last=heard[-1].seq)
        while heard[-1].data["result"]["stop_reason"] != "stable":  # how the first server ended
            heard += all_events(server, started["events"], last=heard[-1].seq)
        assert [one.seq for one in heard] == list(range(1, len(heard) + 1))
        assert {one.data["run_id"] for one in heard} == {started["run"]["id"]}
        assert [one.kind for one in heard].count("draft.dropped") == 1
        assert texts(server, branch) == ["Be brief.", "Hello", "You said: Hello "]
        assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_new_run_after_a_crash_keeps_what_was_shown(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with served(store, WORDS) as server:
        branch = new_branch(server)
        heard_until_it_stalls(server, run(server, branch))
        server.end(signal.SIGKILL)
    with served(store) as server:
        all_events(server, run(server, branch, "Again")["events"])
        assert texts(server, branch)[1:4] == ["Hello", "0 1 2 3 4 ", "Again"]


def test_stopping_ends_idle_streams_at_once(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        branch = new_branch(server)
        with following(server, f"{branch}/events?follow=true") as events:
            server.process.send_signal(signal.SIGTERM)
            assert list(events) == []
        assert server.process.wait(30) in (0, -signal.SIGTERM)

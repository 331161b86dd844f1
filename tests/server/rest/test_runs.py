"""Runs over HTTP: started, watched, stopped, steered, approved, resumed."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from sennit import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.conversation_fixtures import add
from tests.http_server import (
    Gate,
    Talker,
    Told,
    all_events,
    following,
    new_branch,
    run,
    serving,
    texts,
)


def kinds(events: list[Told]) -> list[str]:
    return [one.kind for one in events if one.kind != "text.delta"]


def test_a_run_is_told_event_by_event_and_leaves_its_answer(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        events = all_events(server, started["events"])
        assert kinds(events) == [
            "run.started",
            "message.completed",
            "turn.started",
            "message.completed",
            "run.ended",
        ]
        assert [one.seq for one in events] == list(range(1, len(events) + 1))
        pieces = "".join(one.data["text"] for one in events if one.kind == "text.delta")
        assert pieces == "You said: Hello "
        assert events[-1].data["result"]["stop_reason"] == "stable"
        assert events[-1].data["result"]["metrics"]["output_tokens"] == 5
        assert texts(server, branch) == ["Be brief.", "Hello", "You said: Hello "]
        [told] = server.get(f"{branch}/runs").json()["runs"]
        assert told["id"] == started["run"]["id"]
        assert (told["state"], told["model"]) == ("ended", "talker")
        assert told["result"]["metrics"]["cost"] == 0.001


def test_events_are_seen_while_the_model_is_still_talking(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        with following(server, started["events"]) as events:
            first = next(one for one in events if one.kind == "text.delta")
            assert first.data["text"] == "You "
            assert server.get(branch).json()["running"] is True
            gate.open()
            assert list(events)[-1].kind == "run.ended"


def test_a_dropped_connection_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate, words=50)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        with following(server, started["events"]) as events:
            seen = [next(one for one in events if one.kind == "text.delta")]
        gate.open()
        rest = all_events(server, started["events"], last=seen[-1].seq)
        assert rest[0].seq == seen[-1].seq + 1
        assert [one.seq for one in rest] == list(range(rest[0].seq, rest[-1].seq + 1))
        pieces = [one.data["text"] for one in [*seen, *rest] if one.kind == "text.delta"]
        said = "".join(pieces)
        assert said == "".join(f"{number} " for number in range(50))


def test_a_second_run_on_a_busy_branch_is_a_conflict_and_leaves_nothing(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        gate.reached()
        answer = server.post(f"{branch}/runs", {"text": "Me too"})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "busy"
        gate.open()
        all_events(server, started["events"])
        assert "Me too" not in texts(server, branch)


def test_the_same_message_cannot_be_submitted_twice(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        uid = "019a0000-0000-7000-8000-000000000001"
        all_events(server, run(server, branch, id=uid)["events"])
        again = server.post(f"{branch}/runs", {"text": "Hello", "id": uid})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "exists")
        assert len(texts(server, branch)) == 3


def test_an_empty_message_is_refused_and_not_stored(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        all_events(server, run(server, branch)["events"])
        before = texts(server, branch)
        for text in ("", "  "):
            answer = server.post(f"{branch}/runs", {"text": text})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "empty")
        assert texts(server, branch) == before


def test_a_prompt_that_changes_is_an_event_with_what_it_costs(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()], tools=[add]) as server:
        branch = new_branch(server)
        all_events(server, run(server, branch)["events"])
        events = all_events(server, run(server, branch, tools=[])["events"])
        [changed] = [one.data for one in events if one.kind == "prompt.changed"]
        assert changed["reason"] == "tools"
        assert changed["tokens"] > 20


def test_stopping_keeps_what_was_said(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        with following(server, started["events"]) as events:
            next(one for one in events if one.kind == "text.delta")
            answer = server.post(f"{branch}/cancel")
            assert (answer.status_code, answer.json()) == (202, {"cancelled": True})
            assert list(events)[-1].data["result"]["stop_reason"] == "cancelled"
        assert texts(server, branch)[-1] == "You "
        assert server.post(f"{branch}/cancel").json() == {"cancelled": False}


@pytest.mark.parametrize("deleted", ["branch", "session"])
def test_a_run_on_what_is_deleted_ends(
    tmp_path: Path, deleted: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        server.post(f"{branch}/fork", {"name": "other"})
        started = run(server, branch)
        gate.reached()
        with following(server, started["events"]) as events:
            next(events)
            gone = branch if deleted == "branch" else branch.partition("/branches")[0]
            assert server.delete(gone).status_code == 204
            assert list(events)  # to their end, though the model waits
        assert server.get(gone).status_code == 404
        assert server.get(started["events"]).status_code == 404
    assert not caplog.records


def test_what_is_steered_is_taken_in_by_the_run(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        gate.reached()
        answer = server.post(f"{branch}/steer", {"text": "Wait"})
        assert (answer.status_code, answer.json()["running"]) == (202, True)
        gate.open()
        all_events(server, started["events"])
        expected = ["Hello", "You said: Hello ", "Wait", "You said: Wait "]
        assert texts(server, branch)[1:] == expected
        assert server.post(f"{branch}/steer", {"text": "Late"}).json()["running"] is False
        assert texts(server, branch)[-1] == "Late"


def test_what_is_steered_twice_with_one_id_is_said_once(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        first, late = ({"text": text, "id": str(uuid4())} for text in ("Wait", "Late"))
        started = run(server, branch)
        gate.reached()
        taken = server.post(f"{branch}/steer", first)
        assert taken.json()["message"]["id"] == first["id"]
        again = server.post(f"{branch}/steer", first)  # which the run has not taken in yet
        gate.open()
        all_events(server, started["events"])
        refused = [again, server.post(f"{branch}/steer", first)]
        assert server.post(f"{branch}/steer", late).status_code == 202
        refused.append(server.post(f"{branch}/steer", late))
        codes = [(one.status_code, one.json()["error"]["code"]) for one in refused]
        assert codes == [(409, "exists")] * 3
        assert [texts(server, branch).count(text) for text in ("Wait", "Late")] == [1, 1]


@pytest.mark.parametrize("approve", [True, False])
def test_a_tool_call_waits_for_a_person(tmp_path: Path, approve: bool) -> None:
    model = ScriptedModel([[ToolCall("add", {"a": 1, "b": 2})], "Done."])
    tools = [Tool(add, needs_approval=True)]
    with serving(tmp_path / "s.db", models=[model], tools=tools) as server:
        branch = new_branch(server)
        events = all_events(server, run(server, branch)["events"])
        assert events[-1].data["result"]["stop_reason"] == "suspended"
        assert kinds(events)[-2:] == ["approval.required", "run.ended"]
        assert server.get(branch).json()["waiting"] == 1
        [waits] = server.get(f"{branch}/waiting").json()["waiting"]
        assert waits["call"]["arguments"] == {"a": 1, "b": 2}
        path = f"{branch}/approvals/{waits['call']['call_id']}"
        answer = server.post(path, {"approve": approve, "message": "No."})
        assert answer.status_code == 202, answer.text
        rest = all_events(server, answer.json()["run"]["events"])
        assert rest[-1].data["result"]["stop_reason"] == "stable"
        [result] = [one.data["message"]["result"] for one in rest if one.kind == "tool.completed"]
        assert result["success"] is approve
        assert server.post(path, {"approve": approve}).status_code == 404


def test_a_message_is_edited_on_a_fork_which_is_run(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        all_events(server, run(server, branch)["events"])
        asked = server.get(f"{branch}/messages").json()["messages"][1]["id"]
        answer = server.post(f"{branch}/edit", {"message": asked, "text": "Bye", "run": {}})
        assert answer.status_code == 201, answer.text
        all_events(server, answer.json()["run"]["events"])
        fork = branch.rpartition("/")[0] + "/" + answer.json()["branch"]["id"]
        assert texts(server, fork) == ["Be brief.", "Bye", "You said: Bye "]
        assert texts(server, branch)[1] == "Hello"
        versions = server.get(f"{fork}/messages").json()["messages"][1]["siblings"]
        assert [one["branch_name"] for one in versions] == ["main", "main_fork_1"]


def test_an_answer_is_given_anew_on_a_fork(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        all_events(server, run(server, branch)["events"])
        answer = server.post(f"{branch}/regenerate", {"run": {}})
        assert answer.status_code == 201, answer.text
        all_events(server, answer.json()["run"]["events"])
        last = server.get(f"{branch}/messages").json()["messages"][-1]
        assert len(last["siblings"]) == 2


def test_a_run_that_makes_no_sense_makes_no_fork(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        all_events(server, run(server, branch)["events"])
        asked = server.get(f"{branch}/messages").json()["messages"][1]["id"]
        for wrong in ({"model": "nobody"}, {"tools": ["none"]}, {"options": {"max_turns": 0}}):
            body = {"message": asked, "text": "Bye", "run": wrong}
            assert server.post(f"{branch}/edit", body).status_code == 422
        session = branch.partition("/branches")[0]
        assert len(server.get(session).json()["branches"]) == 1


def test_a_model_that_does_not_stream_answers_all_the_same(tmp_path: Path) -> None:
    model = ScriptedModel(["Whole."], streams=False)
    with serving(tmp_path / "s.db", models=[model]) as server:
        branch = new_branch(server)
        events = all_events(server, run(server, branch)["events"])
        assert kinds(events) == [one.kind for one in events]
        assert texts(server, branch)[-1] == "Whole."


def test_a_stream_that_follows_tells_the_next_run_too(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        branch = new_branch(server)
        last = all_events(server, run(server, branch)["events"])[-1].seq
        with following(server, f"{branch}/events?after={last}&follow=true") as events:
            for text in ("Again", "And again"):
                started = run(server, branch, text)
                end = next(one for one in events if one.kind == "run.ended")
                assert end.data["run_id"] == started["run"]["id"]


def test_stopping_the_server_suspends_the_run_and_another_goes_on_with_it(tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        branch = new_branch(server)
        started = run(server, branch)
        gate.reached()
    with serving(tmp_path / "s.db", models=[Talker()]) as server:
        before = all_events(server, started["events"])
        assert before[-1].data["result"]["stop_reason"] == "suspended"
        assert server.get(branch).json()["interrupted"] is True
        [left] = server.get("/api/interrupted").json()["branches"]
        assert (left["session"], left["name"]) == (branch.split("/")[3], "main")
        answer = server.post(f"{branch}/resume")
        assert answer.status_code == 202, answer.text
        rest = all_events(server, started["events"], last=before[-1].seq)
        assert rest[0].data["resumed"] is True
        assert rest[0].seq == before[-1].seq + 1
        assert rest[-1].data["result"]["stop_reason"] == "stable"
        assert texts(server, branch) == ["Be brief.", "Hello", "You said: Hello "]
        assert server.get(branch).json()["interrupted"] is False
        assert server.post(f"{branch}/resume").status_code == 422

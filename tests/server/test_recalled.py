"""What was added to the prompts on a branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Running, all_events, following, run, serving

SAID = "My name is Ann Lee. I prefer green tea to coffee."
ASKED = "Which tea or coffee do I like?"


def test_recalled_names_what_each_instruction_was_given_also_on_a_fork(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted."] * 5)
    with serving(tmp_path / "s.db", models=[model]) as server:
        first, later = new_session(server), new_session(server)
        said(server, f"{first}/branches/main", SAID)
        assert server.post(f"{first}/commit").json()["memories_extracted"] > 0
        branch = f"{later}/branches/main"
        said(server, branch, "Hi")
        said(server, branch, ASKED)
        told = recalled(server, branch)
        messages = server.get(f"{branch}/messages").json()["messages"]
        greeted, _, asked, answer = (one["id"] for one in messages)
        assert "profile" in told[greeted]
        assert "memory" in told[asked]
        assert "profile" not in told[asked]  # it stands with the first message
        kinds = [kind for kind, _ in prompt(server, branch, answer)]
        assert [kind for kind in kinds if kind != "tools"] == [
            "profile",
            "message",
            "message",
            *["memory"] * told[asked].count("memory"),
            "message",
        ]
        fork = server.post(f"{branch}/fork", {"name": "other"}).json()["id"]
        assert recalled(server, f"{later}/branches/{fork}") == told
        early = server.post(f"{branch}/fork", {"at": 1, "name": "early"}).json()["id"]
        assert asked not in recalled(server, f"{later}/branches/{early}")
        assert recalled(server, f"{first}/branches/main") == {}


def test_the_name_of_a_role_is_not_the_name_of_a_model(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        branch = f"{new_session(server)}/branches/main"
        for role, text in (("user", "Hi"), ("assistant", "Hello")):
            server.post(f"{branch}/messages", {"role": role, "text": text})
        answer = server.get(f"{branch}/messages").json()["messages"][-1]
        assert server.get(f"{branch}/messages/{answer['id']}/seen").json()["model"] == ""


def note(text: str) -> str:
    """Write something down."""
    return text


def test_what_a_model_saw_is_known_as_soon_as_its_answer_is_told(tmp_path: Path) -> None:
    replies = [["Let me see.", ToolCall("note", {"text": "rope"})], "Noted."]
    model = ScriptedModel(replies, name="scripted")
    with serving(tmp_path / "s.db", models=[model], tools=[note]) as server:
        branch = f"{new_session(server)}/branches/main"
        early: dict[str, Any] = {}
        with following(server, run(server, branch, "Note: rope")["events"]) as events:
            for event in events:
                message = event.data.get("message")
                if message is not None and message["role"] == "assistant":
                    early[message["id"]] = prompt(server, branch, message["id"])
        assert len(early) >= 2
        assert early == {uid: prompt(server, branch, uid) for uid in early}
        assert all(early.values())


def prompt(server: Running, branch: str, message: str) -> list[tuple[str, str]]:
    """The parts of what the model saw, by kind."""
    seen = server.get(f"{branch}/messages/{message}/seen").raise_for_status().json()
    return [(one["kind"], one["text"]) for one in seen["parts"]]


def new_session(server: Running) -> str:
    return f"/api/sessions/{server.post('/api/sessions').json()['id']}"


def said(server: Running, branch: str, text: str) -> None:
    all_events(server, run(server, branch, text)["events"])


def recalled(server: Running, branch: str) -> dict[str, list[str]]:
    """The kinds of what was recalled, by instruction."""
    told = server.get(f"{branch}/recalled").json()["recalled"]
    return {one["message_id"]: [item["kind"] for item in one["items"]] for one in told}


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_goes_on_with_the_params_and_the_memory_it_was_started_with(
    tmp_path: Path, interrupted: bool
) -> None:
    model = ScriptedModel(["Noted.", [ToolCall("note", {"text": "tea"}, "c1")], "Done."])
    tools = [Tool(note, needs_approval=True)]
    params = {"temperature": 0.1, "max_tokens": 77}
    with serving(tmp_path / "s.db", models=[model], tools=tools) as server:
        first, later = new_session(server), new_session(server)
        said(server, f"{first}/branches/main", SAID)
        assert server.post(f"{first}/commit").json()["memories_extracted"] > 0
        branch = f"{later}/branches/main"
        headers = {"extra_headers": {"x-key": "secret"}}
        started = run(server, branch, ASKED, memory=False, params={**params, **headers})
        assert (
            all_events(server, started["events"])[-1].data["result"]["stop_reason"] == "suspended"
        )
        if interrupted:  # once more, before the decision
            again = server.post(f"{branch}/resume").json()
            all_events(server, again["events"])
        decided = server.post(f"{branch}/approvals/c1", {"approve": True}).json()
        assert all_events(server, decided["run"]["events"])[-1].data["result"]["success"]
        before, after = model.requests[1:]
        assert after.messages[: len(before.messages)] == before.messages
        assert after.params == params
        assert recalled(server, branch) == {}
    assert b"secret" not in (tmp_path / "s.db").read_bytes()

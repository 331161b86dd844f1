"""Sessions, branches and messages over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

import sennit
from sennit.stores.sqlite.store import SQLiteStore
from tests.http_server import Running, serving, texts
from tests.sessions.test_session import said


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server") / "s.db") as running:
        yield running


def made(server: Running, key: str | None = None, *said: str) -> str:
    """A session with a branch "main" on which a user has said things; gives its id."""
    body = {"system": "Be brief."} if key is None else {"key": key, "system": "Be brief."}
    session = server.post("/api/sessions", body).json()["id"]
    for text in said:
        say(server, session, text)
    return session


def say(server: Running, session: str, text: str, branch: str = "main", **more: str) -> dict:
    path = f"/api/sessions/{session}/branches/{branch}/messages"
    answer = server.post(path, {"role": "user", "text": text, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()["messages"][0]


def test_a_branch_made_anew_elsewhere_is_found_by_its_name(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with serving(store) as server, sennit.open(store) as elsewhere:
        session = made(server, "knots", "Hello.")
        other = elsewhere.session("knots")
        other.remove_branch("main")
        other.create_branch("main")
        say(server, session, "Is anybody there?")
        other.refresh()
        assert len(other.get_branch("main")) == 1


def test_branches_that_swapped_their_names_elsewhere_are_not_mistaken(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with serving(store) as server, sennit.open(store) as elsewhere:
        session = made(server, "knots")
        for name in ("one", "two"):
            server.post(f"/api/sessions/{session}/branches", {"name": name})
            say(server, session, f"on {name}", name)
        other = elsewhere.session("knots")
        one, two = other.get_branch("one"), other.get_branch("two")
        one.rename("spare")
        two.rename("one")
        one.rename("two")
        say(server, session, "on the other", "one")
        say(server, session, "on the first", str(one.id))
        other.refresh()
        assert said(two) == ["on two", "on the other"]
        assert said(one) == ["on one", "on the first"]


def test_the_server_says_that_it_is_there(server: Running) -> None:
    answer = server.get("/api/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_without_tokens_one_is_the_owner_that_the_command_line_has(server: Running) -> None:
    told = server.get("/api/me").json()
    assert (told["tenant"], told["user"]) == ("default", "default")
    assert told["scopes"] == ["read", "write", "run", "admin"]


def test_a_session_is_made_found_and_deleted(server: Running) -> None:
    made = server.post("/api/sessions", {"key": "a plan", "metadata": {"of": "today"}})
    assert made.status_code == 201
    found = server.get("/api/sessions/a%20plan").json()
    assert found["id"] == made.json()["id"]
    assert found["metadata"] == {"of": "today"}
    assert found["title"] == "a plan"
    assert server.delete("/api/sessions/a%20plan").status_code == 204
    assert server.get("/api/sessions/a%20plan").status_code == 404


def test_a_key_with_slashes_and_dots_names_its_session(server: Running) -> None:
    key = "../etc/passwd?x=%2e&ü"
    session = server.post("/api/sessions", {"key": key}).json()["id"]
    found = server.get("/api/sessions/..%2Fetc%2Fpasswd%3Fx%3D%252e%26%C3%BC")
    assert found.json()["id"] == session


def test_a_key_that_is_taken_is_a_conflict(server: Running) -> None:
    server.post("/api/sessions", {"key": "taken"})
    answer = server.post("/api/sessions", {"key": "taken"})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "exists"


def test_a_session_has_its_system_message_from_the_first_moment(server: Running) -> None:
    ask = {"key": "brief", "system": "Be brief.", "metadata": {"a": 1}}
    assert server.post("/api/sessions", ask).status_code == 201
    assert texts(server, "/api/sessions/brief/branches/main") == ["Be brief."]
    again = server.post("/api/sessions", {**ask, "system": "Be long."})
    assert again.status_code == 409
    assert texts(server, "/api/sessions/brief/branches/main") == ["Be brief."]
    assert server.post("/api/sessions", {"key": ""}).status_code == 422
    server.delete("/api/sessions/brief")


def test_a_session_is_called_otherwise(server: Running) -> None:
    server.post("/api/sessions", {"key": "knots", "metadata": {"a": 1}})
    told = server.put("/api/sessions/knots", {"metadata": {"title": "All about knots"}})
    assert told.status_code == 200
    assert told.json()["title"] == "All about knots"
    assert server.get("/api/sessions/knots").json()["metadata"] == {"title": "All about knots"}
    assert server.put("/api/sessions/knots", {}).status_code == 422
    server.delete("/api/sessions/knots")


def test_sessions_are_listed_page_by_page(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        for number in range(5):
            server.post("/api/sessions", {"key": f"k{number}"})
        seen, before = [], None
        while True:
            query = {"limit": 2} | ({} if before is None else {"before": before})
            page = server.get("/api/sessions", params=query).json()
            seen += [one["key"] for one in page["sessions"]]
            before = page["next"]
            if before is None:
                break
        assert seen == ["k4", "k3", "k2", "k1", "k0"]


def test_a_session_without_a_key_is_called_after_what_was_asked_first(server: Running) -> None:
    session = made(server, None, "Why is the sky blue?")
    page = server.get("/api/sessions", params={"limit": 1}).json()
    assert page["sessions"][0]["id"] == session
    assert page["sessions"][0]["title"] == "Why is the sky blue?"


def test_what_was_said_is_read_page_by_page(server: Running) -> None:
    session = made(server, None, "a", "b", "c", "d")
    path = f"/api/sessions/{session}/branches/main/messages"

    def page(**query: int) -> tuple[list[str], int, int]:
        told = server.get(path, params=query).json()
        return [one["text"] for one in told["messages"]], told["start"], told["total"]

    assert page() == (["Be brief.", "a", "b", "c", "d"], 0, 5)
    assert page(limit=2) == (["c", "d"], 3, 5)
    assert page(limit=2, before=3) == (["a", "b"], 1, 5)
    assert page(limit=2, after=0) == (["a", "b"], 1, 5)
    assert page(after=4) == ([], 5, 5)


def test_saying_the_same_again_under_its_id_changes_nothing(server: Running) -> None:
    session, uid = made(server), str(uuid4())
    first = say(server, session, "once", id=uid)
    assert say(server, session, "once", id=uid) == first
    path = f"/api/sessions/{session}/branches/main/messages"
    assert server.get(path).json()["total"] == 2
    other = server.post(path, {"role": "user", "text": "else", "id": uid})
    assert other.status_code == 409


def test_parts_become_messages(server: Running) -> None:
    session = made(server)
    parts = [
        {"type": "text", "text": "look"},
        {"type": "tool", "name": "see", "input": {"at": 1}, "output": "a cat"},
    ]
    path = f"/api/sessions/{session}/branches/main/messages"
    told = server.post(path, {"role": "assistant", "parts": parts}).json()["messages"]
    assert [one["kind"] for one in told] == ["answer", "call", "result"]
    assert told[1]["call"]["arguments"] == {"at": 1}
    assert told[2]["result"]["result"] == "a cat"


def test_a_fork_shares_history_and_shows_where_it_left(server: Running) -> None:
    session = made(server, None, "a", "b")
    path = f"/api/sessions/{session}/branches/main"
    fork = server.post(f"{path}/fork", {"at": 1, "name": "other"})
    assert fork.status_code == 201
    assert fork.json()["message_count"] == 2
    assert fork.json()["forked_from"]["branch_name"] == "main"
    said = say(server, session, "c", "other")
    messages = server.get(f"{path}/messages").json()["messages"]
    assert messages[1]["siblings"] == []
    versions = [(one["branch_name"], one["message_id"]) for one in messages[2]["siblings"]]
    assert versions == [("main", messages[2]["id"]), ("other", said["id"])]
    tree = server.get(f"/api/sessions/{session}/tree").json()["branches"]
    assert [(one["name"], one["forked_at"]) for one in tree] == [("main", None), ("other", 2)]
    assert tree[1]["parent"] == tree[0]["id"]


def test_two_branches_are_compared_from_their_common_ancestor(server: Running) -> None:
    session = made(server, None, "a", "b")
    server.post(f"/api/sessions/{session}/branches/main/fork", {"at": 1, "name": "other"})
    say(server, session, "c", "other")
    told = server.get(f"/api/sessions/{session}/diff", params={"a": "main", "b": "other"}).json()
    assert told["common"] == 1
    assert told["ancestor"]["text"] == "a"
    assert [(one["text"], one["index"]) for one in told["since_a"]] == [("b", 2)]
    assert [(one["text"], one["index"]) for one in told["since_b"]] == [("c", 2)]
    assert told["same_system"] is True


def test_versions_come_in_the_order_they_were_made_whatever_their_ids(server: Running) -> None:
    session = made(server, None, "a")
    path = f"/api/sessions/{session}/branches/main"
    for name in ("two", "three"):
        server.post(f"{path}/fork", {"at": 1, "name": name})
    ids = [f"{digit * 8}-0000-4000-8000-000000000000" for digit in "915"]
    for uid, name in zip(ids, ("two", "main", "three"), strict=True):
        say(server, session, name, name, id=uid)
    versions = server.get(f"{path}/messages").json()["messages"][2]["siblings"]
    assert [(one["message_id"], one["branch_name"]) for one in versions] == [
        (ids[0], "two"),
        (ids[1], "main"),
        (ids[2], "three"),
    ]


def test_a_branch_is_renamed_for_all_that_name_it(server: Running) -> None:
    session = made(server, None, "a")
    path = f"/api/sessions/{session}/branches"
    fork = server.post(f"{path}/main/fork", {"name": "fork"}).json()
    server.post(f"{path}/fork/fork", {"name": "deeper"})
    name = "What if? <b>/ö"
    for one in ("fork", fork["id"]):  # the second time nothing is left to do
        told = server.put(f"{path}/{one}", {"name": name})
        assert told.status_code == 200
        assert told.json() == {**fork, "name": name}
    assert server.get(f"{path}/fork").status_code == 404
    assert server.get(f"{path}/{quote(name, safe='')}").json()["id"] == fork["id"]
    assert server.get(f"{path}/deeper").json()["forked_from"]["branch_name"] == name


@pytest.mark.parametrize(
    ("branch", "body", "status", "why"),
    [
        ("fork", {"name": "main"}, 409, "already a branch named 'main'; choose another name"),
        ("fork", {"name": ""}, 422, "must not be empty"),
        ("fork", {"name": "a\0b"}, 422, "NUL"),
        ("fork", {"name": None}, 422, "name"),
        ("fork", {}, 422, "name"),
        ("fork", {"name": "x", "system": "y"}, 422, "system"),
        ("main", {"name": "other"}, 422, "fork it under the name 'other' instead"),
        ("none", {"name": "other"}, 404, "No branch 'none'"),
    ],
)
def test_a_name_that_a_branch_cannot_have_is_explained(
    server: Running, branch: str, body: dict[str, Any], status: int, why: str
) -> None:
    session = made(server)
    path = f"/api/sessions/{session}/branches"
    server.post(f"{path}/main/fork", {"name": "fork"})
    told = server.put(f"{path}/{branch}", body)
    assert told.status_code == status
    assert why in told.json()["error"]["message"]
    found = server.get(f"/api/sessions/{session}").json()["branches"]
    assert [one["name"] for one in found] == ["main", "fork"]


def test_a_branch_is_made_and_removed(server: Running) -> None:
    session = made(server)
    path = f"/api/sessions/{session}/branches"
    assert server.post(path, {"name": "new"}).status_code == 201
    assert server.post(path, {"name": "new"}).status_code == 409
    assert server.get(f"{path}/new").json()["message_count"] == 0
    assert server.delete(f"{path}/new").status_code == 204
    assert server.get(f"{path}/new").status_code == 404


def test_a_new_session_has_its_main_branch(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        server.post("/api/sessions", {"key": "chat"})
        branches = server.get("/api/sessions/chat").json()["branches"]
        assert [one["name"] for one in branches] == ["main"]


def test_a_server_that_cannot_reach_its_database_is_there_and_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        assert server.get("/api/ready").json()["status"] == "ready"
        (tmp_path / "s.db").rename(tmp_path / "elsewhere.db")
        assert server.get("/api/health").status_code == 200
        answer = server.get("/api/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert str(tmp_path) not in answer.text  # everybody may ask
        (tmp_path / "elsewhere.db").rename(tmp_path / "s.db")


@pytest.mark.parametrize("path", ["", "/tree"])
def test_the_store_is_asked_once_for_the_runs_of_all_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    asked: list[str] = []
    for name in ("last_run", "last_runs", "runs"):
        method = getattr(SQLiteStore, name)

        def asking(*given: Any, _name: str = name, _method: Any = method) -> Any:
            asked.append(_name)
            return _method(*given)

        monkeypatch.setattr(SQLiteStore, name, asking)
    with serving(tmp_path / "s.db") as server:
        session = made(server, "knots", "Hello.")
        for number in range(9):
            server.post(f"/api/sessions/{session}/branches", {"name": f"b{number}"})
        asked.clear()
        answer = server.get(f"/api/sessions/{session}{path}").json()
    assert len(answer["branches"]) == 10
    assert asked == ["last_runs"]

"""Memory, files, finding, usage, labels and export over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.http_server import Running, Talker, all_events, new_branch, run, serving

FACT = "My name is Ada and I live in Lisbon. I prefer green tea to coffee."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server") / "s.db", models=[Talker()]) as running:
        yield running


@pytest.fixture(scope="module")
def branch(server: Running) -> str:
    """A branch on which a fact was told, answered and committed."""
    branch = new_branch(server)
    all_events(server, run(server, branch, FACT)["events"])
    session = branch.partition("/branches")[0]
    done = server.post(f"{session}/commit", {"branch": "main"})
    assert (done.status_code, done.json()["status"]) == (200, "committed")
    assert done.json()["memories_extracted"] >= 1
    assert server.get(f"/api/tasks/{done.json()['task_id']}").json() == done.json()
    return branch


def test_a_memory_shows_the_words_it_came_from(server: Running, branch: str) -> None:
    found = server.get("/api/memories").json()["memories"]
    told = next(one for one in found if "tea" in one["text"])
    assert told["evidence"][0]["text"] == FACT
    assert told["evidence"][0]["session"] in branch
    item = server.get("/api/memories/item", params={"uri": told["uri"]}).json()
    assert item["memory"] == told
    assert [one["version"] for one in item["history"]] == [1]
    assert item["decisions"][0]["did"] == "created"


def test_memories_are_listed_page_by_page(server: Running, branch: str) -> None:
    everything = [one["uri"] for one in server.get("/api/memories").json()["memories"]]
    assert len(everything) > 1
    seen, before = [], None
    while len(seen) < 20:
        query = {"limit": 1} | ({} if before is None else {"before": before})
        page = server.get("/api/memories", params=query).json()
        seen += [one["uri"] for one in page["memories"]]
        before = page["next"]
        if before is None:
            break
    assert seen == everything
    assert server.get("/api/memories", params={"category": "no"}).status_code == 422


def test_commits_tell_what_they_decided(server: Running, branch: str) -> None:
    session = branch.split("/")[3]
    for query in ({}, {"session": session}):
        commits = server.get("/api/commits", params=query).json()["commits"]
        [commit] = [one for one in commits if one["session"] == session]
        assert commit["result"]["status"] == "committed"
        assert {one["did"] for one in commit["decisions"]} == {"created"}


def test_memories_and_messages_are_found(server: Running, branch: str) -> None:
    told = server.get("/api/find", params={"q": "green tea", "explain": "true"}).json()
    found = {one["category"]: one for one in told["matches"]}
    assert found["message"]["session"] == branch.split("/")[3]
    assert found["message"]["message"]
    assert found["message"]["explained"]
    some = {"q": "green tea", "category": "profile,preferences"}
    kinds = {one["category"] for one in server.get("/api/find", params=some).json()["matches"]}
    assert kinds
    assert kinds <= {"profile", "preferences"}
    told = server.get("/api/search", params={"q": "Which tea do I prefer?"}).json()
    assert told["queries"]
    assert told["matches"]


def test_what_was_archived_was_not_seen_by_later_answers(server: Running) -> None:
    there = new_branch(server)
    all_events(server, run(server, there, "My cat is called Mia.")["events"])
    first = server.get(f"{there}/messages").json()["messages"][-1]
    server.post(f"/api/sessions/{there.split('/')[3]}/commit", {})
    all_events(server, run(server, there, "And how old is she?")["events"])
    last = server.get(f"{there}/messages").json()["messages"][-1]

    def said(answer: str) -> list[str]:
        parts = server.get(f"{there}/messages/{answer}/seen").json()["parts"]
        return [one["text"] for one in parts if one["kind"] == "message"]

    assert said(first["id"]) == ["Instruction: My cat is called Mia."]
    assert said(last["id"]) == ["Instruction: And how old is she?"]


def test_the_next_answer_shows_what_the_model_saw(server: Running, branch: str) -> None:
    other = new_branch(server)
    all_events(server, run(server, other, "Which tea do I prefer?")["events"])
    answer = server.get(f"{other}/messages").json()["messages"][-1]
    told = server.get(f"{other}/messages/{answer['id']}/seen").json()
    kinds = [one["kind"] for one in told["parts"]]
    assert kinds[0] == "system"
    assert kinds[-1] == "message"
    assert "memory" in kinds
    assert told["model"] == "talker"
    assert told["counted"] == 3
    assert told["tokens"] == sum(one["tokens"] for one in told["parts"])
    remembered = [one["text"] for one in told["parts"] if one["kind"] in ("memory", "profile")]
    assert any("tea" in text for text in remembered)
    fork = server.post(f"{other}/fork", {"name": "later"}).json()["name"]
    again = other.replace("/main", f"/{fork}")
    assert server.get(f"{again}/messages/{answer['id']}/seen").json() == told
    asked = server.get(f"{other}/messages").json()["messages"][1]
    assert server.get(f"{other}/messages/{asked['id']}/seen").status_code == 422


def test_a_message_that_was_recalled_is_shown_in_its_words(server: Running) -> None:
    there, here = new_branch(server), new_branch(server)
    all_events(server, run(server, there, "The zeppelin leaves at noon.")["events"])
    said = server.get(f"{there}/messages").json()["messages"][1]
    asked = run(server, here, "When does the zeppelin leave?", other_sessions=True)
    all_events(server, asked["events"])
    answer = server.get(f"{here}/messages").json()["messages"][-1]["id"]
    parts = server.get(f"{here}/messages/{answer}/seen").json()["parts"]
    told = next(one for one in parts if one["message_id"] == said["id"])
    assert told["kind"] == "recalled"
    assert told["text"].endswith("The zeppelin leaves at noon.")
    assert told["session"] == there.split("/")[3]


def test_messages_of_other_sessions_are_quoted_only_if_a_request_asks_for_them(
    server: Running,
) -> None:
    there, here = new_branch(server), new_branch(server)
    all_events(server, run(server, there, "The zeppelin leaves at noon.")["events"])
    all_events(server, run(server, here, "When does the zeppelin leave?")["events"])
    answer = server.get(f"{here}/messages").json()["messages"][-1]["id"]
    parts = server.get(f"{here}/messages/{answer}/seen").json()["parts"]
    assert "leaves at noon" not in str(parts)


def test_files_are_listed_read_searched_and_written(server: Running, branch: str) -> None:
    def look(**query: str) -> dict:
        answer = server.get("/api/files", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert {one["name"] for one in look()["entries"]} == {"session", "user", "agent", "resources"}
    uri = "viking://resources/notes/plan.md"
    made = server.put("/api/files", {"text": "# Plan\nsail\n"}, params={"uri": uri})
    assert (made.status_code, made.json()["version"]) == (200, 1)
    assert look(uri=uri, op="read")["text"] == "# Plan\nsail\n"
    assert look(uri=uri, op="stat")["entry"]["size"] == 12
    assert look(uri="viking://resources", op="grep", pattern="sail")["lines"][0]["number"] == 2
    assert look(op="glob", pattern="viking://resources/**/*.md")["uris"] == [uri]
    assert "plan.md" in look(uri="viking://resources", op="tree")["text"]
    gone = server.delete("/api/files", params={"uri": uri})
    assert gone.json() == {"removed": 1}
    assert server.get("/api/files", params={"uri": uri, "op": "read"}).status_code == 404


def test_usage_is_told_by_day_and_session(server: Running, branch: str) -> None:
    told = server.get("/api/usage", params={"days": 2}).json()
    today = next(one for one in told["days"] if one["model"] == "talker")
    assert today["turns"] >= 1
    assert today["output_tokens"] == 5 * today["turns"]
    assert today["cost"] == pytest.approx(0.001 * today["turns"])
    assert sum(one["turns"] for one in told["sessions"]) == today["turns"]
    listed = {one["id"]: one["title"] for one in server.get("/api/sessions").json()["sessions"]}
    assert all(one["title"] == listed[one["id"]] for one in told["sessions"])


def test_usage_of_many_sessions_can_be_added_up_page_by_page(server: Running, branch: str) -> None:
    for _ in range(2):
        all_events(server, run(server, new_branch(server))["events"])
    whole = server.get("/api/usage").json()
    assert whole["next"] is None
    turns, before = 0, None
    while True:
        query = {"limit": 1} | ({} if before is None else {"before": before})
        page = server.get("/api/usage", params=query).json()
        assert len(page["sessions"]) <= 1
        turns += sum(one["turns"] for one in page["days"])
        if (before := page["next"]) is None:
            break
    assert turns == sum(one["turns"] for one in whole["days"]) >= 3
    assert server.get("/api/usage", params={"before": "yesterday"}).status_code == 422


def test_a_message_is_labelled_and_the_label_taken_back(server: Running, branch: str) -> None:
    answer = server.get(f"{branch}/messages").json()["messages"][-1]["id"]
    path = f"{branch}/messages/{answer}/label"
    assert server.post(path, {"thumb": "up"}).json()["score"] == 1.0
    assert server.post(path, {"thumb": "up", "score": 1}).status_code == 422
    labels = f"{branch.partition('/branches')[0]}/labels"
    [kept] = server.get(labels).json()["labels"]
    assert (kept["message"], kept["score"], kept["by"]) == (answer, 1.0, "user")
    assert server.get(labels, params={"by": "ann"}).json() == {"labels": []}
    assert server.delete(path).status_code == 204
    assert server.get(labels).json() == {"labels": []}


def test_each_row_of_an_export_is_a_line(server: Running) -> None:
    session = server.post("/api/sessions", {"system": "Be brief."}).json()["id"]
    messages = f"/api/sessions/{session}/branches/main/messages"
    for number in range(3):
        for role in ("user", "assistant"):
            assert server.post(messages, {"role": role, "text": f"{role} {number}"}).is_success
    answer = server.get(f"/api/sessions/{session}/export", params={"format": "dspy"})
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["inputs"]["question"] for row in rows] == [f"user {n}" for n in range(3)]
    assert answer.text.endswith("\n")
    assert json.loads(answer.headers["x-sennit-left-out"]) == {}


@pytest.mark.parametrize("form", ["jsonl", "openai", "sharegpt"])
def test_a_session_is_exported_as_lines(server: Running, branch: str, form: str) -> None:
    session = branch.partition("/branches")[0]
    answer = server.get(f"{session}/export", params={"format": form})
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len(lines) == (3 if form == "jsonl" else 1)
    assert FACT in answer.text


def test_an_export_says_what_it_leaves_out(server: Running, branch: str) -> None:
    session = branch.partition("/branches")[0]
    answer = server.get(f"{session}/export", params={"format": "dpo"})
    assert (answer.status_code, answer.text) == (200, "")
    left_out = json.loads(answer.headers["x-sennit-left-out"])
    assert left_out == {"is an answer without a score": 1}


def test_an_unknown_form_is_refused(server: Running, branch: str) -> None:
    session = branch.partition("/branches")[0]
    assert server.get(f"{session}/export", params={"format": "x"}).status_code == 422


def test_a_commit_is_undone_and_a_session_forgotten(server: Running) -> None:
    branch = new_branch(server)
    all_events(server, run(server, branch, "I prefer rye bread.", memory=False)["events"])
    session = branch.split("/")[3]
    done = server.post(f"/api/sessions/{session}/commit").json()
    undone = server.post(f"/api/commits/{done['task_id']}/undo").json()
    assert any("rye" in uri for uri in undone["removed"])
    gone = server.post("/api/forget", {"session": session}).json()
    assert gone["sessions"] == 1
    assert server.get(f"/api/sessions/{session}").status_code == 404
    assert server.post("/api/forget", {}).status_code == 422

"""How much a user may store and run, and that one tenant does not push others out of caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import sennit
from sennit.memory.memory import engine_of
from sennit.server.http.caches import FairCache
from sennit.server.settings import Limits
from sennit.sessions.client import cached_session
from tests.http_server import Gate, Running, Talker, new_branch, serving
from tests.server.http.test_limits import branch_of, error_of, guests, in_time

pytest_plugins = ("tests.durable",)


def say(client: httpx.Client, branch: str, text: str = "x" * 3000) -> httpx.Response:
    return client.post(f"{branch}/messages", json={"role": "user", "text": text})


def test_a_user_stores_so_many_bytes_and_can_delete_some(tmp_path: Path) -> None:
    with guests(tmp_path, owner_bytes=20_000) as inn:
        ada, again, bob = inn.enter("ada", "ada"), inn.enter("again", "ada"), inn.enter("bob")
        branch, others = branch_of(ada), branch_of(bob)
        answers = [say(ada, branch) for _ in range(10)]
        assert [one.status_code for one in answers[:6]] == [201] * 6
        refused = answers[-1]
        assert refused.status_code == 403
        assert error_of(refused)["code"] == "quota"
        assert "20,000 bytes" in error_of(refused)["message"]
        for path, body in (
            (f"{branch}/messages", {"role": "user", "text": "x"}),
            ("/v1/chat/completions", {"model": "talker", "messages": []}),
            ("/api/sessions", {}),
        ):
            assert error_of(again.post(path, json=body))["code"] == "quota"
        told = again.put("/api/files?uri=viking://user/x.md", json={"text": "x"})
        assert error_of(told)["code"] == "quota"
        assert again.get(f"{branch}/messages").status_code == 200
        assert say(bob, others).status_code == 201
        assert ada.delete(branch.partition("/branches")[0]).status_code == 204
        assert say(ada, branch_of(ada)).status_code == 201


def test_a_user_over_the_quota_can_stop_a_run(tmp_path: Path) -> None:
    gate = Gate()
    with guests(tmp_path, Talker(gate=gate), owner_bytes=5_000) as inn:
        ada = inn.enter("ada")
        branch, other = branch_of(ada), branch_of(ada)
        assert ada.post(f"{branch}/runs", json={"text": "Hello there"}).status_code == 202
        gate.reached()
        while say(ada, other).status_code == 201:
            pass
        assert ada.post(f"{branch}/cancel", json={}).json() == {"cancelled": True}


@pytest.mark.parametrize("scope", ["user", "agent", "resources"])
def test_files_of_every_scope_count_as_stored(tmp_path: Path, scope: str) -> None:
    with guests(tmp_path, owner_bytes=5_000) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        put: dict[str, Any] = {
            "params": {"uri": f"viking://{scope}/x.md"},
            "json": {"text": "x" * 6000},
        }
        assert ada.request("PUT", "/api/files", **put).status_code == 200
        assert error_of(ada.post("/api/sessions", json={}))["code"] == "quota"
        assert bob.post("/api/sessions", json={}).status_code == 201


def test_a_user_has_so_many_sessions(tmp_path: Path) -> None:
    with guests(tmp_path, owner_sessions=5) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        made = [ada.post("/api/sessions", json={}) for _ in range(12)]
        assert made[0].status_code == 201
        assert error_of(made[-1])["code"] == "quota"
        assert len(ada.get("/api/sessions").json()["sessions"]) < 9
        assert bob.post("/api/sessions", json={}).status_code == 201


def test_a_tool_over_mcp_stores_no_more_than_the_quota(tmp_path: Path) -> None:
    with guests(tmp_path, owner_bytes=5_000) as inn:
        ada = inn.enter("ada")
        branch = branch_of(ada)
        assert say(ada, branch, "x" * 6000).status_code == 201
        session = branch.split("/")[3]
        given = {"session": session, "role": "user", "text": "x"}
        assert "the quota of 5,000 bytes" in called(ada, "add_message", given)
        assert "x" * 100 in called(ada, "read_session", {"session": session})


def test_a_body_over_mcp_without_a_length_counts_too(tmp_path: Path) -> None:
    with guests(tmp_path, owner_bytes=5_000) as inn:
        ada = inn.enter("ada")
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        headers = {"accept": "application/json", "content-type": "application/json"}
        told: list[str] = []
        for number in range(8):
            given = {"uri": f"viking://user/{number}.md", "text": "x" * 1000}
            params = {"name": "write_file", "arguments": given}
            pieces = iter([json.dumps({**asked, "params": params}).encode()])
            told.append(ada.post("/mcp", content=pieces, headers=headers).text)
        assert "version" in told[0]
        assert "the quota of 5,000 bytes" in told[-1]


def test_metadata_and_what_runs_were_asked_with_count_as_stored(tmp_path: Path) -> None:
    with guests(tmp_path, owner_bytes=5_000) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        assert ada.post("/api/sessions", json={"metadata": {"x": "y" * 6000}}).status_code == 201
        assert error_of(ada.post("/api/sessions", json={}))["code"] == "quota"
        branch = branch_of(bob)
        asked = {"text": "Hello", "params": {"stop": ["y" * 6000]}}
        events = bob.post(f"{branch}/runs", json=asked).json()["events"]
        assert bob.get(events).status_code == 200
        assert error_of(bob.post("/api/sessions", json={}))["code"] == "quota"


def test_names_are_short_and_count_as_stored(tmp_path: Path) -> None:
    with guests(tmp_path, owner_bytes=8_000) as inn:
        ada = inn.enter("ada")
        branch = branch_of(ada)
        message = say(ada, branch, "x").json()["messages"][0]["id"]
        path = f"{branch}/messages/{message}/label"
        long = ada.post(path, json={"score": 1, "by": "y" * 2001})
        assert (long.status_code, error_of(long)["code"]) == (422, "invalid")
        long = ada.post("/api/sessions", json={"key": "y" * 2001})
        assert (long.status_code, error_of(long)["code"]) == (422, "invalid")
        judges = (f"{number}".rjust(2000) for number in range(9))
        told = [ada.post(path, json={"score": 1, "by": judge}) for judge in judges]
        assert error_of(told[-1])["code"] == "quota"


def called(client: httpx.Client, name: str, given: dict[str, str]) -> str:
    params = {"name": name, "arguments": given}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"accept": "application/json, text/event-stream"}
    return client.post("/mcp", json=asked, headers=headers).text


def test_without_tokens_there_is_no_quota() -> None:
    limits = Limits(owner_bytes=10, owner_sessions=1)
    with serving(models=[Talker()], limits=limits) as server:
        for _ in range(3):
            assert say(server.http, new_branch(server)).status_code == 201


@pytest.mark.parametrize("fork", [False, True], ids=["run", "edit"])
def test_a_token_has_so_many_runs_under_way(tmp_path: Path, fork: bool) -> None:
    gate = Gate()
    with guests(tmp_path, Talker(gate=gate), token_runs=1, owner_factor=1) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        first, second, others = branch_of(ada), branch_of(ada), branch_of(bob)
        say(ada, second, "Hello")
        run = {"text": "Hello there", "memory": False}
        assert ada.post(f"{first}/runs", json=run).status_code == 202
        gate.reached()
        if fork:
            edit = {"message": 1, "text": "Bye", "run": {"memory": False}}
            refused = ada.post(f"{second}/edit", json=edit)
            assert len(branches(ada, second)) == 1
        else:
            refused = ada.post(f"{second}/runs", json=run)
        assert refused.status_code == 429
        assert error_of(refused)["code"] == "runs_under_way"
        assert bob.post(f"{others}/runs", json=run).status_code == 202
        gate.open()
        assert in_time(lambda: ada.post(f"{second}/runs", json=run).status_code == 202)


def branches(client: httpx.Client, branch: str) -> list[object]:
    return client.get(branch.partition("/branches")[0]).json()["branches"]


def test_all_tokens_of_a_user_share_a_rate(tmp_path: Path) -> None:
    with guests(tmp_path, rate=0.001, burst=4, owner_factor=2) as inn:
        tokens = [inn.enter(f"t{number}", "ada") for number in range(4)]
        codes = [one.get("/api/me").status_code for one in tokens for _ in range(4)]
        assert codes.count(200) == 8
        assert inn.enter("bob").get("/api/me").status_code == 200


def test_a_tenant_does_not_push_others_out_of_a_cache() -> None:
    cache = FairCache[int, str](10)
    for number in range(10):
        cache.put("alone", number, "x")
    assert all(cache.get("alone", number) for number in range(10))
    for number in range(4):
        cache.put("small", number, "y")
    for number in range(100, 300):
        cache.put("alone", number, "x")
    assert all(cache.get("small", number) for number in range(4))
    assert sum(cache.get("alone", number) is not None for number in range(100, 300)) == 6
    cache.pop("small", 0)
    cache.pop("nobody", 0)
    assert cache.get("small", 0) is None


def test_what_is_stored_is_counted_by_owner(address: str) -> None:
    with sennit.open(address, user="ada") as client:
        client.session("one", metadata={"note": "z" * 1000}).add_message("user", "x" * 1000)
        client.fs.write("viking://user/x.md", "y" * 500)
        realm = engine_of(client.memory).scope
        sessions, size = realm.store.stored(realm.user)
        assert sessions == 1
        assert 2500 < size < 5000


def test_the_names_of_branches_and_judges_and_keys_are_counted(address: str) -> None:
    with sennit.open(address, user="ada") as client:
        session = client.session("k" * 1000)
        (message,) = session.add_message("user", "x").messages
        session.create_branch("b" * 1000)
        session.label(message, 1, by="j" * 1000)
        realm = engine_of(client.memory).scope
        assert 3000 < realm.store.stored(realm.user)[1] < 5000


def test_other_tenants_find_their_sessions_open(tmp_path: Path) -> None:
    with guests(tmp_path, rate=None) as inn:
        ada, bob = inn.enter("ada"), inn.enter("bob")
        branch = branch_of(bob)
        say(bob, branch, "Hello")
        for _ in range(300):
            ada.post("/api/sessions", json={})
        assert is_open(inn.server, "bob", branch)


def is_open(server: Running, user: str, branch: str) -> bool:
    client = server.state.clients.of(tenant=user, user=user)
    return cached_session(client, branch.split("/")[3]) is not None

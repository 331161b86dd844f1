"""What one caller asks for must not keep others waiting: long work in threads, answers in pages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from sennit.memory.retrieval.query_planner import plan_by_rules
from sennit.server.rest import files
from sennit.server.settings import Limits
from sennit.sessions import plan, session
from sennit.sessions.repository import _MAX_ENCODED_ON_LOOP as FEW
from sennit.stores.search import tokenizer
from sennit.turns import context
from sennit.turns.request import Request
from tests.http_server import Talker, new_branch, serving


def on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Each piece of long work that was done, and whether an event loop stood still for it."""
    found: list[tuple[str, bool]] = []

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            found.append((name, on_a_loop()))
            return work(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(session, "plain_dict")
    watch(plan, "message_record")
    watch(Request, "model_request")
    return found


def test_metadata_is_checked_and_many_items_are_stored_off_the_event_loop(
    worked: list[tuple[str, bool]],
) -> None:
    items = [{"role": "user", "content": f"Knot {n}"} for n in range(FEW + 1)]
    with serving() as server:
        path = new_branch(server).partition("/branches")[0]
        worked.clear()
        server.post("/v1/conversations", {"items": items})
        assert [one for one in worked if one[1]] == []
        assert worked.count(("message_record", False)) == len(items)
        worked.clear()
        assert server.put(path, {"metadata": {"x": [{}] * 1000}}).status_code == 200
        assert ("plain_dict", False) in worked
        assert ("plain_dict", True) not in worked


def test_the_prompt_of_a_long_branch_is_made_off_the_event_loop(
    worked: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_MAX_MESSAGES_ON_LOOP", 10)
    said = [{"role": "user", "content": "Knots?"}, {"role": "assistant", "content": "Yes."}]
    with serving(models=[Talker()]) as server:
        for long in (False, True):
            messages = [*said * (10 if long else 1), said[0]]
            asked = {"model": "talker", "messages": messages}
            answer = server.post("/v1/chat/completions", asked)
            assert answer.status_code == 200, answer.text
            asked_on_loop = [on_loop for name, on_loop in worked if name == "model_request"]
            assert asked_on_loop[-1] is not long


def test_a_comparison_of_branches_has_a_limit_and_says_how_much_more_there_is() -> None:
    with serving(limits=Limits(answer_bytes=10_000)) as server:
        branch = new_branch(server)
        session = branch.partition("/branches")[0]
        server.post(f"{session}/branches", {"name": "other"})
        for number in range(7):
            text = f"{number}" * 1_500
            assert (
                server.post(f"{branch}/messages", {"role": "user", "text": text}).status_code == 201
            )
        asked: dict[str, Any] = {"a": branch.rpartition("/")[2], "b": "other"}
        two = server.get(f"{session}/diff", params={**asked, "limit": 2}).json()
        assert (len(two["since_a"]), two["more_a"], two["since_b"], two["more_b"]) == (2, 5, [], 0)
        cut = server.get(f"{session}/diff", params=asked).json()
        assert 0 < len(cut["since_a"]) < 4
        assert len(cut["since_a"]) + cut["more_a"] == 7
        for limit in (0, 1001):
            refused = server.get(f"{session}/diff", params={**asked, "limit": limit})
            assert refused.status_code == 422


@pytest.mark.parametrize(
    "text", ["", "rye", "a\u00a0b rye, 日本語 " * 30, "x " * 50 + "brye", "no\x1cne"]
)
def test_a_snippet_of_a_text_that_is_split_piece_by_piece_is_the_same(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = tokenizer.snippet(text, ["rye"])
    monkeypatch.setattr(tokenizer, "_LAZY_SPLIT_LENGTH", -1)
    assert tokenizer.snippet(text, ["rye"]) == at_once


def test_grep_finds_the_same_however_little_it_searches_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "a\r\nknot\n\nb\x85c bowline knot\u2028\rKNOT" + "x" * 40 + " Knot end\n"
    query = {"op": "grep", "pattern": "knot", "uri": "viking://resources"}
    with serving() as server:
        uri = "/api/files?uri=viking://resources/knots.md"
        assert server.put(uri, {"text": text}).status_code == 200
        at_once = server.get("/api/files", params=query).json()["lines"]
        expected = [n for n, line in enumerate(text.splitlines(), 1) if "knot" in line.lower()]
        assert [one["number"] for one in at_once] == expected
        for size in (1, 2, 3, 7):
            monkeypatch.setattr(files, "_BLOCK_CHARS", size)
            assert server.get("/api/files", params=query).json()["lines"] == at_once


def test_the_words_of_a_question_are_those_of_its_beginning() -> None:
    long = "knot " * tokenizer.MAX_QUERY_LENGTH
    assert tokenizer.query_words(f"{long} anchor") == ["knot"]
    (query,) = plan_by_rules(f"{long} anchor")
    assert len(query.text) == tokenizer.MAX_QUERY_LENGTH
    carried = plan_by_rules("And that one?", [f"Anchor. {long} bowline"])
    assert any("anchor" in one.text for one in carried)
    assert all("bowline" not in one.text for one in carried)


def test_an_idle_server_has_imported_what_its_first_stream_needs() -> None:
    script = """
import asyncio, sys
from sennit.server.app import create_app
from sennit.server.settings import ServerSettings
from sennit.testing import ScriptedModel

async def main():
    app = create_app(ServerSettings(url=":memory:", models=(ScriptedModel(["Hello"]),)))
    async with app.state.server.running():
        before = set(sys.modules)
        import anyio
        async with anyio.create_task_group():
            pass
        print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""
    command = [sys.executable, "-c", script]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert told.stdout == "[]\n", told.stderr


def test_a_server_looks_for_cycles_among_few_objects_at_a_time() -> None:
    """No other thread runs meanwhile."""
    program = """if True:
        import gc
        from sennit.server.run import tune
        looked_through = []
        def note(phase, info):
            if phase == "start":
                young = range(info["generation"] + 1)
                looked_through.append(sum(len(gc.get_objects(one)) for one in young))
        tune()
        gc.callbacks.append(note)
        kept = [[] for _ in range(100_000)]
        print(len(looked_through), max(looked_through))
    """
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    times, most = map(int, told.stdout.split())
    assert times > 10
    assert most < 15_000

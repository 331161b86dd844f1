"""/api/ag-ui, asked as AG-UI's HttpAgent asks it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sennit import AudioPart, FilePart, ModelError
from sennit.messages.media import part_of_block
from sennit.server.http.tokens import new_token, write_tokens
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Gate, Running, Talker, serving


def weather(city: str) -> str:
    """The forecast for a city."""
    return f"rain in {city}"


def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def user(name: str, content: Any) -> dict[str, Any]:
    return {"id": name, "role": "user", "content": content}


def events_in(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = (line[6:] for line in answer.text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines]


class Thread:
    """A page with one thread; its messages are read again after each run."""

    def __init__(self, server: Running, model: Any) -> None:
        self.server, self.model = server, model
        self.messages: list[dict[str, Any]] = []

    def post(self, **more: Any) -> httpx.Response:
        body = {"threadId": "knots", "runId": "r1", "messages": self.messages, "tools": []}
        return self.server.post("/api/ag-ui", {**body, "context": [], **more})

    def run(self, **more: Any) -> list[dict[str, Any]]:
        answer = self.post(**more)
        assert answer.status_code == 200, answer.text
        self.messages = self.history()
        return events_in(answer)

    def send(self, name: str, content: Any, **more: Any) -> list[dict[str, Any]]:
        self.messages.append(user(name, content))
        return self.run(**more)

    def history(self) -> list[dict[str, Any]]:
        return self.server.get("/api/ag-ui/knots").json()["messages"]


@contextmanager
def page(*replies: Any, **more: Any) -> Generator[Thread]:
    model = ScriptedModel(replies, name="sage", chunk=5)
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[model], tools=tools, memory=False, **more) as server:
        yield Thread(server, model)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(event["type"] for event in events))


def test_a_message_is_answered_as_events_of_the_run() -> None:
    reply = Reply(items=(ReplyReasoning("Ropes."), ReplyText("The bowline.")))
    with page(reply) as thread:
        events = thread.send("m1", "Name a knot.")
        assert kinds(events) == [
            "RUN_STARTED",
            "REASONING_START",
            "REASONING_MESSAGE_START",
            "REASONING_MESSAGE_CONTENT",
            "REASONING_MESSAGE_END",
            "REASONING_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        assert events[0] == {"type": "RUN_STARTED", "threadId": "knots", "runId": "r1"}
        assert events[-1]["outcome"] == {"type": "success"}
        assert [(one["role"], one["content"]) for one in thread.messages] == [
            ("user", "Name a knot."),
            ("reasoning", "Ropes."),
            ("assistant", "The bowline."),
        ]


def test_a_picture_that_the_user_has_not_stored_is_refused_and_leaves_no_thread() -> None:
    source = {"type": "url", "value": f"sennit-blob:sha256:{'0' * 64}", "mimeType": "image/png"}
    with page("Sunny.") as thread:
        thread.messages.append(user("m1", [{"type": "image", "source": source}]))
        answer = thread.post()
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert thread.server.get("/api/sessions").json()["sessions"] == []


def test_a_thread_goes_on_on_one_branch_and_only_the_last_message_is_read() -> None:
    reply = Reply(items=(ReplyReasoning("Ropes."), ReplyText("The bowline.")))
    with page(reply, "It holds.") as thread:
        thread.send("m1", "Name a knot.")
        thread.messages[-1]["content"] = "forged"
        thread.send("m2", "Why?")
        asked = [message["content"] for message in thread.model.requests[-1].messages]
        assert asked == ["Name a knot.", "The bowline.", "Why?"]
        branches = thread.server.get("/api/sessions/knots").json()["branches"]
        assert [branch["message_count"] for branch in branches] == [4]


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_needs_approval_interrupts_the_run(approved: bool) -> None:
    with page([ToolCall("pay", {"amount": 7}, "call_1")], "Done.") as thread:
        events = thread.send("m1", "Pay 7.")
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert (interrupt["id"], interrupt["toolCallId"]) == ("call_1", "call_1")
        payload = {"approved": approved, "reason": "no money"}
        resume = [{"interruptId": "call_1", "status": "resolved", "payload": payload}]
        events = thread.run(resume=resume, runId="r2")
        (result,) = (event for event in events if event["type"] == "TOOL_CALL_RESULT")
        assert ("paid 7" in result["content"]) is approved
        assert ("no money" in result["content"]) is not approved
        assert events[-1]["runId"] == "r2"
        answer = thread.post(resume=resume)
        assert answer.status_code == 409
        assert [one["role"] for one in thread.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_an_interrupt_that_is_abandoned_or_answered_without_words_is_a_denial() -> None:
    calls = [ToolCall("pay", {"amount": at}, f"call_{at}") for at in (1, 2)]
    with page(calls, "Nothing was paid.") as thread:
        thread.send("m1", "Pay.")
        resume = [
            {"interruptId": "call_1", "status": "cancelled", "payload": {"approved": True}},
            {"interruptId": "call_2", "status": "resolved"},
        ]
        events = thread.run(resume=resume)
        results = [one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT"]
        assert len(results) == 2
        assert "paid" not in str(results)


def test_an_earlier_message_that_is_answered_again_is_a_fork() -> None:
    with page("The bowline.", "The sheet bend.", "It holds.") as thread:
        thread.send("m1", "Name a knot.")
        thread.messages.pop()
        thread.run(runId="r2")
        assert [one["content"] for one in thread.messages] == ["Name a knot.", "The sheet bend."]
        branches = thread.server.get("/api/sessions/knots").json()["branches"]
        assert [branch["message_count"] for branch in branches] == [2, 2]


def test_a_run_that_is_requested_again_is_streamed_again_and_nothing_is_paid_twice() -> None:
    paid: list[int] = []

    def send_money(amount: int) -> str:
        """Pay at once."""
        paid.append(amount)
        return f"paid {amount}"

    replies = [[ToolCall("send_money", {"amount": 7}, "call_1")], "Done."] * 2
    model = ScriptedModel(replies, name="sage", chunk=5)
    with serving(models=[model], tools=[send_money], memory=False) as server:
        thread = Thread(server, model)
        first = thread.send("m1", "Pay 7.")
        sent = thread.messages = thread.messages[:1]
        assert events_in(thread.post()) == first
        without = events_in(thread.post(runId=None))
        assert [event["type"] for event in without] == [event["type"] for event in first]
        assert paid == [7]
        second = events_in(thread.post(runId="r2"))
        assert second[0]["runId"] == "r2"
        assert paid == [7, 7]
        assert events_in(thread.post(runId="r2")) == second
        assert events_in(thread.post()) == first
        assert paid == [7, 7]
        branches = server.get("/api/sessions/knots").json()["branches"]
        assert [branch["message_count"] for branch in branches] == [4, 4]
        assert thread.history()[:1] == sent


def test_a_run_that_is_requested_again_after_its_approval_ends_once() -> None:
    with page([ToolCall("pay", {"amount": 7}, "call_1")], "Done.") as thread:
        first = thread.send("m1", "Pay 7.")
        sent = thread.messages[:1]
        assert events_in(thread.post(messages=sent)) == first
        payload = {"approved": True}
        resume = [{"interruptId": "call_1", "status": "resolved", "payload": payload}]
        thread.run(resume=resume, runId="r2")
        for run in ("r1", "r2"):
            events = events_in(thread.post(messages=sent, runId=run))
            ends = [event for event in events if event["type"] == "RUN_FINISHED"]
            assert ends == [events[-1]]
            assert ends[0]["outcome"] == {"type": "success"}
            assert "TOOL_CALL_RESULT" in kinds(events)
        assert len(thread.model.requests) == 2


def test_context_of_the_page_is_in_the_prompt_of_this_run_alone() -> None:
    with page("Ropes.", "What?") as thread:
        context = [{"description": "The page", "value": "is about ropes"}]
        thread.send("m1", "What is it about?", context=context)
        assert "The page: is about ropes" in str(thread.model.requests[0].messages)
        thread.send("m2", "And now?")
        assert "ropes" not in str(thread.model.requests[1].messages)
        assert thread.messages[0]["content"] == "What is it about?"


def test_pictures_reach_the_model() -> None:
    data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://example.org/knot.png"}},
    ]
    with page("A dot.") as thread:
        thread.send("m1", parts)
        shown = str(thread.model.requests[-1].messages[-1]["content"])
        assert f"data:image/png;base64,{data}" in shown
        assert "https://example.org/knot.png" in shown
        assert len(thread.messages[0]["content"]) == 3


def test_files_and_recordings_reach_the_model_and_come_back() -> None:
    def source(kind: str, data: bytes) -> dict[str, str]:
        return {"type": "data", "value": b64encode(data).decode(), "mimeType": kind}

    pdf, wav = b"%PDF-1.7 " + bytes(2_000), b"RIFF\x2a\0\0\0WAVEfmt " + bytes(2_000)
    parts = [
        {"type": "document", "source": source("application/pdf", pdf)},
        {"type": "audio", "source": source("audio/wav", wav)},
    ]
    with page("A knot.") as thread:
        thread.send("m1", parts)
        blocks = thread.model.requests[-1].messages[-1]["content"]
        assert [part_of_block(block) for block in blocks] == [FilePart(pdf), AudioPart(wav)]
        shown = thread.messages[0]["content"]
        assert [part["type"] for part in shown] == ["document", "audio"]
        assert shown[0]["source"]["value"] == FilePart(pdf).url


def test_a_run_is_followed_stopped_and_gone() -> None:
    gate = Gate()
    with serving(models=[Talker("sage", gate)], memory=False) as server:
        body = {"threadId": "knots", "messages": [user("m1", "Name a knot.")]}
        with server.http.stream("POST", "/api/ag-ui", json=body) as answer:
            next(line for line in answer.iter_lines() if "TEXT_MESSAGE_CONTENT" in line)
            gate.reached()
        with server.http.stream("GET", "/api/ag-ui/knots/stream") as again:
            lines = again.iter_lines()
            next(line for line in lines if "TEXT_MESSAGE_CONTENT" in line)
            assert server.post("/api/ag-ui/knots/stop").status_code == 204
            assert any('"cancelled"' in line for line in lines)
        assert server.get("/api/ag-ui/knots/stream").status_code == 204
        gate.open()


def test_a_failure_of_the_model_is_an_error_of_the_run() -> None:
    with page(ModelError("The model is away.", kind="overloaded")) as thread:
        last = thread.send("m1", "Name a knot.")[-1]
        assert last["type"] == "RUN_ERROR"
        assert "The model is away." in last["message"]


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "no messages": ({"messages": []}, 422, "must not be empty"),
    "a message that is not known": (
        {"messages": [user("m0", "Hi"), user("m1", "Hello")]},
        409,
        "no message 'm0'",
    ),
    "tools of the page": (
        {"messages": [user("m1", "Hi")], "tools": [{"name": "paint"}]},
        422,
        "Tools of a page are not supported",
    ),
    "a model that is not there": (
        {"messages": [user("m1", "Hi")], "forwardedProps": {"model": "oracle"}},
        422,
        "'oracle'",
    ),
    "a film": ({"messages": [user("m1", [{"type": "video"}])]}, 422, "'audio' and 'document'"),
    "audio without a source": (
        {"messages": [user("m1", [{"type": "audio", "source": {"type": "id"}}])]},
        422,
        "A 'source' is a 'url'",
    ),
    "a run id that is too long": (
        {"messages": [user("m1", "Hi")], "runId": "r" * 201},
        422,
        "runId",
    ),
    "an empty message": ({"messages": [user("m1", "")]}, 422, "a text or a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_nothing_is_stored(case: str) -> None:
    fields, status, reason = BAD[case]
    with page("Hello.") as thread:
        answer = thread.post(**fields)
        assert answer.status_code == status, answer.text
        assert reason in answer.json()["error"]["message"]
        assert thread.server.get("/api/sessions").json()["sessions"] == []


def test_a_thread_of_another_user_is_not_there(tmp_path: Path) -> None:
    entries = [new_token(user=name, scopes=["read", "write", "run"]) for name in ("ada", "bob")]
    write_tokens(tmp_path / "tokens.json", [token for _, token in entries])
    model = ScriptedModel(["The bowline.", "Hello, Bob."], name="sage")
    with serving(models=[model], tokens=tmp_path / "tokens.json") as server:
        ada, bob = (server.as_holder(plain) for plain, _ in entries)
        body = {"threadId": "knots", "messages": [user("m1", "Name a knot.")]}
        assert "The bowline." in ada.post("/api/ag-ui", json=body).text
        assert bob.get("/api/ag-ui/knots").status_code == 404
        assert "Hello, Bob." in bob.post("/api/ag-ui", json=body).text

"""/api/chat, asked as the AI SDK's DefaultChatTransport asks it."""

from __future__ import annotations

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
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

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"


def weather(city: str) -> str:
    """The forecast for a city."""
    return f"rain in {city}"


def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def user(name: str, *parts: Any) -> dict[str, Any]:
    """A user's message; texts are parts."""
    full = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"id": name, "role": "user", "parts": full}


def chunks_in(answer: httpx.Response) -> list[dict[str, Any]]:
    *lines, end = (line[6:] for line in answer.text.splitlines() if line.startswith("data: "))
    assert end == "[DONE]"
    return [json.loads(line) for line in lines]


class Page:
    """A page with one chat, which keeps messages as the AI SDK does."""

    def __init__(self, server: Running, model: Any, chat: str = "knots") -> None:
        self.server, self.model, self.chat = server, model, chat
        self.messages: list[dict[str, Any]] = []

    def post(self, **more: Any) -> httpx.Response:
        body = {"id": self.chat, "messages": self.messages, "trigger": "submit-message", **more}
        return self.server.post("/api/chat", body)

    def send(self, name: str, *parts: Any) -> list[dict[str, Any]]:
        """Send a message; the answer is read again from the history."""
        self.messages.append(user(name, *parts))
        return self.answered()

    def answered(self) -> list[dict[str, Any]]:
        answer = self.post()
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        chunks = chunks_in(answer)
        self.messages = self.history()
        return chunks

    def history(self) -> list[dict[str, Any]]:
        return self.server.get(f"/api/chat/{self.chat}").json()["messages"]

    def texts(self) -> list[str]:
        parts = (part for message in self.messages for part in message["parts"])
        return [part["text"] for part in parts if part["type"] == "text"]

    def branches(self) -> list[Any]:
        return self.server.get(f"/api/sessions/{self.chat}").json()["branches"]


@contextmanager
def page(*replies: Any, **more: Any) -> Generator[Page]:
    model = ScriptedModel(replies, name="sage", chunk=5)
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[model], tools=tools, memory=False, **more) as server:
        yield Page(server, model)


def kinds(chunks: list[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def test_a_message_is_answered_as_a_stream_of_chunks() -> None:
    with page(Reply(items=(ReplyReasoning("Ropes."), ReplyText("The bowline.")))) as shown:
        chunks = shown.send("m1", "Name a knot.")
        assert list(dict.fromkeys(kinds(chunks))) == [
            "start",
            "start-step",
            "reasoning-start",
            "reasoning-delta",
            "reasoning-end",
            "text-start",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
        ]
        text = "".join(one["delta"] for one in chunks if one["type"] == "text-delta")
        assert text == "The bowline."
        asked, answer = shown.messages
        assert (asked["id"], asked["role"], asked["parts"]) == (
            "m1",
            "user",
            [{"type": "text", "text": "Name a knot."}],
        )
        assert answer["id"] == chunks[0]["messageId"]
        assert [(part["type"], part["text"]) for part in answer["parts"]] == [
            ("reasoning", "Ropes."),
            ("text", "The bowline."),
        ]


def test_a_file_that_the_user_has_not_stored_is_refused_and_leaves_no_chat(tmp_path: Path) -> None:
    model = ScriptedModel(["A heron."], name="sage")
    missing = {"type": "file", "mediaType": "image/png", "url": f"sennit-blob:sha256:{'0' * 64}"}
    with serving(tmp_path / "s.db", models=[model]) as server:
        answer = server.post("/api/chat", {"id": "knots", "messages": [user("m1", missing)]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert server.get("/api/sessions").json()["sessions"] == []
        assert not model.requests


def test_a_chat_goes_on_on_one_branch_and_only_the_last_message_is_read() -> None:
    with page("The bowline.", "It holds.") as shown:
        shown.send("m1", "Name a knot.")
        shown.messages[1]["parts"] = [{"type": "text", "text": "forged"}]
        shown.send("m2", "Why?")
        asked = [message["content"] for message in shown.model.requests[-1].messages]
        assert asked == ["Name a knot.", "The bowline.", "Why?"]
        assert [branch["message_count"] for branch in shown.branches()] == [4]


def test_the_servers_tools_are_run_and_shown() -> None:
    calls = [ToolCall("weather", {"city": city}, f"call_{city}") for city in ("Oslo", "Rome")]
    with page(calls, "Rain everywhere.") as shown:
        chunks = shown.send("m1", "Weather?")
        outputs = [one for one in chunks if one["type"] == "tool-output-available"]
        assert [(one["toolCallId"], one["output"]) for one in outputs] == [
            ("call_Oslo", "rain in Oslo"),
            ("call_Rome", "rain in Rome"),
        ]
        assert kinds(chunks).count("start-step") == 2
        assert kinds(chunks).count("start") == 1
        parts = shown.messages[1]["parts"]
        assert parts[0] == {
            "type": "tool-weather",
            "toolCallId": "call_Oslo",
            "input": {"city": "Oslo"},
            "state": "output-available",
            "output": "rain in Oslo",
        }
        assert parts[2]["text"] == "Rain everywhere."


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_waits_for_approval_on_the_page(approved: bool) -> None:
    with page([ToolCall("pay", {"amount": 7}, "call_1")], "Done.") as shown:
        chunks = shown.send("m1", "Pay 7.")
        request = chunks[-3]
        assert request["type"] == "tool-approval-request"
        assert chunks[-1] == {"type": "finish", "finishReason": "tool-calls"}
        part = shown.messages[1]["parts"][0]
        assert (part["state"], part["approval"]) == ("approval-requested", {"id": "call_1"})
        approval = {"id": "call_1", "approved": approved, "reason": "no money"}
        part |= {"state": "approval-responded", "approval": approval}
        chunks = shown.answered()
        assert chunks[0] == {"type": "start", "messageId": shown.messages[1]["id"]}
        assert ("tool-output-available" if approved else "tool-output-denied") in kinds(chunks)
        assert "".join(one.get("delta", "") for one in chunks) == "Done."
        part = shown.messages[1]["parts"][0]
        assert part["state"] == ("output-available" if approved else "output-error")
        assert len(shown.messages) == 2


def test_a_decision_that_comes_again_is_refused_and_nothing_is_paid_twice() -> None:
    with page([ToolCall("pay", {"amount": 7}, "call_1")], "Done.") as shown:
        shown.send("m1", "Pay 7.")
        part = shown.messages[1]["parts"][0]
        part |= {"state": "approval-responded", "approval": {"id": "call_1", "approved": True}}
        decided = [*shown.messages]
        shown.answered()
        shown.messages = decided
        answer = shown.post()
        assert answer.status_code == 409
        assert "no call is decided" in answer.json()["error"]["message"]
        assert len(shown.model.requests) == 2


@contextmanager
def shop(*replies: Any, **more: Any) -> Generator[tuple[Page, list[int]]]:
    """A page whose server has a tool without approval, and what the tool has paid."""
    paid: list[int] = []

    def send_money(amount: int) -> str:
        """Pay at once."""
        paid.append(amount)
        return f"paid {amount}"

    model = ScriptedModel(replies, name="sage", chunk=5)
    tools = (send_money, Tool(pay, needs_approval=True))
    with serving(models=[model], tools=tools, memory=False, **more) as server:
        yield Page(server, model), paid


PAY = [ToolCall("send_money", {"amount": 7}, "call_1")]


def test_a_message_that_is_sent_again_gets_the_same_answer_and_nothing_is_paid_twice() -> None:
    with shop(PAY, "Done.", "You are welcome.", PAY, "Again.") as (shown, paid):
        sent = user("m1", "Pay 7.")
        chunks = shown.send("m1", "Pay 7.")
        shown.messages = [sent]
        assert chunks_in(shown.post()) == chunks
        shown.messages = shown.history()
        shown.send("m2", "Thanks.")
        shown.messages = [sent]
        assert chunks_in(shown.post()) == chunks
        assert paid == [7]
        assert [branch["message_count"] for branch in shown.branches()] == [6]
        again = chunks_in(shown.post(trigger="regenerate-message"))
        assert "".join(one.get("delta", "") for one in again) == "Again."
        assert paid == [7, 7]
        assert chunks_in(shown.post()) == chunks
        assert len(shown.branches()) == 2


def test_a_message_that_is_sent_several_times_at_once_is_answered_once() -> None:
    with shop(*[PAY, "Done."] * 6) as (shown, paid), ThreadPoolExecutor(6) as pool:
        shown.messages = [user("m1", "Pay 7.")]
        answers = list(pool.map(lambda _: shown.post(), range(6)))
        assert [answer.status_code for answer in answers] == [200] * 6
        texts = ["".join(one.get("delta", "") for one in chunks_in(answer)) for answer in answers]
        assert texts == ["Done."] * 6
        assert paid == [7]
        assert [branch["message_count"] for branch in shown.branches()] == [4]


def test_a_message_whose_answer_failed_after_a_tool_is_not_answered_again_unasked() -> None:
    with shop(PAY, ModelError("The model is away.", kind="bad_request"), "Fine.") as (shown, paid):
        chunks = shown.send("m1", "Pay 7.")
        assert chunks[-1]["type"] == "error"
        shown.messages = shown.messages[:1]
        assert chunks_in(shown.post()) == chunks
        assert paid == [7]


def test_a_message_that_is_sent_again_after_an_approval_gets_the_answer_with_one_end() -> None:
    with page([ToolCall("pay", {"amount": 7}, "call_1")], "Done.") as shown:
        sent = user("m1", "Pay 7.")
        first = shown.send("m1", "Pay 7.")
        answered = shown.messages
        shown.messages = [sent]
        assert chunks_in(shown.post()) == first
        answered[1]["parts"][0] |= {
            "state": "approval-responded",
            "approval": {"id": "call_1", "approved": True},
        }
        shown.messages = answered
        shown.answered()
        shown.messages = [sent]
        chunks = chunks_in(shown.post())
        assert kinds(chunks).count("finish") == kinds(chunks).count("start") == 1
        assert chunks[-1] == {"type": "finish", "finishReason": "stop"}
        assert "tool-output-available" in kinds(chunks)
        assert "".join(one.get("delta", "") for one in chunks) == "Done."
        assert len(shown.model.requests) == 2


def test_a_message_that_is_sent_again_while_it_is_answered_joins_the_answer() -> None:
    gate = Gate()
    with serving(models=[Talker("sage", gate)], memory=False) as server:
        body = {"id": "knots", "messages": [user("m1", "Name a knot.")]}
        with server.http.stream("POST", "/api/chat", json=body) as answer:
            next(line for line in answer.iter_lines() if "text-delta" in line)
            gate.reached()
            with server.http.stream("POST", "/api/chat", json=body) as again:
                lines = again.iter_lines()
                text = json.loads(next(line for line in lines if "text-delta" in line)[6:])["delta"]
                gate.open()
                rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        text += "".join(one.get("delta", "") for one in rest)
        assert text.strip() == "You said: Name a knot."
        assert rest[-1]["type"] == "finish"


def test_a_message_that_was_answered_elsewhere_is_not_answered_again_unasked() -> None:
    with page("The bowline.", "It holds.", "It slips.") as shown:
        shown.messages = [user("m1", "Name a knot.")]
        shown.answered()
        path = f"/api/sessions/knots/branches/{shown.branches()[0]['id']}"
        said = shown.server.post(f"{path}/runs", {"text": "Why?"}).json()
        shown.server.get(said["events"])
        shown.messages = shown.history()[:3]
        answer = shown.post()
        assert answer.status_code == 409
        assert "regenerate-message" in answer.json()["error"]["message"]
        assert len(shown.model.requests) == 2


def test_another_answer_is_a_fork() -> None:
    with page("The bowline.", "The sheet bend.") as shown:
        shown.send("m1", "Name a knot.")
        shown.messages.pop()
        answer = shown.post(trigger="regenerate-message")
        assert "".join(one.get("delta", "") for one in chunks_in(answer)) == "The sheet bend."
        shown.messages = shown.history()
        assert shown.texts() == ["Name a knot.", "The sheet bend."]
        assert [branch["message_count"] for branch in shown.branches()] == [2, 2]


def test_another_message_after_an_earlier_one_is_a_fork() -> None:
    with page("The bowline.", "It holds.", "It slips.", "Hello.") as shown:
        shown.send("m1", "Name a knot.")
        shown.send("m2", "Why?")
        shown.messages = shown.messages[:2]
        shown.send("m3", "Really?")
        assert shown.texts() == ["Name a knot.", "The bowline.", "Really?", "It slips."]
        assert len(shown.branches()) == 2
        shown.messages = []
        shown.send("m4", "Start again.")
        assert shown.texts() == ["Start again.", "Hello."]


def test_pictures_reach_the_model_and_come_back() -> None:
    with page("A dot.") as shown:
        file = {"type": "file", "mediaType": "image/png", "url": PIXEL}
        shown.send("m1", "What is it?", file)
        assert PIXEL in str(shown.model.requests[-1].messages[-1]["content"])
        assert shown.messages[0]["parts"][1] == file


def test_files_and_recordings_reach_the_model_and_come_back() -> None:
    pdf = FilePart(b"%PDF-1.7 " + bytes(2_000), "a.pdf")
    wav = AudioPart(b"RIFF\x2a\0\0\0WAVEfmt " + bytes(2_000))
    files = [
        {"type": "file", "mediaType": "application/pdf", "url": pdf.url, "filename": "a.pdf"},
        {"type": "file", "mediaType": "audio/wav", "url": wav.url},
    ]
    with page("A knot.") as shown:
        shown.send("m1", "Read.", *files)
        blocks = shown.model.requests[-1].messages[-1]["content"]
        assert [part_of_block(block) for block in blocks[1:]] == [pdf, wav]
        assert shown.messages[0]["parts"][1:] == files


def test_an_answer_is_followed_from_its_beginning_after_a_reload() -> None:
    gate = Gate()
    with serving(models=[Talker("sage", gate)], memory=False) as server:
        shown = Page(server, None)
        body = {"id": "knots", "messages": [user("m1", "Name a knot.")]}
        with server.http.stream("POST", "/api/chat", json=body) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if "text-delta" in line)
            gate.reached()
        assert [message["id"] for message in shown.history()] == ["m1"]
        with server.http.stream("GET", "/api/chat/knots/stream") as again:
            assert again.status_code == 200
            lines = again.iter_lines()
            first = next(line for line in lines if "text-delta" in line)
            gate.open()
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        text = json.loads(first[6:])["delta"] + "".join(one.get("delta", "") for one in rest)
        assert text.strip() == "You said: Name a knot."
        assert shown.history()[1]["parts"][0]["text"].strip() == text.strip()
        assert server.get("/api/chat/knots/stream").status_code == 204


def test_an_answer_is_stopped_and_its_text_stays() -> None:
    gate = Gate()
    with serving(models=[Talker("sage", gate)], memory=False) as server:
        shown = Page(server, None)
        body = {"id": "knots", "messages": [user("m1", "Name a knot.")]}
        with server.http.stream("POST", "/api/chat", json=body) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if "text-delta" in line)
            assert server.post("/api/chat/knots/stop").status_code == 204
            assert any('"abort"' in line for line in lines)
        assert shown.history()[1]["parts"][0]["text"].strip() == "You"
        gate.open()


def test_there_is_nothing_to_follow_in_a_chat_that_is_not_there() -> None:
    with page() as shown:
        assert shown.server.get("/api/chat/nothing/stream").status_code == 204
        assert shown.server.get("/api/chat/nothing").status_code == 404
        assert shown.server.post("/api/chat/nothing/stop").status_code == 404


def test_a_failure_of_the_model_is_an_error_chunk_and_can_be_tried_again() -> None:
    with page(ModelError("The model is away.", kind="overloaded"), "The bowline.") as shown:
        chunks = shown.send("m1", "Name a knot.")
        assert chunks[-1]["type"] == "error"
        assert "The model is away." in chunks[-1]["errorText"]
        chunks = shown.answered()
        assert "".join(one.get("delta", "") for one in chunks) == "The bowline."
        assert [branch["message_count"] for branch in shown.branches()] == [2]


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "no messages": ({"messages": []}, 422, "must not be empty"),
    "a message that is not known": (
        {"messages": [user("m0", "Hi"), user("m1", "Hello")]},
        409,
        "no message 'm0'",
    ),
    "an answer that is not known": (
        {"messages": [{"id": "a", "role": "assistant", "parts": []}]},
        409,
        "no message 'a'",
    ),
    "a message without an id": ({"messages": [{"role": "user", "parts": []}]}, 422, "field `id`"),
    "a message without text": ({"messages": [user("m1")]}, 422, "a text or a file"),
    "a file": (
        {"messages": [user("m1", {"type": "file", "mediaType": "text/plain", "url": "data:,x"})]},
        422,
        "The bytes of a file",
    ),
    "a picture that is none": (
        {
            "messages": [
                user("m1", {"type": "file", "mediaType": "image/png", "url": "data:image/png,x"})
            ]
        },
        422,
        "PNG, JPEG, GIF or WebP",
    ),
    "a part of another kind": ({"messages": [user("m1", {"type": "hologram"})]}, 422, "'text'"),
    "a model that is not there": (
        {"messages": [user("m1", "Hi")], "model": "oracle"},
        422,
        "'oracle'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_nothing_is_stored(case: str) -> None:
    fields, status, reason = BAD[case]
    with page("Hello.") as shown:
        answer = shown.post(**fields)
        assert answer.status_code == status, answer.text
        assert reason in answer.json()["error"]["message"]
        assert shown.model.requests == []
        assert shown.server.get("/api/sessions").json()["sessions"] == []


def test_a_chat_of_another_user_is_not_there(tmp_path: Path) -> None:
    entries = [new_token(user=name, scopes=["read", "write", "run"]) for name in ("ada", "bob")]
    write_tokens(tmp_path / "tokens.json", [token for _, token in entries])
    model = ScriptedModel(["The bowline.", "Hello, Bob."], name="sage")
    with serving(models=[model], tokens=tmp_path / "tokens.json") as server:
        ada, bob = (server.as_holder(plain) for plain, _ in entries)
        body = {"id": "knots", "messages": [user("m1", "Name a knot.")]}
        assert "The bowline." in ada.post("/api/chat", json=body).text
        for path in ("", "/stream"):
            assert bob.get(f"/api/chat/knots{path}").status_code in (204, 404)
        assert bob.post("/api/chat/knots/stop").status_code == 404
        assert "Hello, Bob." in bob.post("/api/chat", json=body).text
        assert len(ada.get("/api/chat/knots").json()["messages"]) == 2

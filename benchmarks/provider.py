"""A scripted provider on loopback: the APIs of OpenAI and Anthropic, in a process of its own.

    with provider([(["Name a knot."], ["The bowline."])]) as environment:
        subprocess.run([...], env=environment)

A rule is a list of texts and the replies to it. The first rule counts whose last text is in the
last user message, and whose other texts are anywhere in the request; its n-th reply follows n - 1
results of tools. So the replies do not depend on the order in which concurrent clients ask. A
reply is a text or a tool call, `{"name": …, "arguments": {…}}`. Embeddings are hashed words.

Only the standard library is imported: programs of rivals call it from environments of their own,
and the processor time of clients is measured without that of the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

Answer: TypeAlias = str | Mapping[str, Any]
Rule: TypeAlias = tuple[Sequence[str], Sequence[Answer]]
_DIMENSIONS = 1536


@contextmanager
def provider(rules: Iterable[Rule], *, seconds: float = 0) -> Generator[dict[str, str]]:
    """Run the provider; yield an environment whose variables direct the SDKs to it.

    Each reply takes `seconds`.
    """
    command = [sys.executable, str(Path(__file__)), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(list(rules)).encode() + b"\n")
        server.stdin.flush()
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            yield os.environ | {
                "OPENAI_BASE_URL": f"{url}/v1",
                "OPENAI_API_KEY": "none",
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "none",
            }
        finally:
            server.kill()


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The parts of a request that choose the reply."""

    text: str
    """All texts."""
    last: str
    """The last user message."""
    results: int
    """The number of results of tools after it."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Conversation:
        entries = body.get("messages") or body.get("input") or []
        if isinstance(entries, str):
            entries = [{"role": "user", "content": entries}]
        last, results = "", 0
        for entry in entries:
            if entry.get("role") == "tool" or entry.get("type") == "function_call_output":
                results += 1
            elif entry.get("role") == "user":
                last, results = _text_of(entry["content"]), 0
        system = [body.get("system"), body.get("instructions")]
        everything = [*system, *(entry.get("content") for entry in entries)]
        return cls("\n".join(map(_text_of, everything)), last, results)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or ())


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait to be accepted; the default is 5


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rules: Sequence[Rule] = ()
    seconds = 0.0

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/embeddings"):
            return self._send(_embeddings(body))
        asked = _Conversation.of(body)
        answer = self._answer(asked)
        if answer is None:
            error = {"message": f"no rule for {asked.last!r}", "type": "invalid_request_error"}
            return self._send({"error": error}, 400)
        time.sleep(self.seconds)
        name = self.path.rpartition("/")[2]
        whole, events = {
            "completions": (_completion, _completion_events),
            "responses": (_response, None),
            "messages": (_message, _message_events),
        }[name]
        if not body.get("stream"):
            return self._send(whole(body["model"], answer))
        assert events is not None, "streams of /responses are not scripted"
        text = "".join(events(body["model"], answer))
        return self._send_bytes(text.encode(), "text/event-stream")

    def _answer(self, asked: _Conversation) -> Answer | None:
        for texts, answers in self.rules:
            if texts[-1] in asked.last and all(text in asked.text for text in texts):
                return answers[min(asked.results, len(answers) - 1)]
        return None

    def _send(self, value: Any, status: int = 200) -> None:
        self._send_bytes(json.dumps(value).encode(), "application/json", status)

    def _send_bytes(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _call(answer: Answer) -> dict[str, Any] | None:
    """Return the id, name and arguments of a tool call; None for a text."""
    if isinstance(answer, str):
        return None
    arguments = json.dumps(answer["arguments"])
    number = zlib.crc32(f"{answer['name']}{arguments}".encode())
    return {"id": f"call_{number}", "name": answer["name"], "arguments": arguments}


def _completion(model: str, answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if call := _call(answer):
        function = {"name": call["name"], "arguments": call["arguments"]}
        calls = [{"id": call["id"], "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    finish = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return _chunk(model, "chat.completion", choice) | {"usage": usage}


def _chunk(model: str, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "c1", "object": kind, "created": 1, "model": model, "choices": [choice]}


def _completion_events(model: str, answer: Answer) -> Iterator[str]:
    message = _completion(model, answer)["choices"][0]["message"]
    finish = "tool_calls" if "tool_calls" in message else "stop"
    deltas: list[dict[str, Any]]
    if finish == "tool_calls":
        deltas = [{"tool_calls": [{"index": 0, **call} for call in message["tool_calls"]]}]
    else:
        deltas = [{"content": word} for word in _words(message["content"])]
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _event(_chunk(model, "chat.completion.chunk", choice))
    choice = {"index": 0, "delta": {}, "finish_reason": finish}
    yield _event(_chunk(model, "chat.completion.chunk", choice))
    yield "data: [DONE]\n\n"


def _words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


def _event(value: Mapping[str, Any]) -> str:
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value)}\n\n"


def _response(model: str, answer: Answer) -> dict[str, Any]:
    if call := _call(answer):
        fields = {"call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        item = {"type": "function_call", "id": "f1", "status": "completed", **fields}
    else:
        part = {"type": "output_text", "text": answer, "annotations": []}
        item = {"type": "message", "id": "m1", "role": "assistant", "content": [part]}
        item["status"] = "completed"
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10, **details}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return settings | {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": [item],
        "usage": usage,
    }


def _message(model: str, answer: Answer) -> dict[str, Any]:
    usage = {"input_tokens": 7, "output_tokens": 3}
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": answer}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _message_events(model: str, answer: Answer) -> Iterator[str]:
    message = _message(model, answer)
    start = message | {"content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": start})
    block = {"type": "text", "text": ""}
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    delta = {"type": "text_delta", "text": answer}
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    yield _event({"type": "message_stop"})


def _embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [
        {"object": "embedding", "index": index, "embedding": _hashed_words(str(text))}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": vectors, "model": body["model"], "usage": usage}


def _hashed_words(text: str) -> list[float]:
    vector = [0.05] * _DIMENSIONS  # texts without a common word are a little alike
    for word in text.lower().split():
        vector[zlib.crc32(word.strip(".,?!").encode()) % _DIMENSIONS] += 1.0
    return vector


def main() -> None:
    """Read the rules from stdin, print the port, serve until killed."""
    _Handler.rules = json.loads(sys.stdin.readline())
    _Handler.seconds = float(sys.argv[1])
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

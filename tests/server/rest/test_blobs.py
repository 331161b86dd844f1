"""Uploads and downloads of blobs over HTTP."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

import sennit
from sennit.server.http.tokens import add_token, new_token
from sennit.server.settings import Limits
from sennit.testing import ScriptedModel
from tests.http_server import Running, serving
from tests.server.rest.test_sessions import made

LIMIT = 3_000_000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4_000
HASH = sha256(PNG).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("blobs") / "s.db"
    model = ScriptedModel(["a cat"] * 9, name="eye")
    with serving(path, models=[model], limits=Limits(blob_bytes=LIMIT)) as running:
        yield running


def token(path: Path, tenant: str, user: str) -> str:
    secret, line = new_token(tenant=tenant, user=user)
    add_token(path, line)
    return secret


def upload(server: Running, data: bytes, kind: str = "image/png") -> httpx.Response:
    return server.http.post("/api/blobs", content=data, headers={"content-type": kind})


def test_an_uploaded_picture_is_named_by_a_message_and_comes_back(server: Running) -> None:
    answer = upload(server, PNG)
    assert answer.status_code == 201, answer.text
    blob = answer.json()
    assert blob == {
        "reference": f"sennit-blob:sha256:{HASH}?type=image/png&size={len(PNG)}",
        "media_type": "image/png",
        "size": len(PNG),
    }
    session = made(server, "pictures")
    path = f"/api/sessions/{session}/branches/main/messages"
    parts = [{"type": "text", "text": "look"}, {"type": "image", "url": blob["reference"]}]
    added = server.post(path, {"role": "user", "parts": parts})
    assert added.status_code == 201, added.text
    shown = server.get(path).json()["messages"]
    assert blob["reference"] in [url for message in shown for url in message.get("images", ())]
    got = server.get(f"/api/blobs/{HASH}")
    assert got.content == PNG
    assert got.headers["content-type"] == "image/png"
    assert got.headers["content-disposition"] == "inline"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in got.headers["content-security-policy"]
    head = server.http.head(f"/api/blobs/{HASH}")
    assert (head.headers["content-length"], head.content) == (str(len(PNG)), b"")


def test_a_picture_sent_in_a_message_is_shown_by_its_reference(server: Running) -> None:
    data = PNG + b"another"
    session = made(server, "inline")
    path = f"/api/sessions/{session}/branches/main/messages"
    url = f"data:image/png;base64,{b64encode(data).decode()}"
    added = server.post(path, {"role": "user", "parts": [{"type": "image", "url": url}]})
    assert added.status_code == 201, added.text
    [message] = added.json()["messages"]
    [reference] = message["images"]
    assert sha256(data).hexdigest() in reference
    assert server.get(f"/api/blobs/{sha256(data).hexdigest()}").content == data


@pytest.mark.parametrize(
    ("data", "said", "kind"),
    [
        (b"<script>alert(1)</script>", "text/html", "text/html"),
        (b"<svg onload='alert(1)'/>", "image/svg+xml", "image/svg+xml"),
        (b"%PDF-1.7 ...", "application/octet-stream", "application/pdf"),
        (b"plain", "text/plain; charset=utf-8", "text/plain"),
    ],
)
def test_a_browser_runs_nothing_of_what_was_uploaded(
    server: Running, data: bytes, said: str, kind: str
) -> None:
    assert upload(server, data, said).json()["media_type"] == kind
    got = server.get(f"/api/blobs/{sha256(data).hexdigest()}")
    assert got.content == data
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == "attachment"


def test_a_picture_that_is_none_is_refused(server: Running) -> None:
    answer = upload(server, b"<html>" * 100, "image/png")
    assert answer.status_code == 422
    assert "is not 'image/png'" in answer.json()["error"]["message"]
    assert upload(server, b"x", "no type").status_code == 422


def test_an_upload_of_2_gb_is_refused_before_its_body_is_read(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            b"POST /api/blobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2147483648\r\n\r\n"
        )
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"3,000,000 bytes" in answer


def test_an_upload_of_unknown_size_is_refused_when_it_is_too_large(server: Running) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield bytes(65_536)

    try:
        status = server.http.post("/api/blobs", content=endless()).status_code
    except httpx.TransportError:  # the server has closed the connection
        status = 413
    assert status == 413
    assert sent < 40 * LIMIT


def test_an_upload_that_is_cut_off_stores_nothing(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s.db") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
    ):
        head = b"POST /api/blobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n"
        connection.sendall(head + bytes(8_000_000))
    with sennit.open(tmp_path / "s.db") as client:
        client._store.collect_blobs(0)
        assert client._store.blob_bytes(client._owner) == 0


def test_the_same_upload_twice_at_once_is_stored_once(tmp_path: Path) -> None:
    ready = threading.Barrier(2)

    def send(url: str) -> httpx.Response:
        ready.wait()
        return httpx.post(url, content=PNG * 3, headers={"content-type": "image/png"}, timeout=30)

    with serving(tmp_path / "s.db") as server, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(send, [f"{server.url}/api/blobs"] * 2))
        assert [answer.status_code for answer in answers] == [201, 201]
        assert answers[0].json() == answers[1].json()
    with sennit.open(tmp_path / "s.db") as client:
        assert client._store.blob_bytes(client._owner) == len(PNG) * 3


def test_a_blob_is_nobodys_but_its_owners(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    owners = [("acme", "ada"), ("acme", "bob"), ("globex", "ada")]
    texts = [token(tokens, *owner) for owner in owners]
    with serving(tmp_path / "s.db", tokens=tokens) as server:
        ada, *others = map(server.as_holder, texts)
        kind = {"content-type": "image/png"}
        reference = ada.post("/api/blobs", content=PNG, headers=kind).json()["reference"]
        assert ada.get(f"/api/blobs/{HASH}").content == PNG
        for other in others:
            assert other.get(f"/api/blobs/{HASH}").status_code == 404
            session = other.post("/api/sessions", json={"key": "mine"}).json()["id"]
            path = f"/api/sessions/{session}/branches/main/messages"
            other.post(f"/api/sessions/{session}/branches", json={"name": "main"})
            body = {"role": "user", "parts": [{"type": "image", "url": reference}]}
            refused = other.post(path, json=body)
            assert refused.status_code == 404
            assert "no blob" in refused.json()["error"]["message"]
            text = {"role": "user", "text": reference}
            assert other.post(path, json=text).status_code == 201
        assert httpx.get(f"{server.url}/api/blobs/{HASH}").status_code == 401


@pytest.mark.parametrize("name", ["x", "A" * 64, "a" * 64 + "%3Ftype=a/b&size=1", "..%2F.."])
def test_a_name_that_is_no_hash_is_not_found(server: Running, name: str) -> None:
    assert server.get(f"/api/blobs/{name}").status_code == 404


def test_an_owner_without_room_is_told_so(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    secret = token(tokens, "acme", "ada")
    limits = Limits(owner_bytes=1_500_000)
    with serving(tmp_path / "s.db", tokens=tokens, limits=limits) as server:
        ada = server.as_holder(secret)
        assert ada.post("/api/blobs", content=PNG).status_code == 201
        full = ada.post("/api/blobs", content=PNG + b"more")
        assert full.status_code == 413
        assert "does not fit" in full.json()["error"]["message"]


def test_front_ends_get_the_bytes_of_a_picture_after_a_reload(server: Running) -> None:
    data = PNG + b"front end"
    url = f"data:image/png;base64,{b64encode(data).decode()}"
    session = made(server, "front-end")
    path = f"/api/sessions/{session}/branches/main/messages"
    parts = [{"type": "text", "text": "look"}, {"type": "image", "url": url}]
    assert server.post(path, {"role": "user", "parts": parts}).status_code == 201
    for protocol in ("chat", "ag-ui"):
        assert url in server.get(f"/api/{protocol}/{session}").text

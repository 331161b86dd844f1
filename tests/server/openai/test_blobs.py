"""Pictures that clients of OpenAI's API send with their bytes are stored once and come back."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sennit.testing import ScriptedModel
from tests.http_server import Running, serving

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1_000
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


def blob_bytes(server: Running) -> int:
    client = server.state.clients.of()
    return client._store.blob_bytes(client._owner)


def test_a_history_with_a_picture_that_is_sent_again_continues_its_conversation(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["a cat", "grey", "yes"], name="eye")
    with serving(tmp_path / "s.db", models=[model]) as server:
        picture = {"type": "image_url", "image_url": {"url": URL}}
        chat: list[dict[str, Any]] = [
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}
        ]
        for text in ("Which colour?", "Sure?", ""):
            body = {"model": "eye", "messages": chat}
            answer = server.post("/v1/chat/completions", body).json()
            chat += [answer["choices"][0]["message"], {"role": "user", "content": text}]
        client = server.state.clients.of()
        [session] = [client.session(info.id) for info in client.sessions()]
        assert len(session.branches) == 1
        assert len(session.messages) == 6
        assert blob_bytes(server) == len(PNG)
    for request in model.requests:
        assert json.dumps(list(request.messages)).count(URL) == 1


@pytest.mark.parametrize("by_item", [False, True])
def test_the_items_of_a_conversation_have_the_bytes(tmp_path: Path, by_item: bool) -> None:
    with serving(tmp_path / "s.db") as server:
        picture = {"type": "input_image", "image_url": URL, "detail": "auto"}
        items = {"items": [{"role": "user", "content": [picture]}]}
        conversation = server.post("/v1/conversations", items).json()["id"]
        path = f"/v1/conversations/{conversation}/items"
        [item] = server.get(path).json()["data"]
        if by_item:
            item = server.get(f"{path}/{item['id']}").json()
        urls = [part.get("image_url") for part in item["content"]]
        assert URL in urls
        assert blob_bytes(server) == len(PNG)


def test_a_client_cannot_have_a_strangers_blob_sent_to_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(["never"], name="eye")
    with serving(tmp_path / "s.db", models=[model]) as server:
        picture = {"type": "image_url", "image_url": {"url": f"sennit-blob:sha256:{'a' * 64}"}}
        body = {"model": "eye", "messages": [{"role": "user", "content": [picture]}]}
        answer = server.post("/v1/chat/completions", body)
        assert answer.status_code == 404, answer.text
        named = {**body, "metadata": {"session": "notes"}}
        assert server.post("/v1/chat/completions", named).status_code == 404
        assert not model.requests
        assert server.get("/api/sessions").json()["sessions"] == []

"""A branch on which another run is active: `when_busy` over REST and the OpenAI-compatible API."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import ConflictError

from tests.http_server import Gate, Talker, new_branch, serving
from tests.openai_client import client

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")


@pytest.mark.parametrize("way", ["wait", "interrupt"])
def test_a_response_waits_for_the_one_under_way_or_ends_it(way: str) -> None:
    gate = Gate()
    with serving(models=[Talker(gate=gate)]) as server, client(server) as openai:
        name = openai.conversations.create().id

        def asked(text: str) -> dict[str, str]:
            return {"model": "talker", "input": text, "conversation": name}

        first = openai.responses.create(**asked("One?"), stream=True)
        gate.reached()
        with pytest.raises(ConflictError, match="Branch 'main' is busy: this program") as refused:
            openai.responses.create(**asked("Two?"))
        body = refused.value.body
        assert isinstance(body, dict)
        assert body["code"] == "busy"
        assert not UUID.search(str(body["message"]))
        with ThreadPoolExecutor(1) as threads:
            second = threads.submit(
                openai.responses.create, **asked("Two?"), extra_body={"when_busy": way}
            )
            if way == "wait":
                gate.open()
            ends = [event.type for event in first][-1]
            assert second.result(30).output_text == "You said: Two?"
        assert ends == ("response.completed" if way == "wait" else "response.failed")


@pytest.mark.parametrize("way", ["wait", "interrupt"])
def test_a_run_waits_for_the_one_under_way_or_ends_it(way: str) -> None:
    gate = Gate()
    with serving(models=[Talker(gate=gate)]) as server:
        runs = f"{new_branch(server)}/runs"
        server.post(runs, {"text": "One?"}).raise_for_status()
        gate.reached()
        refused = server.post(runs, {"text": "Two?"})
        assert refused.status_code == 409
        assert "is busy: this program is answering on it" in refused.text
        assert not UUID.search(refused.text)
        with ThreadPoolExecutor(1) as threads:
            body = {"text": "Two?", "options": {"when_busy": way}}
            second = threads.submit(server.post, runs, body)
            if way == "wait":
                gate.open()
            assert second.result(30).status_code == 202
            gate.open()


def test_an_unknown_way_is_refused() -> None:
    with serving(models=[Talker()]) as server:
        answer = server.post("/v1/responses", {"model": "talker", "input": "Hi", "when_busy": "x"})
        assert (answer.status_code, "when_busy" in answer.text) == (400, True)

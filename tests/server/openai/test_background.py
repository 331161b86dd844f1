"""Responses in the background: they go on without their client, and are read by id."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import openai
import pytest

from sennit import ModelError
from sennit.server.http.tokens import new_token, write_tokens
from sennit.server.openai import responses
from sennit.server.openai.stored_responses import find_response
from sennit.server.settings import Limits
from sennit.sessions.run_repository import RunRepository
from sennit.testing import ScriptedModel
from sennit.turns.subscription import has_active_run
from tests.http_server import Gate, Talker, serving
from tests.openai_client import client, served

ASK: dict[str, Any] = {"model": "sage", "background": True}


def wait_for_end(sdk: Any, name: str) -> Any:
    """Poll as the documentation of the client says, until the response has ended."""
    end = monotonic() + 30
    while (response := sdk.responses.retrieve(name)).status in ("queued", "in_progress"):
        assert monotonic() < end, "the response did not end"
    return response


@contextmanager
def at_gate(store: str | Path = ":memory:", **more: Any) -> Generator[tuple[Gate, Any]]:
    gate = Gate()
    with serving(store, models=[Talker("sage", gate)], **more) as server, client(server) as sdk:
        yield gate, sdk
        gate.open()


def test_a_response_in_the_background_is_polled_until_it_is_complete() -> None:
    with at_gate() as (gate, sdk):
        started = sdk.responses.create(**ASK, input="Name a knot.")
        assert (started.status, started.background) == ("in_progress", True)
        gate.reached()
        assert sdk.responses.retrieve(started.id).status == "in_progress"
        gate.open()
        response = wait_for_end(sdk, started.id)
        assert response.status == "completed"
        assert response.output_text.strip() == "You said: Name a knot."
        more = sdk.responses.create(model="sage", input="Why?", previous_response_id=started.id)
        assert more.output_text.strip() == "You said: Why?"


def test_a_response_that_ends_while_it_is_read_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_gate() as (gate, sdk):
        started = sdk.responses.create(**ASK, input="Name a knot.")
        gate.reached()
        looked: list[str] = []

        async def find(caller: Any, name: str) -> Any:
            stored = await find_response(caller, name)
            assert stored is not None
            if not looked:  # the run ends after the first look
                gate.open()
                while await to_thread(has_active_run, RunRepository(stored.branch)):
                    await sleep(0)
            looked.append(name)
            return stored

        monkeypatch.setattr(responses, "find_response", find)
        assert sdk.responses.retrieve(started.id).status == "completed"


def test_a_model_that_does_not_stream_answers_in_the_background() -> None:
    with served("The bowline.", streams=False) as chat:
        started = chat.openai.responses.create(**ASK, input="Name a knot.")
        assert wait_for_end(chat.openai, started.id).output_text == "The bowline."


def test_a_response_in_the_background_is_cancelled_and_its_text_stays() -> None:
    with at_gate() as (gate, sdk):
        started = sdk.responses.create(**ASK, input="Name a knot.")
        gate.reached()
        cancelled = sdk.responses.cancel(started.id)
        assert cancelled.status == "cancelled"
        assert cancelled.output_text.strip() == "You"
        assert sdk.responses.cancel(started.id).status == "cancelled"


def test_a_failure_in_the_background_is_told_when_it_is_read() -> None:
    failure = ModelError("The context is full.", kind="context")
    with served(failure) as chat:
        started = chat.openai.responses.create(**ASK, input="Name a knot.")
        response = wait_for_end(chat.openai, started.id)
        assert response.status == "failed"
        assert "The context is full." in response.error.message
        assert response.output == []


def test_a_request_with_a_key_is_answered_once_in_the_background_too() -> None:
    with served("The bowline.") as chat:
        more = {**ASK, "input": "Name a knot.", "extra_headers": {"Idempotency-Key": "k1"}}
        first = chat.openai.responses.create(**more)
        wait_for_end(chat.openai, first.id)
        second = chat.openai.responses.create(**more)
        assert (second.id, second.output_text) == (first.id, "The bowline.")
        assert len(chat.model.requests) == 1


def test_a_server_that_stops_cancels_what_is_in_the_background(tmp_path: Path) -> None:
    with at_gate(tmp_path / "s.db") as (gate, sdk):
        started = sdk.responses.create(**ASK, input="Name a knot.")
        gate.reached()
        # The server stops before the gate opens.
        gate.open = lambda: None  # type: ignore[method-assign]
    with serving(tmp_path / "s.db", models=[Talker("sage")]) as server, client(server) as sdk:
        response = sdk.responses.retrieve(started.id)
        assert (response.status, response.output_text.strip()) == ("cancelled", "You")


def test_another_user_can_neither_read_nor_cancel(tmp_path: Path) -> None:
    entries = [new_token(user=name, scopes=["read", "write", "run"]) for name in ("ada", "bob")]
    write_tokens(tmp_path / "tokens.json", [token for _, token in entries])
    gate, (ada, bob) = Gate(), (plain for plain, _ in entries)
    with (
        serving(models=[Talker("sage", gate)], tokens=tmp_path / "tokens.json") as server,
        client(server, ada) as owner,
        client(server, bob) as other,
    ):
        started = owner.responses.create(**ASK, input="Name a knot.")
        gate.reached()
        for attempt in (other.responses.retrieve, other.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                attempt(started.id)
        gate.open()
        assert wait_for_end(owner, started.id).status == "completed"


def test_a_token_has_so_many_responses_in_the_background_and_no_more(tmp_path: Path) -> None:
    plain, token = new_token(user="ada", scopes=["read", "write", "run"])
    write_tokens(tmp_path / "tokens.json", [token])
    gate, limits = Gate(), Limits(token_runs=1)
    more: dict[str, Any] = {"tokens": tmp_path / "tokens.json", "limits": limits}
    with (
        serving(models=[Talker("sage", gate)], **more) as server,
        client(server, plain) as sdk,
    ):
        started = sdk.responses.create(**ASK, input="Name a knot.")
        gate.reached()
        with pytest.raises(openai.RateLimitError):
            sdk.responses.create(**ASK, input="Name a bend.")
        gate.open()
        wait_for_end(sdk, started.id)
        again = sdk.responses.create(**ASK, input="Name a bend.")
        assert wait_for_end(sdk, again.id).status == "completed"


@pytest.mark.parametrize("field", ["store", "stream"])
def test_what_does_not_go_with_the_background_is_refused(field: str) -> None:
    with served() as chat:
        with pytest.raises(openai.BadRequestError) as caught:
            chat.openai.responses.create(**ASK, input="x", **{field: field == "stream"})
        assert caught.value.param == field


def test_only_a_response_in_the_background_can_be_cancelled() -> None:
    model = ScriptedModel(["The bowline."], name="sage")
    with serving(models=[model]) as server, client(server) as sdk:
        response = sdk.responses.create(model="sage", input="Name a knot.")
        with pytest.raises(openai.BadRequestError, match="background"):
            sdk.responses.cancel(response.id)

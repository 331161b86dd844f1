"""iModel from end to end: real providers' wire formats over HTTP, the real embedded model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from sennit import ModelError, iModel
from sennit.errors import ModelErrorKind
from sennit.services.models.limits import Retry, Timeout
from sennit.services.models.reply import Delta, TextDelta
from tests.conducting import Answer, invoked, result_of, said, session_with
from tests.models import answered, heard
from tests.services.conftest import KEY
from tests.services.wire_server import (
    DROP,
    STALL,
    Step,
    WireServer,
    answer,
    anthropic_block,
    anthropic_end,
    anthropic_message,
    anthropic_start,
    chunks,
    completed,
    completion,
    piece,
)

BUSY = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
TEXT = {"type": "text", "text": "Hello"}
FORMS = pytest.mark.parametrize("provider", ["openai", "anthropic"])
WAYS = pytest.mark.parametrize("way", ["ask", "stream"])
AT_ONCE = Retry(attempts=3, base=0)


def model_at(server: WireServer, provider: str, **options: Any) -> iModel:
    url = f"{server.url}/v1" if provider == "openai" else server.url
    name = "wire-model" if provider == "openai" else "claude-wire"
    return iModel(f"{provider}:{name}", base_url=url, api_key=KEY, **options)


def hello(provider: str, way: str) -> list[Step]:
    if provider == "openai":
        return answer(completion("Hello")) if way == "ask" else completed(piece(content="Hello"))
    if way == "ask":
        return answer(anthropic_message(TEXT))
    return chunks(anthropic_start(), anthropic_block(0, TEXT), anthropic_end())


def half(provider: str) -> list[Step]:
    """The beginning of a stream that breaks off."""
    begun = piece(content="Hel") if provider == "openai" else anthropic_start()
    more = b"" if provider == "openai" else anthropic_block(0, {"type": "text", "text": "Hel"})
    return chunks(begun + more, DROP, end=False)


@FORMS
@WAYS
@pytest.mark.parametrize(
    "trouble",
    [answer(BUSY, 429, {"retry-after": "0"}), answer(BUSY, 500), answer(BUSY, 529), [DROP]],
    ids=["busy", "broken", "overloaded", "disconnect"],
)
def test_trouble_that_may_pass_is_tried_again_until_there_is_an_answer(
    server: WireServer, provider: str, way: str, trouble: Sequence[Step]
) -> None:
    server.says(trouble, trouble, hello(provider, way))
    model = model_at(server, provider, retry=AT_ONCE)
    assert asyncio.run(answered(model, way)).text == "Hello"
    assert len(server.asked) == 3


@FORMS
@WAYS
def test_a_provider_that_falls_silent_is_tried_again(
    server: WireServer, provider: str, way: str
) -> None:
    server.says([STALL], hello(provider, way))
    # So many tries that a busy machine answers one of them in time.
    patient = Retry(attempts=20, base=0)
    model = model_at(server, provider, retry=patient, timeout=Timeout(seconds=1), breaker=None)
    assert asyncio.run(answered(model, way)).text == "Hello"
    assert server.hung_up.is_set()
    assert len(server.asked) > 1


@FORMS
def test_a_stream_that_breaks_off_is_not_begun_again(server: WireServer, provider: str) -> None:
    server.says(half(provider), hello(provider, "stream"))
    told: list[Delta] = []
    with pytest.raises(ModelError) as caught:
        asyncio.run(heard(model_at(server, provider, retry=AT_ONCE), told))
    assert caught.value.kind == "network"
    assert told == [TextDelta("Hel")]
    assert len(server.asked) == 1


@FORMS
@pytest.mark.parametrize(
    ("status", "kind"), [(401, "auth"), (404, "not_found"), (400, "bad_request")]
)
def test_what_will_not_pass_is_said_at_once_and_the_session_stays_usable(
    server: WireServer, provider: str, status: int, kind: ModelErrorKind
) -> None:
    server.says(answer({"error": {"message": "no"}}, status), hello(provider, "ask"))
    session = session_with(model_at(server, provider, name="m"))

    async def scene() -> Any:
        with pytest.raises(ModelError) as caught:
            await invoked(session, "communicate", imodel="m", instruction="Hi")
        assert caught.value.kind == kind
        return await invoked(session, "communicate", imodel="m", instruction="Hi")

    assert asyncio.run(scene()) == "Hello"
    assert said(session) == ["Instruction: Hi", "Hello"]


class Tree(BaseModel):
    name: str
    branches: list[Tree] = []


def test_a_recursive_form_is_had_from_anthropic_which_does_not_take_its_schema(
    server: WireServer,
) -> None:
    said = '{"name": "oak", "branches": [{"name": "twig"}]}'
    server.says(answer(anthropic_message({"type": "text", "text": said})))
    model = iModel(
        "anthropic:claude-opus-5", base_url=server.url, api_key=KEY, name="m", max_tokens=100
    )
    assert model.supports_output_schema
    session = session_with(model, capabilities=[Tree])
    value = result_of(session, "communicate", instruction="Grow", response_model=Tree)
    assert value == Tree(name="oak", branches=[Tree(name="twig")])
    assert "interface Tree" in str(server.body["messages"])


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-opus-5"])
def test_a_missing_key_is_said_when_asked_and_the_session_stays_usable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    session = session_with(iModel(name))
    with pytest.raises(ModelError, match=f"{name.partition(':')[0].upper()}_API_KEY") as caught:
        result_of(session, "communicate", imodel=name, instruction="Hi")
    assert caught.value.kind == "auth"
    assert said(session) == []


def test_the_embedded_model_answers_in_a_session_and_in_the_form_asked_for() -> None:
    session = session_with(iModel("local", max_tokens=24))
    text = result_of(session, "communicate", imodel="local", instruction="Say hello.")
    assert said(session) == ["Instruction: Say hello.", text]
    value = result_of(
        session, "communicate", imodel="local", instruction="A number", response_model=Answer
    )
    assert isinstance(value, Answer)

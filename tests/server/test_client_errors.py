"""Errors in the classes, words and headers by which the official clients and gateways know them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai import OpenAI

from sennit import ModelError
from sennit.server.http.tokens import add_token, new_token
from sennit.server.settings import Limits
from sennit.testing import ScriptedModel
from tests.http_server import Running, serving

Ask = Callable[..., Any]


def by_chat(server: Running, key: str = "none", **more: Any) -> Any:
    client = OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
    body: dict[str, Any] = {"model": "sage", "messages": [{"role": "user", "content": "x"}]}
    return client.chat.completions.create(**{**body, **more})


def by_responses(server: Running, key: str = "none", **more: Any) -> Any:
    client = OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
    return client.responses.create(**{"model": "sage", "input": "x", **more})


def by_messages(server: Running, key: str = "none", **more: Any) -> Any:
    client = anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)
    messages = [{"role": "user", "content": "x"}]
    body: dict[str, Any] = {"model": "sage", "max_tokens": 99, "messages": messages}
    return client.messages.create(**{**body, **more})


APIS: dict[str, tuple[Ask, Any]] = {
    "chat": (by_chat, openai),
    "responses": (by_responses, openai),
    "messages": (by_messages, anthropic),
}
api = pytest.mark.parametrize(("ask", "sdk"), APIS.values(), ids=APIS)


def name_of(kind: str) -> str:
    return f"sage-{list(FAILURES).index(kind)}"


class Failing(ScriptedModel):
    """A model that fails in one way, which its name does not tell: LiteLLM guesses from texts."""

    def __init__(self, kind: Any) -> None:
        error = ModelError("It failed.", kind=kind, retry_after=7)
        super().__init__([error] * 9, name=name_of(kind))


FAILURES = {
    "rate_limit": ("RateLimitError", 429),
    "context": ("BadRequestError", 400),
    "bad_request": ("BadRequestError", 400),
    "not_found": ("NotFoundError", 404),
    "auth": ("InternalServerError", 502),
    "overloaded": ("InternalServerError", 503),
    "timeout": ("InternalServerError", 504),
    "network": ("InternalServerError", 502),
    "failed": ("InternalServerError", 502),
}


@api
def test_a_failure_of_the_model_is_the_error_that_clients_retry_or_give_up_on(
    ask: Ask, sdk: Any
) -> None:
    with serving(models=[Failing(kind) for kind in FAILURES]) as server:
        for kind, (name, status) in FAILURES.items():
            with pytest.raises(sdk.APIStatusError) as failed:
                ask(server, model=name_of(kind))
            assert isinstance(failed.value, getattr(sdk, name)), kind
            assert (failed.value.status_code, kind) == (status, kind)
            assert failed.value.response.headers["retry-after"] == "7"
            assert failed.value.request_id is not None


@api
def test_a_failure_in_a_stream_is_raised_with_its_message(ask: Ask, sdk: Any) -> None:
    with serving(models=[Failing("rate_limit")]) as server:
        if sdk is openai and ask is by_responses:
            *_, last = ask(server, model=name_of("rate_limit"), stream=True)
            assert (last.type, last.response.error.code) == (
                "response.failed",
                "rate_limit_exceeded",
            )
            return
        with pytest.raises(sdk.APIError) as failed:
            list(ask(server, model=name_of("rate_limit"), stream=True))
        assert "It failed." in str(failed.value)


@api
def test_tokens_and_limits_have_the_errors_of_the_sdk(ask: Ask, sdk: Any, tmp_path: Path) -> None:
    tokens, secrets = tmp_path / "tokens.json", dict[str, str]()
    for scope in ("run", "read"):
        secrets[scope], token = new_token(user="ann", scopes=(scope,))
        add_token(tokens, token)
    limits = Limits(rate=0.01, burst=1, owner_factor=100, body_bytes=500)
    models = [ScriptedModel(["Yes."], name="sage")]
    with serving(models=models, tokens=tokens, limits=limits) as server:
        with pytest.raises(sdk.AuthenticationError):
            ask(server, key="snt_wrong")
        with pytest.raises(sdk.PermissionDeniedError):
            ask(server, key=secrets["read"])
        ask(server, key=secrets["run"])
        with pytest.raises(sdk.RateLimitError) as limited:
            ask(server, key=secrets["run"])
        assert 90 <= int(limited.value.response.headers["retry-after"]) <= 100
    with serving(models=models, limits=Limits(body_bytes=500)) as server:
        with pytest.raises(sdk.APIStatusError) as too_large:
            ask(server, model="x" * 600)
        assert too_large.value.status_code == 413


@pytest.fixture
def closed_loop() -> Generator[None]:
    """Close the event loop that LiteLLM's blocking calls leave open."""
    yield
    with suppress(RuntimeError):
        asyncio.get_event_loop_policy().get_event_loop().close()
    asyncio.set_event_loop(None)


@pytest.mark.usefixtures("closed_loop")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm_knows_the_errors_of_both_apis(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    import litellm
    from litellm import exceptions

    tokens = tmp_path / "tokens.json"
    secret, token = new_token(user="ann", scopes=("run",))
    add_token(tokens, token)
    expected: dict[str, type[Exception]] = {
        name_of("context"): exceptions.ContextWindowExceededError,
        name_of("rate_limit"): exceptions.RateLimitError,
        "none": exceptions.NotFoundError,
    }
    models = [Failing(kind) for kind in FAILURES]
    with serving(models=models, tokens=tokens) as server:

        def ask(model: str, key: str) -> None:
            base = f"{server.url}/v1" if provider == "openai" else server.url
            messages = [{"role": "user", "content": "x"}]
            litellm.completion(
                f"{provider}/{model}", messages, api_base=base, api_key=key, max_retries=0
            )

        for model, error in expected.items():
            with pytest.raises(error):
                ask(model, secret)
        with pytest.raises(exceptions.AuthenticationError):
            ask(name_of("context"), "snt_wrong")

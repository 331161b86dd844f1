"""Models of providers are found by name; their keys, connections and loops are looked after."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from textwrap import dedent

import pytest

from sennit.errors import MissingExtraError, ModelError, ValidationError
from sennit.services.models.protocol import Model
from sennit.services.models.providers.model import PROVIDERS, ProviderModel, connect
from sennit.services.models.reply import Delta, TextDelta
from tests.services.asking import asked, failing, request, streamed
from tests.services.conftest import KEY
from tests.services.wire_server import (
    STALL,
    WireServer,
    answer,
    anthropic_block,
    anthropic_start,
    chunks,
    completed,
    completion,
    piece,
)


def run(code: str) -> str:
    """What a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.usefixtures("google_sdk")
def test_every_provider_that_is_named_can_be_connected(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:8000/v1")
    model = connect(f"{provider}:some/model", api_key=KEY)
    assert isinstance(model, Model)
    assert (model.name, model.streams) == (f"{provider}:some/model", True)


def test_an_unknown_provider_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ModelError) as caught:
        connect("opnai:gpt-5")
    assert caught.value.kind == "not_found"
    assert all(name in str(caught.value) for name in PROVIDERS)


@pytest.mark.parametrize("spec", ["gpt-5", "openai:", "", ":", "openai: ", None])
def test_a_name_without_a_provider_or_a_model_is_refused(spec: str) -> None:
    with pytest.raises((ValidationError, ModelError)):
        connect(spec)


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("openai:m", "OPENAI_API_KEY"),
        ("anthropic:m", "ANTHROPIC_API_KEY"),
        ("google:m", "GOOGLE_API_KEY"),
        ("deepseek:m", "DEEPSEEK_API_KEY"),
    ],
)
@pytest.mark.usefixtures("google_sdk")
def test_a_missing_key_is_asked_for_by_the_name_of_its_variable(
    spec: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (variable, "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError) as caught:
        connect(spec)
    assert caught.value.kind == "auth"
    assert variable in str(caught.value)


def test_a_missing_address_is_asked_for_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VLLM_BASE_URL", raising=False)
    with pytest.raises(ModelError, match="VLLM_BASE_URL"):
        connect("vllm:m")


def test_a_key_comes_from_the_environment_when_none_is_given(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    server.says(answer(completion()))
    asked(connect("openai:m", base_url=f"{server.url}/v1"))
    assert server.asked[-1].headers["authorization"] == "Bearer from-the-environment"


def test_a_key_stays_in_use_when_it_leaves_the_environment(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    model = connect("openai:m", base_url=f"{server.url}/v1")
    monkeypatch.delenv("OPENAI_API_KEY")
    server.says(answer(completion()), answer({"error": {"message": "from-the-environment"}}, 401))
    asked(model)
    assert "from-the-environment" not in str(failing(model, stream=False))
    assert server.asked[-1].headers["authorization"] == "Bearer from-the-environment"


def test_ollama_needs_no_key_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    assert connect("ollama:qwen3").name == "ollama:qwen3"


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/v1", "host:80", "http://", "file:///etc/passwd"),
        *("http://[::1", "http://host:99999/v1"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="base_url"):
        connect("openai:m", base_url=url, api_key=KEY)


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        connect("openai:m", base_url="http://me:hunter2@host/v1", api_key=KEY)
    assert "hunter2" not in str(caught.value)


def test_an_address_is_refused_by_a_provider_that_has_its_own() -> None:
    with pytest.raises(ValidationError, match="openai:m"):
        connect("deepseek:m", base_url="http://127.0.0.1/v1", api_key=KEY)


def test_the_window_is_known_from_the_name_unless_it_is_given() -> None:
    assert connect("openai:gpt-4o", api_key=KEY).window == 128_000
    assert connect("openai:gpt-4o", api_key=KEY, window=8000).window == 8000
    assert connect("openai:nobody-knows-it", api_key=KEY).window is None


def test_a_model_shows_no_key_and_is_not_pickled(openai: ProviderModel) -> None:
    shown = f"{openai!r} {openai} {vars(openai)}"
    assert KEY not in shown
    for handed_on in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError):
            handed_on(openai)


def test_nothing_is_imported_before_a_model_is_connected() -> None:
    code = """
        import sys, sennit, sennit.services.models.providers.model
        print([name for name in ("pydantic_ai", "openai", "httpx2") if name in sys.modules])
    """
    assert run(code) == "[]\n"


def test_without_the_packages_the_error_names_the_extra() -> None:
    code = """
        import sys
        sys.modules["pydantic_ai"] = None
        from sennit.errors import MissingExtraError
        from sennit.services.models.providers.model import connect
        try:
            connect("openai:gpt-5", api_key="k")
        except MissingExtraError as error:
            print(error)
    """
    assert "pip install 'sennit[models]'" in run(code)


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_without_a_provider_s_package_the_error_names_the_extra(package: str) -> None:
    code = f"""
        import sys
        sys.modules["{package}"] = None
        from sennit.errors import MissingExtraError
        from sennit.services.models.providers.model import connect
        try:
            connect("{package}:m", api_key="k")
        except MissingExtraError as error:
            print(error)
    """
    assert "pip install 'sennit[models]'" in run(code)
    assert issubclass(MissingExtraError, ImportError)


# Connections


def test_a_second_call_takes_the_same_connection(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer(completion()), completed(piece(content="x")), answer(completion()))

    async def thrice() -> None:
        await openai.aask(request())
        async with openai.stream(request()) as deltas:
            assert [delta async for delta in deltas]
        await openai.aask(request())

    asyncio.run(thrice())
    assert (len(server.asked), server.connections) == (3, 1)


def test_one_model_serves_one_event_loop_after_another(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(completed(piece(content="x")))
    assert streamed(openai) == streamed(openai) == streamed(openai)
    assert server.connections == 3


def test_one_model_serves_event_loops_in_many_threads_at_once(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(answer(completion("x")))
    together = threading.Barrier(8)

    def ask() -> str:
        together.wait()
        return asked(openai).text

    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(ask) for _ in range(8)]
        assert [reply.result() for reply in replies] == ["x"] * 8


def test_many_calls_of_one_event_loop_run_at_once(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(answer(completion("x")))

    async def all_at_once() -> list[str]:
        replies = await asyncio.gather(*(openai.aask(request()) for _ in range(20)))
        return [reply.text for reply in replies]

    assert asyncio.run(all_at_once()) == ["x"] * 20


def test_a_closed_model_can_be_asked_again(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer(completion()))

    async def twice() -> None:
        async with openai:
            await openai.aask(request())
        await openai.aclose()
        await openai.aask(request())

    asyncio.run(twice())
    assert server.connections == 2


def test_a_model_nobody_holds_closes_its_connections(server: WireServer) -> None:
    server.says([*answer(completion()), STALL])

    async def drop() -> bool:
        model = connect("openai:m", base_url=f"{server.url}/v1", api_key=KEY)
        await model.aask(request())
        del model
        gc.collect()
        return await asyncio.to_thread(server.hung_up.wait, 30)

    assert asyncio.run(drop())


async def first(model: ProviderModel) -> Delta:
    async with model.stream(request()) as deltas:
        async for delta in deltas:
            return delta
    raise AssertionError("nothing came")


def test_leaving_a_stream_early_hangs_up(server: WireServer, openai: ProviderModel) -> None:
    server.says(chunks(piece(content="so"), STALL))

    async def leave() -> bool:
        assert await first(openai) == TextDelta("so")
        # Still on the same loop: it is the block that closes, not the end of the program.
        return await asyncio.to_thread(server.hung_up.wait, 30)

    assert asyncio.run(leave())


def test_leaving_a_stream_of_anthropic_early_hangs_up(
    server: WireServer, anthropic: ProviderModel
) -> None:
    block = anthropic_block(0, {"type": "text", "text": "so"})
    server.says(chunks(anthropic_start(), block, STALL))

    async def leave() -> bool:
        assert await first(anthropic) == TextDelta("so")
        return await asyncio.to_thread(server.hung_up.wait, 30)

    assert asyncio.run(leave())


def test_an_error_of_the_listener_passes_through_and_hangs_up(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(chunks(piece(content="so"), STALL))

    async def fail() -> None:
        async with openai.stream(request()) as deltas:
            async for _ in deltas:
                raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(fail())
    assert server.hung_up.wait(30)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_cancelling_passes_through_and_hangs_up(
    server: WireServer, openai: ProviderModel, stream: bool
) -> None:
    server.says(chunks(piece(content="so"), STALL))
    came = asyncio.Event()

    async def listen() -> None:
        if not stream:
            await openai.aask(request())
        async with openai.stream(request()) as deltas:
            async for _ in deltas:
                came.set()

    async def cancel() -> bool:
        task = asyncio.create_task(listen())
        if stream:
            await came.wait()
        else:
            while not server.asked:
                await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return await asyncio.to_thread(server.hung_up.wait, 30)

    assert asyncio.run(cancel())


def test_a_model_is_usable_after_an_error(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer({"error": {"message": "no"}}, 500), answer(completion("x")))
    assert failing(openai, stream=False).retryable
    assert asked(openai).text == "x"

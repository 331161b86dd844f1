"""iModel: named without being connected, asked through all its limits, silent about its key."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from sennit import (
    InstructionContent,
    InvalidTypeError,
    Message,
    MissingExtraError,
    ModelError,
    OutputError,
    SystemContent,
    UsageError,
    ValidationError,
    clock,
    iModel,
)
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services.models.limits import CircuitBreaker, RateLimit, Retry, Timeout
from sennit.services.models.params import PARAMS, ModelParams
from sennit.services.models.protocol import Model, is_model
from sennit.services.models.reply import Delta, ReplyReasoning
from sennit.testing import ScriptedModel, ToolCall, run_instantly
from tests.conducting import Answer, invoked, session_with
from tests.models import Patient, answered, failure, heard, request

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])
KEY = "sk-very-secret-123456"


class Providers(ModuleType):
    """Stands where providers are connected, and notes what it was given."""

    PROVIDERS = ("openai", "anthropic")

    def __init__(self) -> None:
        super().__init__("sennit.services.models.providers.model")
        self.connected: list[tuple[str, dict[str, Any]]] = []
        self.threads: set[int] = set()
        self.outcome: Any = ScriptedModel(
            ["connected"] * 50, window=1000, supports_output_schema=True
        )

    def connect(self, spec: str, **options: Any) -> Model:
        self.connected.append((spec, options))
        self.threads.add(threading.get_ident())
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Providers:
    stand_in = Providers()
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    return stand_in


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """Stands where embedded models are loaded, and notes which."""
    loaded: list[Path | None] = []

    def load(path: Path | None = None) -> Model:
        loaded.append(path)
        return ScriptedModel(["embedded"])

    stand_in = ModuleType("sennit.services.local.model")
    stand_in.LocalModel = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    return loaded


def test_it_is_a_model_itself() -> None:
    model = iModel(
        ScriptedModel([], name="inner", window=7, streams=False, supports_output_schema=True)
    )
    assert isinstance(model, Model)
    assert is_model(model)
    told = (model.name, model.window, model.streams, model.supports_output_schema)
    assert told == ("inner", 7, False, True)
    assert iModel(model, name="outer", window=9).window == 9


def test_naming_a_model_connects_nothing(providers: Providers) -> None:
    model = iModel("openai:gpt-5", window=5)
    assert (model.name, model.window, repr(model)) == ("openai:gpt-5", 5, "iModel('openai:gpt-5')")
    assert is_model(model)
    assert providers.connected == []


@WAYS
def test_it_is_connected_once_when_it_is_first_asked(providers: Providers, way: str) -> None:
    model = iModel("openai:gpt-5", base_url="https://example.org/v1", api_key=KEY, window=5)

    async def work() -> None:
        for _ in range(3):
            assert (await answered(model, way)).text == "connected"

    asyncio.run(work())
    options = {"base_url": "https://example.org/v1", "api_key": KEY, "window": 5}
    options |= {"fetch_images": False}
    assert providers.connected == [("openai:gpt-5", options)]


@pytest.mark.parametrize("operation", ["generate", "communicate", "parse", "invoke", "ready"])
def test_connecting_does_not_hold_up_the_event_loop(providers: Providers, operation: str) -> None:
    providers.outcome = ScriptedModel(['{"value": 3}'], supports_output_schema=True)
    model = iModel("openai:gpt-5", name="m")
    session = session_with(model)
    params: dict[str, Any] = {
        "generate": {"messages": ["Count"]},
        "communicate": {"instruction": "Count"},
        "parse": {"text": "three", "imodel": "m"},
    }
    assert model.streams  # known without connecting

    async def scene() -> None:
        if operation == "ready":
            await model.aready()
        elif operation == "invoke":
            await model.invoke("Count", output=Answer)
        else:
            await invoked(session, operation, response_model=Answer, **params[operation])

    assert providers.threads == set()
    asyncio.run(scene())
    assert len(providers.connected) == 1
    assert threading.get_ident() not in providers.threads


def test_many_threads_connect_it_once(providers: Providers) -> None:
    model = iModel("openai:gpt-5")
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        asyncio.run(model.aask(request()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(providers.connected) == 1


def test_what_the_provider_knows_of_the_model_is_told(providers: Providers) -> None:
    model = iModel("openai:gpt-5")
    assert (model.window, model.streams, model.supports_output_schema) == (1000, True, True)


@WAYS
@pytest.mark.parametrize(
    "error", [ModelError("no key", kind="auth"), MissingExtraError.of("It", "models")]
)
def test_what_prevents_connecting_is_said_when_it_is_asked(
    providers: Providers, way: str, error: Exception
) -> None:
    providers.outcome = error
    model = iModel("openai:gpt-5")
    assert (model.window, model.streams, model.supports_output_schema) == (None, True, False)
    with pytest.raises(type(error)):
        asyncio.run(answered(model, way))


@pytest.mark.parametrize("name", ["", "gpt-5", ":gpt-5", "openai:", "open ai:x", "openai:a b"])
def test_a_name_that_cannot_be_one_is_refused_at_once(providers: Providers, name: str) -> None:
    with pytest.raises(ValidationError, match="'provider:model'"):
        iModel(name)


def test_an_unknown_provider_is_refused_and_the_known_ones_are_named(providers: Providers) -> None:
    with pytest.raises(ValidationError, match="local, openai, anthropic"):
        iModel("opnai:gpt-5")


@pytest.mark.parametrize(
    ("given", "path", "name"),
    [
        ("local", None, "local"),
        ("local:/models/big one.gguf", Path("/models/big one.gguf"), "local:/models/big one.gguf"),
        (Path("/models/x.gguf"), Path("/models/x.gguf"), "local:/models/x.gguf"),
    ],
)
def test_local_models_are_loaded_when_first_asked(
    weights: list[Path | None], given: str | Path, path: Path | None, name: str
) -> None:
    model = iModel(given)
    assert model.name == name
    assert weights == []
    assert asyncio.run(model.invoke("Hello")).text == "embedded"
    assert weights == [path]


def test_what_would_have_no_effect_is_refused() -> None:
    for model in ("local", "local:/x.gguf", ScriptedModel([])):
        with pytest.raises(ValidationError, match="no provider"):
            iModel(model, api_key=KEY)
    with pytest.raises(ValidationError, match="has no file"):
        iModel("local:")
    odd: Any = object()
    with pytest.raises(InvalidTypeError, match="a Model itself"):
        iModel(odd)
    with pytest.raises(InvalidTypeError):
        iModel(ScriptedModel)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="window"):
        iModel(ScriptedModel([]), window=0)


@WAYS
def test_default_parameters_stand_under_those_of_the_request(way: str) -> None:
    inside = ScriptedModel(["a", "b"])
    model = iModel(inside, temperature=0.2, seed=7)
    asyncio.run(answered(model, way, request(temperature=1)))
    asyncio.run(answered(model, way))
    assert [asked.params for asked in inside.requests] == [
        {"temperature": 1, "seed": 7},
        {"temperature": 0.2, "seed": 7},
    ]


@WAYS
def test_parameters_that_do_not_exist_are_refused(way: str) -> None:
    with pytest.raises(InvalidTypeError, match="no parameter 'temprature'"):
        iModel(ScriptedModel([]), temprature=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidTypeError, match="no parameter 'top_k'"):
        asyncio.run(answered(iModel(ScriptedModel([]), seed=1), way, request(top_k=1)))
    with pytest.raises(InvalidTypeError, match="no parameter 'top_k'"):
        asyncio.run(answered(iModel(ScriptedModel([])), way, request(top_k=1)))
    assert "timeout" in PARAMS  # the one that iModel itself takes


def test_the_key_is_shown_nowhere(providers: Providers) -> None:
    model = iModel("openai:gpt-5", api_key=KEY)
    shown = [repr(model), str(model), f"{vars(model)}", f"{vars(model._connection)}"]
    assert not [text for text in shown if KEY in text]
    with pytest.raises(TypeError, match="cannot be pickled") as caught:
        pickle.dumps(model)
    assert KEY not in str(caught.value)


def test_copies_of_what_uses_a_model_share_it() -> None:
    model = iModel(ScriptedModel(["x"]))
    assert copy.deepcopy({"model": model})["model"] is model
    assert copy.copy(model) is model


def test_invoke_takes_a_text_messages_or_dicts() -> None:
    inside = ScriptedModel(["ok"] * 4)
    model = iModel(inside, seed=1)
    system = Message(SystemContent(system_message="Be brief."))
    question = Message(InstructionContent(instruction="Hello"))
    plain = [{"role": "user", "content": "Hello"}]

    async def work() -> None:
        for messages in ("Hello", question, plain, [system, question]):
            await model.invoke(messages, temperature=0)

    asyncio.run(work())
    sent = [list(asked.messages) for asked in inside.requests]
    assert sent == [plain, plain, plain, [{"role": "system", "content": "Be brief."}, *plain]]
    assert inside.requests[0].params == {"seed": 1, "temperature": 0}
    odd: Any = [question, *plain]
    with pytest.raises(InvalidTypeError, match="cannot be mixed"):
        asyncio.run(model.invoke(odd))


def test_invoke_hands_on_tools_and_the_form_of_the_answer() -> None:
    class Answer(BaseModel):
        value: int

    schema = {"type": "object", "properties": {}}
    inside = ScriptedModel(['{"value": 3}'], supports_output_schema=True)
    tools = [ToolSchema("one", "", schema), {"name": "two", "parameters": schema}]
    reply = asyncio.run(iModel(inside).invoke("Hello", tools=tools, output=Answer))
    assert reply.output == Answer(value=3)
    asked = inside.requests[0]
    assert [tool.name for tool in asked.tools] == ["one", "two"]
    assert asked.output == ModelSchema("Answer", Answer.model_json_schema())
    with pytest.raises(ValidationError, match="does not support structured output"):
        asyncio.run(iModel(ScriptedModel([])).invoke("Hello", output=Answer))


class Knot(BaseModel):
    name: str


def test_the_output_of_a_reply_is_what_was_asked_for() -> None:
    script = ['{"name": "bowline"}', '{"name": "sheet bend"}', "Hello"]
    model = iModel(ScriptedModel(script, supports_output_schema=True))
    assert model.invoke_sync("A knot?", output=Knot).output == Knot(name="bowline")
    schema = {"type": "object", "required": ["name"]}
    assert model.invoke_sync("Another?", output=schema).output == {"name": "sheet bend"}
    assert model.invoke_sync("Hello").output is None


def test_a_reply_that_does_not_fit_the_output_is_refused_unless_it_calls_tools() -> None:
    script = ['{"nom": "bowline"}', [ToolCall("tie", {})]]
    model = iModel(ScriptedModel(script, supports_output_schema=True))
    with pytest.raises(OutputError, match="'Knot': name: Field required"):
        model.invoke_sync("A knot?", output=Knot)
    reply = model.invoke_sync("A knot?", output=Knot, tools=[ToolSchema("tie", "", {})])
    assert (reply.output, reply.calls[0].name) == (None, "tie")


def test_blocking_methods_name_their_async_twin_on_a_running_loop() -> None:
    async def call(name: str, *args: Any) -> None:
        with pytest.raises(UsageError, match=name):
            getattr(iModel(ScriptedModel(["Hi"])), name.removeprefix("a"))(*args)

    for name, *args in (("aask", request()), ("aready",), ("aclose",)):
        asyncio.run(call(name, *args))


def test_the_typed_parameters_are_those_there_are() -> None:
    assert get_type_hints(ModelParams).keys() == PARAMS.keys()


@WAYS
def test_failures_that_may_pass_are_tried_again_by_default(way: str) -> None:
    inside = ScriptedModel([failure("overloaded"), failure("rate_limit", 2), "there"])
    assert run_instantly(answered(iModel(inside), way)).text == "there"


@WAYS
def test_each_protection_can_be_left_out(way: str) -> None:
    inside = ScriptedModel([failure()] * 20)
    model = iModel(inside, retry=None, breaker=None, timeout=None)

    async def work() -> None:
        for _ in range(20):
            with pytest.raises(ModelError, match="overloaded"):
                await answered(model, way)

    run_instantly(work())


@WAYS
def test_tries_count_for_the_breaker_which_then_ends_them(way: str) -> None:
    inside = ScriptedModel([failure()] * 2)
    model = iModel(inside, retry=Retry(attempts=5), breaker=CircuitBreaker(failures=2))
    with pytest.raises(ModelError, match="failed 2 times in a row"):
        run_instantly(answered(model, way))


@WAYS
def test_each_try_waits_its_turn_and_is_timed_by_itself(way: str) -> None:
    waits = [10, 1]

    async def step() -> None:
        await asyncio.sleep(waits.pop(0))

    model = iModel(
        Patient(step, steps=1),
        timeout=5,
        limits=RateLimit(requests_per_minute=1),
        retry=Retry(base=0, jitter=0),
    )

    async def work() -> float:
        await answered(model, way)
        return clock.monotonic()

    assert run_instantly(work()) == 61


@WAYS
def test_a_timeout_may_be_a_number_or_say_more(way: str) -> None:
    for timeout in (2, Timeout(seconds=2)):
        model = iModel(Patient(), timeout=timeout, retry=None)
        with pytest.raises(ModelError, match="longer than 2 s"):
            run_instantly(answered(model, way))


def test_leaving_a_stream_early_stops_the_model_at_once() -> None:
    inside = Patient()
    model = iModel(inside, limits=RateLimit(concurrency=1), after=lambda *_: None)

    async def work() -> None:
        for _ in range(3):
            async with model.stream(request()) as deltas:
                async for _ in deltas:
                    break
            assert inside.open == 0

    run_instantly(work())


@WAYS
def test_cancelling_stops_the_model_and_frees_its_place(way: str) -> None:
    inside = Patient()
    model = iModel(inside, limits=RateLimit(concurrency=1))

    async def work() -> None:
        task = asyncio.create_task(answered(model, way))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inside.open == 0
        await answered(model, way)

    run_instantly(work())


def test_deltas_pass_unchanged_through_all_layers() -> None:
    script = ["Let me look.", ToolCall("search", {"q": "rope"}, id="a"), ReplyReasoning("hm")]
    plain = ScriptedModel([script, script], chunk=3)
    through = iModel(plain, limits=RateLimit(tokens_per_minute=100), after=lambda *_: None)
    told: tuple[list[Delta], list[Delta]] = ([], [])
    for model, deltas in zip((plain, through), told, strict=True):
        asyncio.run(heard(model, deltas))
    assert len(told[0]) > 5
    assert told[0] == told[1]


def test_closing_reaches_the_model_if_there_is_one(providers: Providers) -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    async def work() -> None:
        await iModel("openai:gpt-5").aclose()
        await iModel(ScriptedModel([])).aclose()
        await iModel(iModel(Closing([], name="inner"))).aclose()
        async with iModel(Closing([], name="block")) as model:
            assert model.name == "block"

    asyncio.run(work())
    assert closed == ["inner", "block"]
    assert providers.connected == []


def test_no_event_loop_is_loaded_by_naming_a_model() -> None:
    import subprocess

    code = (
        "import sys; from sennit import iModel; iModel('local', temperature=0); "
        "print(sorted(sys.modules.keys() & {'asyncio', 'anyio'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

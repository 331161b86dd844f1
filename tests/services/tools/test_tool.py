"""Tools: a typed function in, a checked call and a storable result out."""

from __future__ import annotations

import asyncio
import functools
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypeVar
from uuid import UUID

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from sennit import FilePart, ImagePart, Session, Tool, ToolError, Unset
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.content import ActionResponseContent
from sennit.services import ToolContext
from sennit.services.tools.docstring import parse
from sennit.services.tools.tool import ToolOutcome
from sennit.testing import ScriptedModel, ToolCall

_T = TypeVar("_T")
FOREVER = 3600


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


def called(function: Callable[..., Any], arguments: Any = "", **options: Any) -> ToolOutcome:
    return run(Tool(function, **options).arun(arguments))


def parameters(function: Callable[..., Any]) -> Any:
    return Tool(function).schema.parameters


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = 1


class Node(BaseModel):
    value: int
    children: list[Node] = []


@dataclass
class Point:
    x: int
    y: int


def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    The sum is exact.

    Args:
        a: The first one.
        b (int): The second one,
            on two lines.

    Returns:
        The sum.
    """
    return a + b


# What a model is told


def test_a_tool_takes_name_description_and_schema_from_the_function() -> None:
    schema = Tool(add).schema
    assert schema.name == "add"
    assert schema.description == "Add two numbers.\n\nThe sum is exact."
    assert schema.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first one."},
            "b": {"type": "integer", "description": "The second one, on two lines.", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_tool_may_be_given_another_name_and_description() -> None:
    tool = Tool(add, "plus", "Adds.")
    assert (tool.name, tool.description, tool.schema.name) == ("plus", "Adds.", "plus")


def test_the_class_decorates_a_function() -> None:
    @Tool
    def double(x: int) -> int:
        return 2 * x

    assert run(double.invoke(x=4)) == 8


def test_a_function_without_parameters_has_an_empty_object_as_schema() -> None:
    def now() -> str:
        return "now"

    assert parameters(now) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert called(now, "").value == "now"


def test_every_usual_kind_of_parameter_is_described() -> None:
    def f(
        colour: Colour,
        size: Literal["s", "l"],
        where: Address,
        at: Point,
        tags: list[str],
        counts: dict[str, int],
        maybe: Optional[int] = None,  # noqa: UP045
        *,
        day: date | None = None,
        limit: Annotated[int, Field(description="At most.", ge=1)] = 10,
    ) -> None: ...

    schema = parameters(f)
    assert schema["required"] == ["colour", "size", "where", "at", "tags", "counts"]
    assert schema["properties"]["size"]["enum"] == ["s", "l"]
    assert schema["properties"]["limit"] == {
        "type": "integer",
        "description": "At most.",
        "minimum": 1,
        "default": 10,
    }
    assert schema["$defs"].keys() == {"Colour", "Address", "Point"}


def test_a_recursive_type_is_described_once_and_takes_nested_values() -> None:
    def total(tree: Node) -> int:
        return tree.value + sum(total(child) for child in tree.children)

    assert parameters(total)["$defs"].keys() == {"Node"}
    nested = {"tree": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}
    assert called(total, nested).value == 6


def test_parameters_may_have_any_name() -> None:
    def f(schema: str, json: str, copy: str, _private: int, model_config: str, self_: int) -> str:
        return f"{schema}{json}{copy}{_private}{model_config}{self_}"

    names = ["schema", "json", "copy", "_private", "model_config", "self_"]
    assert list(parameters(f)["properties"]) == names
    given = '{"schema":"a","json":"b","copy":"c","_private":1,"model_config":"d","self_":2}'
    assert called(f, given).value == "abc1d2"


def test_what_the_annotation_says_goes_before_the_docstring() -> None:
    def f(x: Annotated[int, Field(description="from the type")], y: int) -> None:
        """Do.

        :param x: from the docstring
        :param y: from the docstring
        """

    described = parameters(f)["properties"]
    assert described["x"]["description"] == "from the type"
    assert described["y"]["description"] == "from the docstring"


def test_a_pydantic_field_may_stand_as_the_default() -> None:
    def f(x: int = Field(5, ge=1, description="How many."), y: int = Field(ge=0)) -> int:
        return x + y

    schema = parameters(f)
    assert schema["properties"]["x"]["default"] == 5
    assert schema["required"] == ["y"]
    assert called(f, {"y": 1}).value == 6
    assert called(f, {"x": 0, "y": 1}).error is not None


def test_a_default_without_a_json_form_stays_with_the_function() -> None:
    missing = object()

    def f(x: Any = missing) -> bool:
        return x is missing

    assert parameters(f)["properties"] == {"x": {}}
    assert called(f).value is True


STYLES = {
    "google": "Do it.\n\nArgs:\n    x (int): The x.\n    y: The\n        y.\n\nRaises:\n    E: no",
    "numpy": "Do it.\n\nParameters\n----------\nx : int\n    The x.\ny\n    The\n    y.\n\n"
    "Returns\n-------\nint",
    "sphinx": "Do it.\n\n:param int x: The x.\n:param y: The\n    y.\n:returns: nothing",
}


@pytest.mark.parametrize("doc", STYLES.values(), ids=STYLES)
def test_the_three_styles_of_docstrings_say_the_same(doc: str) -> None:
    found = parse(doc)
    assert found.description == "Do it."
    assert found.parameters == {"x": "The x.", "y": "The y."}


def test_numpy_may_describe_two_parameters_at_once() -> None:
    found = parse("Parameters\n----------\nx, y : float\n    A coordinate.\n")
    assert found.parameters == {"x": "A coordinate.", "y": "A coordinate."}


def test_a_colon_in_plain_text_begins_no_section() -> None:
    found = parse("Look this up: slowly.\n\nThe rules are:\n    be kind\n\nhttp://x.y: a link")
    assert found.description.endswith("a link")
    assert found.parameters == {}


@given(st.text(alphabet="ArgsReturns:-\n *x(),param ", max_size=200))
def test_no_docstring_is_too_strange_to_read(doc: str) -> None:
    parse(doc)


# What is no tool


def star(*names: str) -> None: ...
def stars(**names: str) -> None: ...
def untyped(city, days: int = 1) -> None: ...  # type: ignore[no-untyped-def]
def unfit(socket: threading.Thread) -> None: ...
def callback(then: Callable[[], None]) -> None: ...
def lost(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(x: int) -> Any:
    yield x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (star, r"takes \*names.*take a list"),
        (stars, r"takes \*\*names.*take a dict"),
        (untyped, r"Parameter 'city' of tool 'untyped' has no type; annotate it"),
        (unfit, r"Parameter 'socket' of tool 'unfit'.*Thread"),
        (callback, r"Parameter 'then' of tool 'callback'"),
        (lost, r"'Nowhere' is not defined; define or import it"),
        (generator, r"return a list instead"),
        (Address, r"pass one of its methods"),
        (42, r"made from a typed function, got 42"),
        (Tool(add), r"is a tool already"),
    ],
)
def test_what_cannot_be_offered_to_a_model_is_refused_by_name(function: Any, said: str) -> None:
    with pytest.raises(InvalidTypeError, match=said):
        Tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65, 7])
def test_a_name_that_providers_do_not_take_is_refused(name: Any) -> None:
    with pytest.raises(ValidationError, match="cannot be the name of a tool"):
        Tool(add, name)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ValidationError, match=r"<lambda>.*give another with name="):
        Tool(lambda: 1)
    assert run(Tool(lambda: 1, "one").invoke()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": True},
        {"timeout": "5"},
        {"replay": "always"},
        {"max_result_bytes": 0},
        {"needs_approval": 1},
        {"retries": 3},
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        Tool(add, **options)


def test_a_tool_with_other_options_is_another_tool() -> None:
    tool = Tool(add, timeout=5, replay="safe")
    other = tool.with_options("plus", needs_approval=True)
    assert (tool.name, tool.needs_approval) == ("add", False)
    assert (other.name, other.needs_approval, other.timeout, other.replay) == (
        "plus",
        True,
        5,
        "safe",
    )
    assert other.description == tool.description


# Arguments


def test_arguments_are_checked_and_become_what_the_function_takes() -> None:
    seen: list[Any] = []

    def f(n: int, when: datetime, colour: Colour, where: Address, at: Point, who: UUID) -> None:
        seen.extend([n, when, colour, where, at, who])

    given = (
        '{"n":"3","when":"2026-01-02T03:04:05Z","colour":"red","where":{"street":"A"},'
        '"at":{"x":1,"y":2},"who":"12345678-1234-5678-1234-567812345678"}'
    )
    assert called(f, given).success
    assert seen == [
        3,
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        Colour.RED,
        Address(street="A"),
        Point(1, 2),
        UUID("12345678-1234-5678-1234-567812345678"),
    ]


def test_text_and_dict_are_checked_alike() -> None:
    def f(when: Annotated[datetime, Field(strict=True)]) -> str:
        return when.isoformat()

    moment = "2026-01-02T03:04:05+00:00"
    assert called(f, {"when": moment}).value == moment
    assert called(f, f'{{"when":"{moment}"}}').value == moment
    assert called(f, {"when": datetime.fromisoformat(moment)}).value == moment


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"a": 1', "not valid JSON"),
        ("a=1", "not valid JSON"),
        ('{"a": NaN}', "not valid JSON"),
        ("[1, 2]", "must be a JSON object, got [1, 2]"),
        ("null", "must be a JSON object, got None"),
        ('"{}"', "must be a JSON object"),
        (7, "must be a JSON object, got 7"),
        ("{}", "a: Field required"),
        ("", "a: Field required"),
        ('{"a": "x", "b": 1.5}', "a: Input should be a valid integer"),
        ('{"a": 1, "c": 3}', "c: there is no such argument; it takes a, b"),
        ('{"arg_0": 1}', "arg_0: there is no such argument"),
        ({"a": {1, 2}}, "a: Input should be a valid integer"),
        ({"a": object()}, "arguments.a is <object"),
    ],
)
def test_arguments_that_do_not_fit_are_not_run_and_the_error_says_what_to_mend(
    arguments: Any, said: str
) -> None:
    runs: list[int] = []

    def add(a: int, b: int = 2) -> None:
        runs.append(a)

    outcome = called(add, arguments)
    assert outcome.error is not None
    assert outcome.error.startswith("Tool 'add' was not called. ")
    assert said in outcome.error
    assert (outcome.ran, outcome.success, runs) == (False, False, [])


def test_every_argument_that_is_wrong_is_named_at_once() -> None:
    def f(a: int, where: Address) -> None: ...

    error = called(f, {"where": {"number": "x"}}).error or ""
    assert "a: Field required" in error
    assert "where.street: Field required" in error
    assert "where.number: Input should be a valid integer" in error


def test_many_problems_are_counted_rather_than_listed() -> None:
    def f(numbers: list[int]) -> None: ...

    error = called(f, {"numbers": ["x"] * 30}).error or ""
    assert error.endswith("; and 20 more")


def test_invoke_raises_what_run_records() -> None:
    with pytest.raises(ToolError, match="a: Field required"):
        run(Tool(add).invoke())  # pyright: ignore[reportCallIssue]
    assert run(Tool(add).invoke(a=1)) == 3


def test_positional_only_and_keyword_only_parameters_are_passed_as_they_must() -> None:
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert called(f, {"a": 1}).value == [1, 2, 3, 4]
    assert called(f, {"a": 9, "b": 8, "c": 7, "d": 6}).value == [9, 8, 7, 6]


class Shop:
    """Sells things."""

    def __init__(self, price: int) -> None:
        self.price = price

    def cost(self, count: int) -> int:
        """What so many cost."""
        return self.price * count

    def __call__(self, thing: str) -> str:
        """Buy a thing."""
        return f"one {thing}"


class Waiter:
    async def __call__(self, dish: str) -> str:
        return dish


def test_methods_and_objects_that_can_be_called_are_tools_too() -> None:
    method, thing = Tool(Shop(3).cost), Tool(Shop(3))
    assert (method.name, method.description) == ("cost", "What so many cost.")
    assert run(method.invoke(count=2)) == 6
    assert (thing.name, thing.description) == ("Shop", "Buy a thing.")
    assert run(thing.invoke(thing="hat")) == "one hat"
    assert run(Tool(Waiter()).invoke(dish="soup")) == "soup"


def test_what_a_partial_has_bound_is_hidden_and_cannot_be_changed() -> None:
    def fetch(host: str, path: str, key: str = "none", retries: int = 1) -> str:
        """Fetch a page."""
        return f"{host}{path}{key}{retries}"

    tool = Tool(functools.partial(fetch, "h", key="secret"))
    assert (tool.name, tool.description) == ("fetch", "Fetch a page.")
    assert list(tool.schema.parameters["properties"]) == ["path", "retries"]
    assert "secret" not in str(tool.schema)
    assert run(tool.invoke(path="/")) == "h/secret1"
    assert "no such argument" in (run(tool.arun({"path": "/", "key": "mine"})).error or "")


def test_a_wrapped_function_is_described_by_what_it_wraps() -> None:
    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return add(*args, **kwargs) * 10

    assert Tool(wrapper).schema == Tool(add).schema
    assert called(wrapper, {"a": 1}).value == 30


def test_a_context_is_given_to_the_parameter_that_asks_for_it_and_not_shown() -> None:
    def f(x: int, context: ToolContext, maybe: ToolContext | None = None) -> list[Any]:
        assert maybe is context
        return [x, context.call_id, context.idempotency_key]

    assert list(parameters(f)["properties"]) == ["x"]
    known = ToolContext(call_id="c1", idempotency_key="k1")
    assert run(Tool(f).arun({"x": 1}, known)).value == [1, "c1", "k1"]
    _, call, key = run(Tool(f).invoke(x=1))  # pyright: ignore[reportCallIssue]
    assert call.startswith("call_")
    assert call == key
    assert "no such argument" in (called(f, {"x": 1, "context": {}}).error or "")


# Results


@dataclass
class Report:
    when: datetime
    where: Path
    price: Decimal
    tags: set[str]
    inner: Address


def test_results_become_plain_data() -> None:
    def f() -> Report:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return Report(moment, Path("/a/b"), Decimal("1.50"), {"x"}, Address(street="S"))

    assert called(f).value == {
        "when": "2026-01-01T00:00:00+00:00",
        "where": "/a/b",
        "price": "1.50",
        "tags": ["x"],
        "inner": {"street": "S", "number": 1},
    }


def test_a_result_of_none_is_a_result() -> None:
    def f() -> None: ...

    outcome = called(f)
    assert (outcome.value, outcome.success, outcome.error) == (None, True, None)


cycle: list[Any] = []
cycle.append(cycle)


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (math.nan, "result is nan, which JSON cannot represent"),
        ({"x": [math.inf]}, "result.x[0] is inf"),
        (2**64, "integer beyond 64 bits"),
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        (b"bytes", "cannot be stored"),
        (timedelta(1), "cannot be stored"),
        (object(), "cannot be stored"),
        (Unshown(), "cannot be stored"),
        (cycle, "nested deeper"),
        ({(1, 2): 3}, "keys must be strings"),
    ],
)
def test_a_result_that_no_store_takes_is_a_failed_call(result: Any, said: str) -> None:
    def f() -> Any:
        return result

    outcome = called(f)
    assert outcome.error is not None
    assert outcome.error.startswith("Tool 'f' ran, but its result cannot be stored: ")
    assert said in outcome.error
    assert (outcome.ran, outcome.value) == (True, None)


def test_a_result_that_is_too_large_is_a_failed_call() -> None:
    def f(size: int) -> str:
        return "x" * size

    tool = Tool(f, max_result_bytes=100)
    assert run(tool.arun({"size": 98})).success
    error = run(tool.arun({"size": 99})).error or ""
    assert "has 101 bytes and 100 are allowed" in error
    assert not called(f, {"size": 1_000_000}).success


# Failures


class Strange(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("too cold"), "ValueError: too cold"),
        (KeyError(), "KeyError"),
        (ToolError("Try Paris."), "Try Paris."),
        (TimeoutError("server"), "TimeoutError: server"),
        (Strange(), "Strange"),
        (SystemExit(3), "SystemExit: 3"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_tool_raises_is_recorded_as_one_line(
    kind: str, error: BaseException, said: str
) -> None:
    def blunt() -> None:
        raise error

    async def smooth() -> None:
        raise error

    outcome = called(blunt if kind == "sync" else smooth, timeout=FOREVER)
    assert (outcome.error, outcome.ran, outcome.success) == (said, True, False)
    assert "Traceback" not in said


def test_a_sync_tool_that_raises_stop_iteration_fails_like_any_other() -> None:
    def f() -> int:
        return next(iter([]))

    assert called(f).error == "RuntimeError: coroutine raised StopIteration"


def test_the_exception_behind_an_error_is_there_for_the_program() -> None:
    def f() -> None:
        raise ValueError("inner")

    with pytest.raises(ToolError) as raised:
        run(Tool(f).invoke())
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("message", ["a\0b", "\ud800", "x" * 100_000])
def test_an_error_can_always_be_stored(message: str) -> None:
    def f() -> None:
        raise ValueError(message)

    error = called(f).error
    assert error is not None
    assert len(error) < 5000
    assert ActionResponseContent(error=error).error == error


def test_how_long_a_call_took_is_told() -> None:
    assert called(add, {"a": 1}).duration > 0


# Threads, time and cancelling


def test_a_sync_tool_runs_in_another_thread_with_the_callers_context() -> None:
    language: ContextVar[str] = ContextVar("language", default="none")

    def f() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), language.get()]

    async def main() -> Any:
        language.set("fr")
        return await Tool(f).invoke()

    assert run(main()) == [False, "fr"]


def test_an_async_tool_runs_in_the_loop_with_the_callers_context() -> None:
    language: ContextVar[str] = ContextVar("language", default="none")

    async def f() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), language.get()]

    async def main() -> Any:
        language.set("fr")
        return await Tool(f).invoke()

    assert run(main()) == [True, "fr"]


def test_a_sync_tool_does_not_hold_up_the_loop() -> None:
    released = threading.Event()

    def wait() -> bool:
        return released.wait(FOREVER)

    async def main() -> Any:
        call = asyncio.create_task(Tool(wait).invoke())
        await asyncio.sleep(0)
        released.set()  # only reached if the loop goes on
        return await call

    assert run(main()) is True


def test_a_sync_function_may_give_back_something_to_await() -> None:
    async def later() -> int:
        return 5

    def f() -> Any:
        return later()

    assert called(f).value == 5


def test_calls_run_side_by_side() -> None:
    meet = threading.Barrier(3)

    def f() -> int:
        return meet.wait(FOREVER)

    async def main() -> list[Any]:
        return await asyncio.gather(*(Tool(f).invoke() for _ in range(3)))

    assert sorted(run(main())) == [0, 1, 2]


def test_a_sync_tool_that_never_ends_is_left_behind_when_its_time_is_up() -> None:
    released = threading.Event()

    def f() -> None:
        released.wait(FOREVER)

    try:
        outcome = called(f, timeout=0.01)
    finally:
        released.set()
    assert outcome.error is not None
    assert outcome.error.startswith("Tool 'f' took longer than 0.01 seconds")
    assert outcome.ran


def test_a_thread_left_behind_does_not_keep_the_program_from_ending() -> None:
    code = (
        "import asyncio, threading\nfrom sennit import Tool\n"
        "def f() -> None: threading.Event().wait()\n"
        "print(asyncio.run(Tool(f, timeout=0.01).arun()).error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "took longer" in ran.stdout
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_async_tool_is_cancelled_when_its_time_is_up() -> None:
    ended: list[str] = []

    async def f() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended.append("cleaned up")

    assert "took longer" in (called(f, timeout=0.01).error or "")
    assert ended == ["cleaned up"]


def test_an_async_tool_that_ignores_being_cancelled_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sennit.services.tools.tool._CANCEL_GRACE_SECONDS", 0.01)
    stop = asyncio.Event()

    async def stubborn() -> None:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> ToolOutcome:
        outcome = await Tool(stubborn, timeout=0.01).arun()
        stop.set()
        return outcome

    assert "took longer" in (run(main()).error or "")


def test_a_timeout_of_the_tools_own_is_not_taken_for_ours() -> None:
    async def f() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(FOREVER)

    assert called(f, timeout=FOREVER).error == "TimeoutError"


def test_a_tool_that_cancels_itself_fails_and_its_caller_goes_on() -> None:
    async def f() -> None:
        raise asyncio.CancelledError

    assert called(f).error == "Tool 'f' was cancelled by its own code."


@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
def test_cancelling_the_caller_cancels_the_tool_and_is_not_an_outcome(kind: str) -> None:
    started, ended = asyncio.Event(), list[str]()

    async def f() -> None:
        started.set()
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended.append("cancelled")

    async def by_task() -> bool:
        call = asyncio.create_task(Tool(f).arun())
        await started.wait()
        call.cancel()
        await asyncio.wait({call})
        return call.cancelled()

    async def by_scope() -> bool:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(Tool(f).arun)
                await started.wait()
                scope.cancel()
        return scope.cancelled_caught

    assert run(by_task() if kind == "asyncio" else by_scope())
    assert ended == ["cancelled"]


def test_ctrl_c_in_a_tool_is_not_swallowed() -> None:
    def f() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        called(f)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_whatever_a_model_writes_as_arguments_run_gives_an_outcome(arguments: str | bytes) -> None:
    outcome = called(add, arguments)
    assert outcome.success or not outcome.ran


@dataclass
class City:
    name: str


def test_invoke_takes_and_returns_what_the_function_does() -> None:
    def find(name: str, *, twice: bool = False) -> City:
        return City(name * 2 if twice else name)

    tool = Tool(find)
    assert tool.invoke_sync("Oslo") == City("Oslo")
    assert tool.invoke_sync("Oslo", twice=True) == run(tool.invoke(name="Oslo", twice=True))
    assert run(tool.arun({"name": "Oslo"})).value == {"name": "Oslo"}
    with pytest.raises(ToolError, match="takes 1 arguments by position, got 2"):
        getattr(tool, "invoke_sync")("Oslo", True)  # noqa: B009 (an error to type checkers)


def test_invoke_takes_a_context_in_the_place_of_the_functions_own() -> None:
    def called(context: ToolContext, times: int) -> list[str]:
        return [context.call_id] * times

    assert Tool(called).invoke_sync(ToolContext(call_id="c7"), 2) == ["c7", "c7"]


PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("returned", "value", "files"),
    [
        (ImagePart(PNG), None, 1),
        (["A dot.", ImagePart(PNG)], "A dot.", 1),
        ((1, FilePart(b"x", "a.txt"), 2, ImagePart(PNG)), [1, 2], 2),
        ([1, 2], [1, 2], 0),
    ],
    ids=str,
)
def test_parts_that_a_tool_returns_are_the_files_of_its_result(
    returned: Any, value: Any, files: int
) -> None:
    outcome = Tool(lambda: returned, "draw").run()
    assert outcome.success
    assert (outcome.value, len(outcome.files)) == (value, files)
    assert outcome.returned is returned


def test_files_of_parallel_calls_are_stored_with_their_results() -> None:
    def draw(name: str) -> Any:
        return FilePart(name.encode(), f"{name}.txt")

    calls = [ToolCall("draw", {"name": "a"}), ToolCall("draw", {"name": "b"})]
    session = Session()
    chat = session.conversation(model=ScriptedModel([calls, "Done."]), tools=[draw])
    chat.say("Draw two.").raise_for_error()
    results = [message.content for message in session.default_branch.messages][3:5]
    assert all(isinstance(result, ActionResponseContent) for result in results)
    assert [result.files[0]["name"] for result in results] == ["a.txt", "b.txt"]  # type: ignore[union-attr]
    assert [result.result for result in results] == [Unset, Unset]  # type: ignore[union-attr]

"""The chat's own tools."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from sennit import Tool, ToolError, clock
from sennit.cli.builtin_tools import BUILT_IN, calculate, current_time


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) ** 2", 25),
        ("-7 // 2 + 10 % 4", -2),
        ("sqrt(16) / 2", 2.0),
        ("round(pi, 2)", 3.14),
        ("2 ** 0.5 * 0", 0),
        ("max(1, 2.5)", 2.5),
    ],
)
def test_the_calculator_calculates(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('ls')",
        "().__class__",
        "open('x')",
        "1 if 2 else 3",
        "'a' * 9",
        "True + 1",
        "1j",
        "9 ** 9 ** 9 ** 9",
        "9" * 199 + "**2",
        "1e999",
        "1 / 0",
        "sqrt(-1)",
        "max()",
        "2 +",
        "",
        "(" * 99,
        "\0",
        "1+" * 400 + "1",
        "abs(x=1)",
    ],
)
def test_the_calculator_does_nothing_but_arithmetic(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


def test_the_time_is_that_of_the_clock() -> None:
    with clock.wall_clock_from(lambda: 1_000_000_000_000_000_000):
        told = current_time()
    assert datetime.strptime(told, "%A, %Y-%m-%d %H:%M:%S %z").timestamp() == 1_000_000_000


def test_they_can_be_offered_to_a_model() -> None:
    assert [Tool(one).name for one in BUILT_IN.values()] == ["current_time", "calculate"]
    assert asyncio.run(Tool(calculate).arun({"expression": "6 * 7"})).value == 42

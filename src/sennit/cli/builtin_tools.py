"""Built-in tools of the chat: the time and a calculator."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from sennit import clock
from sennit.errors import ToolError

_LONGEST = 200
_LARGEST = 1e308
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: lambda a: a,
    ast.USub: lambda a: -a,
}
_NAMES: Mapping[str, float] = {"pi": math.pi, "e": math.e}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: getattr(math, name) for name in ("sqrt", "sin", "cos", "tan", "log", "log10", "exp")
} | {"abs": abs, "round": round, "min": min, "max": max}


def current_time() -> str:
    """The current local date and time, with the weekday."""
    return clock.to_datetime(clock.now_us()).astimezone().strftime("%A, %Y-%m-%d %H:%M:%S %z")


def calculate(expression: str) -> float:
    """The value of an arithmetic expression such as "(2 + 3) * 4 ** 2" or "sqrt(2) / 3".

    Args:
        expression: Numbers, + - * / // % **, brackets, pi, e, and sqrt, sin, cos, tan, log, log10,
            exp, abs, round, min, max.
    """
    if len(expression) > _LONGEST:
        raise ToolError(f"An expression may have {_LONGEST} characters, got {len(expression)}.")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ToolError(f"{expression!r} is not an arithmetic expression: {error.msg}.") from error
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise ToolError(f"{expression!r} has no value: {error}.") from error


BUILT_IN: Mapping[str, Callable[..., Any]] = {"time": current_time, "calculator": calculate}
"""What `--tool NAME` gives without a file."""


def _value(node: ast.expr) -> Any:
    """The value of a parsed expression; nothing but arithmetic is ever looked up or called."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _UNARY[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            # With whole numbers a few characters would be enough to keep a machine busy for years.
            return _whole(math.pow(_value(left), _value(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _bounded(_BINARY[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, given)))
        case _:
            raise ToolError(f"{ast.unparse(node)!r} is not supported arithmetic.")


def _bounded(number: Any) -> Any:
    if abs(number) > _LARGEST:
        raise OverflowError("the numbers get too large")
    return number


def _whole(number: float) -> Any:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number

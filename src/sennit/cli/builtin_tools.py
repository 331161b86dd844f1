"""Built-in tools of the chat: the time and a calculator."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from sennit import clock
from sennit.errors import ToolError

_MAX_EXPRESSION_CHARS = 200
_MAX_NUMBER = 1e308
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
    if len(expression) > _MAX_EXPRESSION_CHARS:
        raise ToolError(
            f"An expression may have {_MAX_EXPRESSION_CHARS} characters, got {len(expression)}."
        )
    try:
        return _evaluate(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ToolError(f"{expression!r} is not an arithmetic expression: {error.msg}.") from error
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise ToolError(f"{expression!r} has no value: {error}.") from error


BUILT_IN: Mapping[str, Callable[..., Any]] = {"time": current_time, "calculator": calculate}
"""The tools that `--tool NAME` loads without a file."""


def _evaluate(node: ast.expr) -> Any:
    """Evaluate a parsed expression; only arithmetic and the listed functions are allowed."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _check_size(number)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _UNARY[type(sign)](_evaluate(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            # With integers a few characters, such as 9**9**9, would run for years.
            return _to_int_if_exact(math.pow(_evaluate(left), _evaluate(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _check_size(_BINARY[type(sign)](_evaluate(left), _evaluate(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _check_size(_FUNCTIONS[name](*map(_evaluate, arguments)))
        case _:
            raise ToolError(f"{ast.unparse(node)!r} is not supported arithmetic.")


def _check_size(number: Any) -> Any:
    if abs(number) > _MAX_NUMBER:
        raise OverflowError("the numbers get too large")
    return number


def _to_int_if_exact(number: float) -> Any:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number

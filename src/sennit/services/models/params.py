"""Model parameters, validated before a request is sent.

Otherwise a misspelt name or a wrong type would be dropped by one provider, rejected by another and
misread by a third. Names and types are the same for all providers; whether a model supports a
parameter is checked by its adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import float_info
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args

from sennit.errors import InvalidTypeError, ValidationError, did_you_mean, listed, short_repr

Reasoning: TypeAlias = Literal["off", "low", "medium", "high"]
REASONING: tuple[str, ...] = get_args(Reasoning)


class ModelDefaults(TypedDict, total=False):
    """The parameters that a model may have defaults for, by name; None leaves one out."""

    temperature: float | None
    """The randomness of the reply, 0 for the least."""
    top_p: float | None
    """Sample from the likeliest tokens with this total probability."""
    max_tokens: int | None
    """The maximum number of output tokens."""
    stop: str | Sequence[str] | None
    """Texts at which to stop."""
    seed: int | None
    """A number that makes sampling repeatable, if the provider supports it."""
    presence_penalty: float | None
    """The penalty for tokens that have occurred."""
    frequency_penalty: float | None
    """The penalty for tokens that have occurred often."""
    parallel_tool_calls: bool | None
    """Whether a reply may call several tools."""
    tool_choice: Literal["required"] | list[str] | None
    """Either "required" to require a tool call, or a list of tools to call."""
    reasoning: Reasoning | None
    """The reasoning effort."""
    prompt_cache: bool | Literal["5m", "1h"] | None
    """Whether to mark the prompt for the provider's cache, or the lifetime to ask for."""
    extra_body: Mapping[str, object] | None
    """Further fields of the request body, specific to the provider."""
    extra_headers: Mapping[str, str] | None
    """Further HTTP headers."""


class ModelParams(ModelDefaults, total=False):
    """The parameters of a request, by name: see PARAMS."""

    timeout: float | None
    """Seconds for the whole reply."""


def check_params(params: Mapping[str, Any], arguments: Iterable[str] = ()) -> dict[str, Any]:
    """Return the params that are set (not None), with `stop` as a list.

    Raises InvalidTypeError for a name that is not in PARAMS, with the nearest of these and of the
    other `arguments` of the caller; ValidationError for an invalid value.
    """
    for name in params:
        if name not in PARAMS:
            raise InvalidTypeError(
                f"There is no parameter {name!r}.{did_you_mean(name, (*arguments, *PARAMS))} The "
                f"model parameters are {', '.join(PARAMS)}; extra_body takes provider-specific "
                f"fields."
            )
    return {
        name: _SPECS[name][0](name, value) for name, value in params.items() if value is not None
    }


def _number(name: str, value: Any) -> float:
    # Compared, because a large int cannot be converted to float.
    limit = float_info.max
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -limit <= value <= limit
    ):
        raise _type_error(name, "a number", value)
    return value


def _seconds(name: str, value: Any) -> float:
    if _number(name, value) <= 0:
        raise ValidationError(f"{name} must be more than 0 seconds, got {short_repr(value)}.")
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _type_error(name, "an integer", value)
    return value


def _count(name: str, value: Any) -> int:
    if _integer(name, value) < 1:
        raise ValidationError(f"{name} must be at least 1, got {short_repr(value)}.")
    return value


def _texts(name: str, value: Any) -> list[str]:
    texts: list[Any] = [value] if isinstance(value, str) else _items(name, value)
    if not all(isinstance(text, str) and text for text in texts):
        raise _type_error(name, "a text or several, none of them empty", value)
    return texts


def _items(name: str, value: Any) -> list[Any]:
    if isinstance(value, bytes) or not isinstance(value, Sequence):
        raise _type_error(name, "a text or several", value)
    return list(cast("Sequence[Any]", value))


def _choice(name: str, value: Any) -> str | list[str]:
    if value == "required":
        return value
    if isinstance(value, str):
        raise ValidationError(
            f"{name} must be 'required' or a list of names, got {short_repr(value)}."
        )
    if not (names := _texts(name, value)):
        raise ValidationError(f"{name} must name at least one tool; leave it out for none.")
    return names


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _type_error(name, "True or False", value)
    return value


def _prompt_cache(name: str, value: Any) -> bool | str:
    if not isinstance(value, bool) and value not in ("5m", "1h"):
        raise _type_error(name, "True, False, '5m' or '1h'", value)
    return value


def _reasoning(name: str, value: Any) -> str:
    if value not in REASONING:
        raise ValidationError(
            f"{name} must be one of {listed(REASONING)}, got {short_repr(value)}."
        )
    return value


def _fields(name: str, value: Any) -> dict[str, Any]:
    fields = dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else None
    if fields is None or not all(isinstance(key, str) for key in fields):
        raise _type_error(name, "a mapping with text keys", value)
    return fields


def _headers(name: str, value: Any) -> dict[str, str]:
    headers = _fields(name, value)
    if not all(isinstance(header, str) for header in headers.values()):
        # The values may be secrets, so they are not shown.
        raise InvalidTypeError(f"{name} must map text to text.")
    return headers


def _type_error(name: str, expected: str, value: Any) -> ValidationError:
    return InvalidTypeError(f"{name} must be {expected}, got {short_repr(value)}.")


_SPECS: Mapping[str, tuple[Callable[[str, Any], Any], str]] = {
    "temperature": (_number, "the randomness of the reply, 0 for the least"),
    "top_p": (_number, "sample from the likeliest tokens with this total probability"),
    "max_tokens": (_count, "the maximum number of output tokens"),
    "stop": (_texts, "texts at which to stop"),
    "seed": (_integer, "a number that makes sampling repeatable, if the provider supports it"),
    "presence_penalty": (_number, "the penalty for tokens that have occurred"),
    "frequency_penalty": (_number, "the penalty for tokens that have occurred often"),
    "timeout": (_seconds, "seconds for the whole reply"),
    "parallel_tool_calls": (_boolean, "whether a reply may call several tools"),
    "tool_choice": (
        _choice,
        "'required' to require a tool call, or a list of tools to call",
    ),
    "reasoning": (_reasoning, "the reasoning effort: 'off', 'low', 'medium' or 'high'"),
    "prompt_cache": (
        _prompt_cache,
        "whether to mark the prompt for the provider's cache, where that is needed (Anthropic), "
        "or for how long, '5m' or '1h'; by default it is marked if it is a conversation or has "
        "tools",
    ),
    "extra_body": (_fields, "further fields of the request body, specific to the provider"),
    "extra_headers": (_headers, "further HTTP headers"),
}
PARAMS: Mapping[str, str] = {name: description for name, (_, description) in _SPECS.items()}
"""All parameters and their descriptions; other names raise InvalidTypeError."""

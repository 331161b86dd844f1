"""Requests for llama.cpp, with defaults for small models.

Chat templates of small models support three roles and little else. So tool calls and results are
sent as text, images are rejected, and consecutive messages of one role are joined, because some
templates require alternating turns. Without a system message, the template inserts the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sennit.errors import InvalidTypeError, ModelError, ValidationError, short_repr
from sennit.services.local.tool_prompt import call_text, output_schema, tools_prompt, tools_schema
from sennit.services.models.params import PARAMS
from sennit.services.models.request import ModelRequest

DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "repeat_penalty": 1.15,
    "max_tokens": 512,
}
"""Default parameters; tiny models ramble with a higher temperature."""
_RESERVED_FIELDS = frozenset(
    {"messages", "tools", "tool_choice", "response_format", "json_schema", "grammar", "n"}
    | {"stream", "stream_options", "return_progress", "id_slot"}
)


def body_of(request: ModelRequest) -> dict[str, Any]:
    """Return the body of a chat completion; raises ValidationError, or ModelError for images."""
    body = {**DEFAULTS, **_params(request.params), "messages": _messages(request)}
    schema, forced = None, request.forced
    if request.tools:
        schema = tools_schema(forced or request.tools, request.output, may_answer=not forced)
    elif request.output:
        schema = output_schema(request.output)
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    body["stream"] = body["return_progress"] = True
    body["stream_options"] = {"include_usage": True}
    return body


def timeout_of(request: ModelRequest) -> float | None:
    """Return the timeout of the whole reply in seconds, or None."""
    seconds = request.params.get("timeout")
    return None if seconds is None else _number(seconds, "timeout")


def _params(params: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(map(str, params.keys() - PARAMS.keys())):
        raise ValidationError(f"There is no parameter {unknown[0]!r}; there are {sorted(PARAMS)}.")
    body: dict[str, Any] = {}
    for name, value in params.items():
        if value is not None:
            body |= _VALIDATORS[name](value, name)
    return body


def _as_number(value: Any, name: str) -> dict[str, Any]:
    return {name: _number(value, name)}


def _as_timeout(value: Any, name: str) -> dict[str, Any]:
    _number(value, name)
    return {}  # enforced here, not sent: see timeout_of


def _number(value: Any, name: str) -> float:
    minimum = -math.inf if name.endswith("_penalty") else 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(f"{name} must be a number, got {short_repr(value)}.")
    if not math.isfinite(value) or value < minimum:
        raise ValidationError(
            f"{name} must be a finite number, not negative, got {short_repr(value)}."
        )
    return value


def _as_whole(value: Any, name: str) -> dict[str, Any]:
    minimum = 1 if name == "max_tokens" else 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"{name} must be a whole number, got {short_repr(value)}.")
    if not minimum <= value < 2**31:
        raise ValidationError(
            f"{name} must be from {minimum} to 2**31 - 1, got {short_repr(value)}."
        )
    return {name: value}


def _as_stops(value: Any, name: str) -> dict[str, Any]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or not all(
        isinstance(stop, str) and stop for stop in cast("Sequence[Any]", stops)
    ):
        raise ValidationError(f"{name} must be non-empty strings, got {short_repr(value)}.")
    return {name: list(cast("Sequence[str]", stops))}


def _as_reasoning(value: Any, name: str) -> dict[str, Any]:
    if value != "off":
        raise ValidationError(
            f"The template of a local model controls its reasoning; {name} may only be 'off', got "
            f"{short_repr(value)}."
        )
    return {"chat_template_kwargs": {"enable_thinking": False}}


def _as_body(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{name} must be a mapping, got {short_repr(value)}.")
    fields = {str(key): item for key, item in cast("Mapping[Any, Any]", value).items()}
    if reserved := sorted(fields.keys() & _RESERVED_FIELDS):
        raise ValidationError(
            f"{name} may not contain {reserved[0]!r}, which the request itself sets."
        )
    return fields


def _check_bool(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{name} must be True or False, got {short_repr(value)}.")
    return {}  # has no effect: this model calls one tool at a time


def _ignore(value: Any, name: str) -> dict[str, Any]:  # noqa: ARG001
    return {}  # enforced by the schema: see tools_schema


def _reject(value: Any, name: str) -> dict[str, Any]:  # noqa: ARG001
    raise ValidationError(
        f"A local model does not support {name}, because it sends no HTTP request."
    )


_VALIDATORS: Mapping[str, Callable[[Any, str], dict[str, Any]]] = {
    "temperature": _as_number,
    "top_p": _as_number,
    "max_tokens": _as_whole,
    "stop": _as_stops,
    "seed": _as_whole,
    "presence_penalty": _as_number,
    "frequency_penalty": _as_number,
    "timeout": _as_timeout,
    "parallel_tool_calls": _check_bool,
    "tool_choice": _ignore,
    "reasoning": _as_reasoning,
    "extra_body": _as_body,
    "extra_headers": _reject,
}


def _messages(request: ModelRequest) -> list[dict[str, str]]:
    call_names: dict[str, str] = {}
    turns = [_role_and_text(message, call_names) for message in request.messages]
    turns = [(role, text) for role, text in turns if text]
    if not turns:
        raise ValidationError("A request needs at least one non-empty message.")
    if request.tools:
        turns = _add_to_system_message(turns, tools_prompt(request.tools))
    merged: list[dict[str, str]] = []
    for role, text in turns:
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += f"\n\n{text}"
        else:
            merged.append({"role": role, "content": text})
    return merged


def _add_to_system_message(turns: list[tuple[str, str]], prompt: str) -> list[tuple[str, str]]:
    """Append the prompt to the system message, or insert one."""
    if turns[0][0] == "system":
        return [("system", f"{turns[0][1]}\n\n{prompt}"), *turns[1:]]
    return [("system", prompt), *turns]


def _role_and_text(message: Mapping[str, Any], call_names: dict[str, str]) -> tuple[str, str]:
    """Return role and text of a message; `call_names` maps call ids to names for the results."""
    role, text = message.get("role"), _text(message.get("content"))
    match role:
        case "system" | "developer":
            return "system", text
        case "user":
            return "user", text
        case "assistant":
            calls = [_call_as_text(call, call_names) for call in message.get("tool_calls") or ()]
            return "assistant", "\n".join([*([text] if text else []), *calls])
        case "tool":
            name = call_names.get(str(message.get("tool_call_id")), "the tool")
            return "user", f"Result of {name}: {text}"
        case _:
            raise ValidationError(
                f"A message's role must be system, user, assistant or tool, got {short_repr(role)}."
            )


def _call_as_text(call: Any, call_names: dict[str, str]) -> str:
    try:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        call_names[str(call["id"])] = name
        return call_text(name, arguments)
    except (KeyError, TypeError):
        raise ValidationError(
            f"A tool call must have an id and a function with name and arguments, got "
            f"{short_repr(call)}."
        ) from None


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidTypeError(
            f"A message's content must be text or blocks, got {short_repr(content)}."
        )
    return "\n".join(_block(block) for block in cast("Sequence[Any]", content))


def _block(block: Any) -> str:
    kind = None
    if isinstance(block, Mapping):
        kind, text = (cast("Mapping[str, Any]", block).get(key) for key in ("type", "text"))
        if kind == "text" and isinstance(text, str):
            return text
    raise ModelError(
        f"The local model supports text only, got {short_repr(kind)}. Leave it out, or use a model "
        f"that supports images.",
        kind="bad_request",
    )

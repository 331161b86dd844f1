"""Requests for llama.cpp, with defaults for small models.

Chat templates of small models know three roles and little else. So calls and results of tools go
as text, images are refused, and messages of one role in a row are joined (some templates insist on
turns that alternate). Where no system message is given, the template puts in the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sennit.errors import InvalidTypeError, ModelError, ValidationError, shown
from sennit.services.local.tool_prompt import call_text, output_schema, tools_prompt, tools_schema
from sennit.services.models.params import PARAMS
from sennit.services.models.request import ModelRequest

DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "repeat_penalty": 1.15,
    "max_tokens": 512,
}
"""How to answer where the request does not say; tiny models ramble with anything freer."""
_OURS = frozenset(
    {"messages", "tools", "tool_choice", "response_format", "json_schema", "grammar", "n"}
    | {"stream", "stream_options", "return_progress", "id_slot"}
)


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The body of a chat completion; raises ValidationError, or ModelError for images."""
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
    """The seconds the whole answer may take."""
    seconds = request.params.get("timeout")
    return None if seconds is None else _number(seconds, "timeout")


def _params(params: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(map(str, params.keys() - PARAMS.keys())):
        raise ValidationError(f"There is no parameter {unknown[0]!r}; there are {sorted(PARAMS)}.")
    body: dict[str, Any] = {}
    for name, value in params.items():
        if value is not None:
            body |= _CHECKS[name](value, name)
    return body


def _as_number(value: Any, name: str) -> dict[str, Any]:
    return {name: _number(value, name)}


def _as_timeout(value: Any, name: str) -> dict[str, Any]:
    _number(value, name)
    return {}  # kept here, not sent: see timeout_of


def _number(value: Any, name: str) -> float:
    least = -math.inf if name.endswith("_penalty") else 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(f"{name} must be a number, got {shown(value)}.")
    if not math.isfinite(value) or value < least:
        raise ValidationError(f"{name} must be a finite number, not negative, got {shown(value)}.")
    return value


def _as_whole(value: Any, name: str) -> dict[str, Any]:
    least = 1 if name == "max_tokens" else 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"{name} must be a whole number, got {shown(value)}.")
    if not least <= value < 2**31:
        raise ValidationError(f"{name} must be from {least} to 2**31 - 1, got {shown(value)}.")
    return {name: value}


def _as_stops(value: Any, name: str) -> dict[str, Any]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or not all(
        isinstance(stop, str) and stop for stop in cast("Sequence[Any]", stops)
    ):
        raise ValidationError(f"{name} must be non-empty strings, got {shown(value)}.")
    return {name: list(cast("Sequence[str]", stops))}


def _as_reasoning(value: Any, name: str) -> dict[str, Any]:
    if value != "off":
        raise ValidationError(
            f"The template of a local model controls its reasoning; {name} may only be 'off', got "
            f"{shown(value)}."
        )
    return {"chat_template_kwargs": {"enable_thinking": False}}


def _as_body(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{name} must be a mapping, got {shown(value)}.")
    more = {str(key): item for key, item in cast("Mapping[Any, Any]", value).items()}
    if taken := sorted(more.keys() & _OURS):
        raise ValidationError(
            f"{name} may not contain {taken[0]!r}, which the request itself sets."
        )
    return more


def _without_effect(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{name} must be True or False, got {shown(value)}.")
    return {}  # a permission; this model calls one tool at a time either way


def _in_the_form(value: Any, name: str) -> dict[str, Any]:  # noqa: ARG001
    return {}  # the form that the model fills in leaves no other choice: see tools_schema


def _refused(value: Any, name: str) -> dict[str, Any]:  # noqa: ARG001
    raise ValidationError(
        f"A local model does not support {name}, because it sends no HTTP request."
    )


_CHECKS: Mapping[str, Callable[[Any, str], dict[str, Any]]] = {
    "temperature": _as_number,
    "top_p": _as_number,
    "max_tokens": _as_whole,
    "stop": _as_stops,
    "seed": _as_whole,
    "presence_penalty": _as_number,
    "frequency_penalty": _as_number,
    "timeout": _as_timeout,
    "parallel_tool_calls": _without_effect,
    "tool_choice": _in_the_form,
    "reasoning": _as_reasoning,
    "extra_body": _as_body,
    "extra_headers": _refused,
}


def _messages(request: ModelRequest) -> list[dict[str, str]]:
    called: dict[str, str] = {}
    said = [_said(message, called) for message in request.messages]
    said = [(role, text) for role, text in said if text]
    if not said:
        raise ValidationError("A request needs at least one non-empty message.")
    if request.tools:
        said = _told(said, tools_prompt(request.tools))
    joined: list[dict[str, str]] = []
    for role, text in said:
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += f"\n\n{text}"
        else:
            joined.append({"role": role, "content": text})
    return joined


def _told(said: list[tuple[str, str]], prompt: str) -> list[tuple[str, str]]:
    """The prompt as part of the system message, which it makes if there is none."""
    if said[0][0] == "system":
        return [("system", f"{said[0][1]}\n\n{prompt}"), *said[1:]]
    return [("system", prompt), *said]


def _said(message: Mapping[str, Any], called: dict[str, str]) -> tuple[str, str]:
    """Role and text of a message; `called` remembers the names of calls for their results."""
    role, text = message.get("role"), _text(message.get("content"))
    match role:
        case "system" | "developer":
            return "system", text
        case "user":
            return "user", text
        case "assistant":
            calls = [_call(call, called) for call in message.get("tool_calls") or ()]
            return "assistant", "\n".join([*([text] if text else []), *calls])
        case "tool":
            name = called.get(str(message.get("tool_call_id")), "the tool")
            return "user", f"Result of {name}: {text}"
        case _:
            raise ValidationError(
                f"A message's role must be system, user, assistant or tool, got {shown(role)}."
            )


def _call(call: Any, called: dict[str, str]) -> str:
    try:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        called[str(call["id"])] = name
        return call_text(name, arguments)
    except (KeyError, TypeError):
        raise ValidationError(
            f"A tool call must have an id and a function with name and arguments, got "
            f"{shown(call)}."
        ) from None


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidTypeError(f"A message's content must be text or blocks, got {shown(content)}.")
    return "\n".join(_block(block) for block in cast("Sequence[Any]", content))


def _block(block: Any) -> str:
    kind = None
    if isinstance(block, Mapping):
        kind, text = (cast("Mapping[str, Any]", block).get(key) for key in ("type", "text"))
        if kind == "text" and isinstance(text, str):
            return text
    raise ModelError(
        f"The local model supports text only, got {shown(kind)}. Leave it out, or use a model that "
        f"supports images.",
        kind="bad_request",
    )

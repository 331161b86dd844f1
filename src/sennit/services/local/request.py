"""Requests for llama.cpp, with defaults for small models.

Chat templates of small models support three roles and little else. So tool calls and results are
sent as text, images are rejected, and consecutive messages of one role are joined, because some
templates require alternating turns. Without a system message, the template inserts the model's own.
Parallel tool calls and `tool_choice` need no field: the schema of the reply allows one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sennit.errors import InvalidTypeError, ModelError, ValidationError, short_repr
from sennit.messages.media import part_of_block, text_of
from sennit.services.local.tool_prompt import call_text, output_schema, tools_prompt, tools_schema
from sennit.services.models.params import check_params
from sennit.services.models.request import ModelRequest

DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "repeat_penalty": 1.15,
    "max_tokens": 512,
}
"""Default parameters; tiny models ramble with a higher temperature."""
_SENT_PARAMS = (
    *("temperature", "top_p", "max_tokens", "stop", "seed"),
    *("presence_penalty", "frequency_penalty"),
)
_RESERVED_FIELDS = frozenset(
    {"messages", "tools", "tool_choice", "response_format", "json_schema", "grammar", "n"}
    | {"stream", "stream_options", "return_progress", "id_slot"}
)


def body_of(request: ModelRequest) -> dict[str, Any]:
    """Return the body of a chat completion; raises ValidationError, or ModelError for images."""
    body = {**DEFAULTS, **_params(check_params(request.params)), "messages": _messages(request)}
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


def _params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return valid parameters as fields of the body; raises ValidationError if unsupported."""
    body = {name: params[name] for name in _SENT_PARAMS if name in params}
    for name in ("temperature", "top_p", "seed"):
        if body.get(name, 0) < 0:
            raise ValidationError(f"{name} must not be negative, got {short_repr(body[name])}.")
    for name in ("max_tokens", "seed"):
        if body.get(name, 0) >= 2**31:
            raise ValidationError(f"{name} must be below 2**31, got {short_repr(body[name])}.")
    if params.get("reasoning", "off") != "off":
        raise ValidationError(
            f"The template of a local model controls its reasoning; reasoning may only be 'off', "
            f"got {params['reasoning']!r}."
        )
    if "reasoning" in params:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    if "extra_headers" in params:
        raise ValidationError(
            "A local model does not support extra_headers, because it sends no HTTP request."
        )
    extra_body: Mapping[str, Any] = params.get("extra_body", {})
    if reserved := sorted(extra_body.keys() & _RESERVED_FIELDS):
        raise ValidationError(
            f"extra_body may not contain {reserved[0]!r}, which the request itself sets."
        )
    return {**body, **extra_body}


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
        if kind == "file" and (part := part_of_block(block)) is not None:
            text = text_of(part)
            if text is not None:
                return text
    raise ModelError(
        f"The local model supports text only, got {short_repr(kind)}. Leave it out, or use a model "
        f"that supports images and files.",
        kind="bad_request",
    )

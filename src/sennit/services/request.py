"""What a model is asked: a value, the same for every provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sennit.messages.models import ModelSchema
from sennit.messages.schema import ToolSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model, with all it needs to answer."""

    messages: Sequence[Mapping[str, Any]]
    """Chat messages as `to_model_messages` gives them: role, content, tool_calls, tool_call_id."""
    tools: tuple[ToolSchema, ...] = ()
    """The tools it may call."""
    output: ModelSchema | None = None
    """The JSON schema its answer has to follow; asked for only where `Model.shapes_output`."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How to answer: see PARAMS."""


PARAMS: Mapping[str, str] = {
    "temperature": "how freely to choose, 0 for as little as possible",
    "top_p": "choose among the likeliest tokens that make up this share",
    "max_tokens": "the most tokens of an answer",
    "stop": "texts at which to stop",
    "seed": "a number to make choices repeatable where the provider can",
    "presence_penalty": "against what was said before",
    "frequency_penalty": "against what was said often",
    "timeout": "seconds for the whole answer",
    "parallel_tool_calls": "whether several tools may be called at once",
    "reasoning": "how hard to think: 'off', 'low', 'medium' or 'high'",
    "extra_body": "more fields of the provider's own, sent as they are",
    "extra_headers": "more HTTP headers, sent as they are",
}
"""Every parameter there is, and what it does; any other name is refused."""

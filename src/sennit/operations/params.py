"""The parameters of the built-in operations, by name, for type checkers.

The parameters of the model (`temperature`, `max_tokens`, …) are among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from sennit.services.models.params import ModelParams

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sennit.messages.content import ImageDetail
    from sennit.messages.media import Files
    from sennit.messages.message import SenderRecipient
    from sennit.messages.output_schema import ModelSchema
    from sennit.services.models.protocol import Model
    from sennit.services.models.request import MessageInput
    from sennit.services.registry import ToolSource
    from sennit.turns.options import Budget, WhenBusy

Tools: TypeAlias = "ToolSource | Iterable[ToolSource] | None"
"""One tool or several, each a registered name, a Tool or a typed function."""
Schema: TypeAlias = "type[BaseModel] | ModelSchema | Mapping[str, object] | None"
"""An output schema: a pydantic class or a JSON schema."""


class GenerateParams(ModelParams, total=False):
    """The parameters of `generate`."""

    imodel: str | Model | None
    """The model; by default the only one that the branch may use."""
    messages: MessageInput | Iterable[MessageInput] | None
    """The messages to send instead of the prompt of the branch."""
    tools: Tools
    """The tools that the model may call."""
    response_model: Schema
    """The schema of the reply, for a model that supports structured output."""


class ParseParams(ModelParams, total=False):
    """The parameters of `parse`, besides `response_model`."""

    text: str
    """The text with the value."""
    imodel: str | Model | None
    """The model that converts a text that does not fit."""
    repairs: int
    """How often the model is told what is wrong with its answer."""


class InstructParams(ModelParams, total=False):
    """The parameters of `communicate`, `operate` and `react`, besides the instruction.

    The tools and the limits of the run are for `operate` and `react` only.
    """

    imodel: str | Model | None
    """The model; by default the only one that the branch may use."""
    context: list[object] | None
    """Values that the instruction refers to."""
    images: list[str] | None
    """The URLs of images."""
    image_detail: ImageDetail | None
    """The resolution of the images."""
    files: Files | None
    """Files and recordings: parts, Paths or URLs."""
    sender: SenderRecipient | None
    """The sender of the instruction, by default the user of the session."""
    repairs: int
    """How often the model is told what is wrong with an answer that does not fit."""
    tools: Tools
    """The tools that the model may call."""
    max_turns: int
    """The maximum number of model calls."""
    max_tool_passes: int
    """The maximum number of times that pending tool calls are run."""
    allow_parallel_tools: bool
    """Whether the calls of one turn run in parallel."""
    budget: Budget | None
    """The limits of tokens, cost, time and tool calls."""
    repeat_limit: int
    """The number of times in a row that the same call stops the run."""
    summarize_at: float | None
    """The share of the context window from which earlier messages are summarised."""
    when_busy: WhenBusy
    """What happens if another run is active on the branch."""

"""Operations as functions of a session, a branch and parameters, typed or in a dict.

They run Sennit's operations, so grants are checked, and answers validated, as in `conduct`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from sennit.api.session import Session
from sennit.errors import InvalidTypeError, RunError, ValidationError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.messages.prompt.plain_chat import prepare_messages_for_chat
from sennit.operations.communicate import parse as _parse
from sennit.operations.context import OperationContext
from sennit.operations.ipu import IPU
from sennit.operations.registry import OperationRegistry
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Reply
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.branches import BranchRef

__all__ = [
    "IPU",
    "CommunicateParams",
    "GenerateParams",
    "OperateParams",
    "OperationRegistry",
    "ParseParams",
    "ReactAction",
    "ReactParams",
    "ReactResult",
    "ReactStep",
    "communicate",
    "generate",
    "operate",
    "parse",
    "react",
]

ReturnAs: TypeAlias = Literal["text", "raw", "message", "calling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateParams:
    """Parameters of `generate`, and the first part of those of the other operations."""

    instruction: str | InstructionContent | Message
    imodel: Model | str | None = None
    context: Any = None
    images: Sequence[str] | None = None
    image_detail: Literal["low", "high", "auto"] | None = None
    request_model: Any = None
    """The output schema: a pydantic class or a JSON schema."""
    return_as: ReturnAs = "calling"
    imodel_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseParams:
    """Parameters of `parse`: the keys that the text should have, and a model to convert it."""

    text: str | None = None
    target_keys: Sequence[str] = ()
    imodel: Model | str | None = None
    max_retries: int = 3
    imodel_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicateParams:
    """Parameters of `communicate`; `capabilities` are names that the branch must have."""

    generate: GenerateParams
    parse: ParseParams | None = None
    """Its `max_retries` limits the attempts to repair an answer that does not fit."""
    capabilities: Iterable[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperateParams(CommunicateParams):
    """Parameters of `operate`; the tools are offered if `actions` is True."""

    tools: Sequence[Any] | bool = False
    """Names or objects; True for all tools that the branch may use."""
    actions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactParams(OperateParams):
    """Parameters of `react`."""

    actions: bool = True
    max_steps: int = 10


@dataclass(frozen=True, slots=True)
class ReactStep:
    """A step of `react`: the reasoning, the calls and their results."""

    step: int
    """The number, from 1."""
    reasoning: str | None = None
    actions_requested: tuple[ActionRequestContent, ...] = ()
    actions_executed: tuple[ReactAction, ...] = ()
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class ReactAction:
    """A call that was made, with what came back."""

    function: str
    arguments: Mapping[str, Any]
    output: Any


@dataclass(frozen=True, slots=True)
class ReactResult:
    """The steps of `react` and its answer."""

    final_response: Any
    """The answer, or a value of the response model; None if the run stopped early."""
    steps: tuple[ReactStep, ...]
    completed: bool
    reason_stopped: str

    @property
    def total_steps(self) -> int:
        """The number of steps."""
        return len(self.steps)


async def generate(
    session: Session, branch: BranchRef, params: Any = None, *, parameters: Any = None
) -> Any:
    """Ask a model, storing nothing; see GenerateParams.

    With `return_as` "text" returns the text, with "message" a Message, else the Reply.
    """
    return await run_operation(session, branch, "generate", params, parameters)


async def communicate(
    session: Session, branch: BranchRef, params: Any = None, *, parameters: Any = None
) -> Any:
    """Store an instruction and the reply; return its text, or a value of the output schema.

    `params` are CommunicateParams, or a dict with `instruction`, `imodel`, `context`, `images`,
    `response_model`, `return_as` and parameters of the model.
    """
    return await run_operation(session, branch, "communicate", params, parameters)


async def operate(
    session: Session, branch: BranchRef, params: Any = None, *, parameters: Any = None
) -> Any:
    """Return the answer to an instruction after tool calls; see OperateParams."""
    return await run_operation(session, branch, "operate", params, parameters)


async def react(
    session: Session, branch: BranchRef, params: Any = None, *, parameters: Any = None
) -> ReactResult:
    """Return the answer found by reasoning and acting in steps, with these; see ReactParams."""
    return await run_operation(session, branch, "react", params, parameters)


async def parse(
    session: Session, branch: BranchRef, params: Any = None, *, parameters: Any = None
) -> Any:
    """Return the value in a text: a dict with the `target_keys`, or of a `response_model`."""
    return await run_operation(session, branch, "parse", params, parameters)


def values_of(params: Any) -> dict[str, Any]:
    """Return parameters by name: those of a mapping, or of typed parameters and their parts."""
    if params is None or isinstance(params, Mapping):
        return dict(cast("Mapping[str, Any]", params or {}))
    match params:
        case GenerateParams() | ParseParams():
            values = {name: getattr(params, name) for name in type(params).__dataclass_fields__}
            return values | dict(values.pop("imodel_kwargs"))
        case CommunicateParams(generate=first, parse=second):
            values = values_of(first) | {"capabilities": params.capabilities}
            if second is not None:
                values["repairs"] = second.max_retries
        case _:
            raise InvalidTypeError(
                f"Parameters are a dict or one of GenerateParams, CommunicateParams, "
                f"OperateParams, ReactParams and ParseParams, got {short_repr(params)}."
            )
    if isinstance(params, OperateParams):
        values["tools"] = params.tools if params.actions else ()
    if isinstance(params, ReactParams):
        values["max_steps"] = params.max_steps
    return values


def arguments_for(
    session: Session, branch: Branch, operation: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters under Sennit's names; raises AccessError for missing capabilities."""
    if operation not in _FUNCTIONS:
        return dict(params)
    values = {name: value for name, value in params.items() if value is not None}
    values.pop("return_as", None)
    if (capabilities := values.pop("capabilities", None)) is not None:
        branch.require(capabilities=capabilities)
    for theirs, ours in (("request_model", "response_model"), ("max_retries", "repairs")):
        if theirs in values:
            values[ours] = values.pop(theirs)
    if (steps := values.pop("max_steps", None)) is not None:
        values |= {"max_turns": steps, "max_tool_passes": steps}
    if isinstance(values.get("context"), Mapping):
        values["context"] = [values["context"]]
    if isinstance(tools := values.get("tools"), bool):
        values["tools"] = _granted_tools(branch) if tools else ()
    default_model = getattr(session, "default_model_name", None)  # of our Session only
    if "imodel" not in values and default_model is not None:
        values["imodel"] = default_model("parse" if operation == "parse" else "generate")
    if operation == "generate" and "instruction" in values:
        values["messages"] = _chat_messages(branch, values)
    return values


def _granted_tools(branch: Branch) -> list[str]:
    services = branch.session.services
    return [
        name for name in services if isinstance(services.get(name), Tool) and branch.may_use(name)
    ]


def _chat_messages(branch: Branch, values: dict[str, Any]) -> list[Any]:
    """Return the prompt of a branch with the instruction in `values`, which are taken out."""
    instruction = values.pop("instruction")
    parts = {name: values.pop(name, None) for name in ("context", "images", "image_detail")}
    if isinstance(instruction, str):
        instruction = InstructionContent.create(
            instruction=instruction, response_model=values.get("response_model"), **parts
        )
    return prepare_messages_for_chat(
        branch.session.messages, branch, new_instruction=instruction, to_chat=True
    )


async def run_operation(
    session: Session, ref: BranchRef, operation: str, params: Any, parameters: Any = None
) -> Any:
    """Run an operation on a branch and return its result in lionpride's shape."""
    if params is not None and parameters is not None:
        raise InvalidTypeError(f"{operation} takes params or parameters=, not both.")
    branch = session.get_branch(ref)
    values = values_of(parameters if params is None else params)
    arguments = arguments_for(session, branch, operation, values)
    if operation == "parse":
        return await _parsed(session, branch, arguments)
    if operation == "react":
        return await _react(session, branch, arguments)
    conducted = await Session.conduct(session, branch=branch, operation=operation, params=arguments)
    result = await conducted.invoke()
    match operation, values.get("return_as"):
        case "generate", "text":
            return cast("Reply", result).text
        case "generate", "message":
            return Message(AssistantResponseContent(result.text), sender=session.agent)
        case (("communicate" | "operate"), "message"):
            return session.messages.get(branch[-1])
        case (("communicate" | "operate"), ("text" | "raw")):
            return session.messages.get(branch[-1]).content.words
        case _:
            return result


async def _parsed(session: Session, branch: Branch, values: dict[str, Any]) -> Any:
    keys = values.pop("target_keys", ())
    if "response_model" in values:
        conducted = await Session.conduct(session, branch=branch, operation="parse", params=values)
        return await conducted.invoke()
    if not keys:
        raise ValidationError("parse needs target_keys, or a response_model.")
    if isinstance(imodel := values.get("imodel"), str):
        branch.require(resources={imodel})
    schema: dict[str, Any] = {
        "title": "Parsed",
        "type": "object",
        "properties": {key: {} for key in keys},
        "required": list(keys),
    }
    return await _parse(OperationContext(session, branch), response_model=schema, **values)


async def _react(session: Session, branch: Branch, values: dict[str, Any]) -> ReactResult:
    conducted = await Session.conduct(session, branch=branch, operation="react", params=values)
    start = len(branch)
    try:
        answer, reason = await conducted.invoke(), ""
    except RunError as error:
        answer, reason = None, str(error)
    steps = _react_steps(session.messages.pick(branch[start:]), completed=not reason)
    return ReactResult(answer, steps, not reason, reason or "Loop completed")


def _react_steps(messages: Iterable[Message], *, completed: bool) -> tuple[ReactStep, ...]:
    """Return the steps that messages show: a step begins where the model speaks again."""
    steps: list[tuple[list[str], list[Message], list[Message]]] = []
    for message in messages:
        content = message.content
        if isinstance(content, ActionResponseContent):
            steps[-1][2].append(message)
        elif content.role is MessageRole.ASSISTANT:
            if not steps or steps[-1][2]:
                steps.append(([], [], []))
            if isinstance(content, ActionRequestContent):
                steps[-1][1].append(message)
            else:
                steps[-1][0].append(content.words)
    return tuple(
        ReactStep(
            number,
            "\n\n".join(texts) or None,
            tuple(cast("ActionRequestContent", call.content) for call in calls),
            tuple(_react_action(calls, result) for result in results),
            completed and number == len(steps),
        )
        for number, (texts, calls, results) in enumerate(steps, 1)
    )


def _react_action(calls: Iterable[Message], result: Message) -> ReactAction:
    content = cast("ActionResponseContent", result.content)
    requests = {str(call.id): cast("ActionRequestContent", call.content) for call in calls}
    requests |= {call.call_id: call for call in requests.values() if call.call_id}
    call = requests[str(content.request_id)]
    output = content.result if content.success else content.error
    return ReactAction(str(call.function), call.arguments or {}, output)


_FUNCTIONS = frozenset({"generate", "communicate", "operate", "react", "parse"})

"""The request of a conversation: branch, model, tools and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from sennit.blocking import run_blocking
from sennit.errors import ExistsError, InvalidTypeError, short_repr
from sennit.finish_uncancelled import finish_uncancelled
from sennit.messages.content import (
    MessageRole,
)
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema
from sennit.messages.prompt.tool_chat import model_messages
from sennit.messages.unset import MaybeUnset, Unset
from sennit.services.models.params import ModelParams, check_params
from sennit.services.models.protocol import Model, is_model
from sennit.services.models.reply import Reply
from sennit.services.models.request import ModelRequest
from sennit.services.models.traced_call import ask
from sennit.services.tools.tool import Tool
from sennit.sessions.blobs import with_blobs
from sennit.sessions.grants import Needs, check_access
from sennit.sessions.repository import repository_of
from sennit.turns.context import ContextProvider, checked_contexts
from sennit.turns.policies import PolicySource, checked_policies, pass_reply, pass_request
from sennit.turns.prompt_history import check_answerable, nothing_to_answer, prompt_ids
from sennit.turns.reply_builder import MessageCollector, ReplyBuilder
from sennit.turns.result import SPECIAL_TURN_KEY, Body, Metrics, Return
from sennit.turns.tools.pending_calls import messages_from_end, pending_calls

if TYPE_CHECKING:
    from sennit.services.registry import ServiceRegistry, ToolSource
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore


@dataclass(frozen=True, slots=True)
class Request:
    """Model, tools and parameters of a conversation; created by `session.conversation` or
    `Request.of`.
    """

    branch: Branch
    """The branch the run reads and appends to."""
    model: Model
    """The model that answers."""
    model_name: str
    """The name of the model in the branch's grants."""
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools that the model may call, by name."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the model, such as temperature."""
    policies: tuple[Any, ...] = ()
    """Policies that every request and reply passes; see Policy."""
    contexts: tuple[ContextProvider, ...] = ()
    """Context providers, which add to the prompt; see ContextProvider."""
    output: ModelSchema | None = None
    """The schema of the model's output, for models that support one."""
    registered: frozenset[str] = frozenset()
    """Which of the names were passed as registered names: the branch needs grants for them."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON data stored with the runs, from which the request can be built again to resume one."""
    system: MaybeUnset[Message | None] = Unset
    """The system message that the branch gets at the start of a run; None removes it."""

    @classmethod
    def of(
        cls,
        branch: Branch,
        *,
        model: str | Model,
        tools: Iterable[ToolSource] = (),
        policies: Iterable[PolicySource] = (),
        contexts: Iterable[ContextProvider] = (),
        **params: Unpack[ModelParams],
    ) -> Request:
        """Return a request; model and tools are registered names or objects.

        `params` are parameters of the model. Raises NotFoundError for a name that is not
        registered, ExistsError for two tools with the same name, AccessError unless the branch was
        granted all registered names and, if it is fenced, all objects.
        """
        draft = RequestDraft.of(
            branch.session.services,
            model=model,
            tools=tools,
            policies=policies,
            contexts=contexts,
            **params,
        )
        return draft.on(branch)

    def with_overrides(
        self,
        *,
        model: str | Model | None,
        tools: Iterable[ToolSource] | None,
        contexts: tuple[ContextProvider, ...] | None,
        params: Mapping[str, Any],
    ) -> Request:
        """Return a copy with the arguments that are not None, without output schema and tool
        choice.

        Raises as `of` does.
        """
        base_params = {name: value for name, value in self.params.items() if name != "tool_choice"}
        request = replace(self, params=check_params({**base_params, **params}), output=None)
        if model is not None:
            name, new_model = resolve_model(self.session.services, model)
            registered = request.registered & request.tools.keys()
            registered_names = registered | {name} if isinstance(model, str) else registered
            request = replace(
                request, model_name=name, model=new_model, registered=registered_names
            )
        if tools is not None:
            tools_by_name, registered_names = _resolve_tools(self.session.services, tools)
            registered = request.registered & {request.model_name}
            request = replace(
                request, tools=tools_by_name, registered=registered | registered_names
            )
        if contexts is not None:
            request = replace(request, contexts=contexts)
        request.check()
        return request

    @property
    def session(self) -> SessionCore:
        """The session of the branch."""
        return self.branch.session

    def check(self) -> None:
        """Raise AccessError unless the branch may use the model and all tools."""
        check_access(self.branch, _needs(self))

    def model_request(self) -> ModelRequest:
        """Return the model request; raises NothingToAskError."""
        messages = model_messages(self.session.messages, prompt_ids(self.branch))
        check_answerable(self.branch, messages)
        return ModelRequest(
            messages=messages,
            tools=tuple(tool.schema for tool in self.tools.values()),
            output=self.output,
            params=self.params,
        )

    async def exec(self) -> Return:
        """Make one provider call: no tool is called and nothing is stored.

        Policies apply, context providers do not. Raises ModelError, PolicyError, NothingToAskError.
        """
        self.check()
        request = await pass_request(self.policies, self.model_request())
        sent = await with_blobs(self.session, request)
        reply = await ask(self.model, sent, self.session.id)
        reply = await pass_reply(self.policies, request, reply)
        return Return(
            stop_reason="length" if reply.finish == "length" else "stable",
            body=Body(tuple(_reply_messages(reply, self.model_name))),
            metrics=Metrics(
                usage=reply.usage, turns=1, finish_reason=reply.finish, model=reply.model
            ),
        )

    def exec_sync(self) -> Return:
        """`exec` for programs without an event loop."""
        return run_blocking(self.exec(), "await exec()")

    def latest(self) -> Iterator[Message]:
        """Yield the messages of the branch from its end, reading them lazily."""
        return messages_from_end(self.branch)

    def insert_before_later(self, message: Message) -> bool:
        """Insert a message before later messages of the branch; return False if there are none.

        Ids are ordered by time, and the id of a reply is created with its first delta.
        """
        later_count = 0
        for other in self.latest():
            if other.id < message.id or other.id == message.id:
                break
            later_count += 1
        if later_count and message.id not in self.branch:
            self.session.add_message(message, branches=())
            self.branch.insert(len(self.branch) - later_count, message)
        return later_count > 0

    def nothing_to_answer(self) -> str | None:
        """Return the reason why there is nothing to answer, or None."""
        return nothing_to_answer(self.branch)

    def newest_instruction(self) -> Message | None:
        """Return the last user message."""
        for message in self.latest():
            if message.content.from_user and not message.content.empty:
                return message
        return None

    def unanswered(self) -> bool:
        """Return whether a message has no later text of the assistant."""
        for message in self.latest():
            if not message.content.empty and SPECIAL_TURN_KEY not in message.metadata:
                return not (message.content.from_assistant or message.role is MessageRole.SYSTEM)
        return False

    def pending(self) -> list[Message]:
        """Return the tool calls at the end of the branch without a result, oldest first."""
        return pending_calls(self.branch)


async def set_system(request: Request) -> None:
    """Set the system message of the branch to that of the request, unless they have the same
    content.
    """
    new_system, session = request.system, request.branch.session
    if new_system is Unset or _text_of(new_system) == _text_of(
        session.get_branch_system(request.branch)
    ):
        return
    set_system = partial(session.set_branch_system, request.branch, new_system)
    await finish_uncancelled(repository_of(session).read(set_system))


class RequestDraft(msgspec.Struct, frozen=True):
    """A request that is validated except for its branch; the fields are those of Request."""

    model: Model
    model_name: str
    tools: Mapping[str, Tool]
    params: Mapping[str, Any]
    policies: tuple[Any, ...]
    contexts: tuple[ContextProvider, ...]
    registered: frozenset[str]

    @classmethod
    def of(
        cls,
        services: ServiceRegistry,
        *,
        model: str | Model,
        tools: Iterable[ToolSource] = (),
        policies: Iterable[PolicySource] = (),
        contexts: Iterable[ContextProvider] = (),
        **params: Unpack[ModelParams],
    ) -> RequestDraft:
        """Validate everything except the branch; raises as `Request.of` does."""
        name, resolved_model = resolve_model(services, model)
        tools_by_name, registered_names = _resolve_tools(services, tools)
        return cls(
            resolved_model,
            name,
            tools_by_name,
            check_params(params),
            checked_policies(policies),
            checked_contexts(contexts),
            registered_names | {name} if isinstance(model, str) else registered_names,
        )

    @property
    def needs(self) -> Needs:
        """The names that the branch needs grants for."""
        return _needs(self)

    def on(self, branch: Branch, notes: Mapping[str, Any] | None = None) -> Request:
        """Return the request on a branch; raises AccessError unless it may use the model and all
        tools.
        """
        request = Request(
            branch,
            self.model,
            self.model_name,
            self.tools,
            self.params,
            self.policies,
            self.contexts,
            registered=self.registered,
            notes={} if notes is None else notes,
        )
        request.check()
        return request


def _needs(request: Request | RequestDraft) -> Needs:
    names = frozenset({request.model_name, *request.tools})
    return Needs(resources=request.registered, passed_resources=names)


def resolve_model(services: ServiceRegistry, model: Any) -> tuple[str, Model]:
    """Return a model and its name; raises NotFoundError, InvalidTypeError."""
    if isinstance(model, str):
        return model, services.model(model)
    if is_model(model):
        return services.name_of(model) or model.name, model
    raise InvalidTypeError(f"model must be a registered name or a model, got {short_repr(model)}.")


def _resolve_tools(services: ServiceRegistry, tools: Any) -> tuple[dict[str, Tool], frozenset[str]]:
    """Return the tools by name, and the names that were passed as registered names."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidTypeError(f"tools must be a list of names or tools, got {short_repr(tools)}.")
    tools_by_name: dict[str, Tool] = {}
    registered_names: set[str] = set()
    for entry in cast("Iterable[Any]", tools):
        tool = services.as_tool(entry)
        if isinstance(entry, str):
            registered_names.add(tool.name)
        if tools_by_name.setdefault(tool.name, tool) is not tool:
            raise ExistsError(
                f"Two of the tools are named {tool.name!r}, so a model cannot tell them apart; "
                f"give one another name, as in Tool(function, name=...)."
            )
    return tools_by_name, frozenset(registered_names)


def _reply_messages(reply: Reply, sender: str) -> list[Message]:
    collector = MessageCollector()
    builder = ReplyBuilder(collector, sender)
    for delta in reply.deltas():
        builder.feed(delta)
    return collector.messages


def _text_of(system: Message | None) -> str:
    return "" if system is None else system.content.words

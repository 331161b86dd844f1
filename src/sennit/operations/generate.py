"""generate: call a model and store nothing."""

from __future__ import annotations

from typing import Any

from sennit.messages.prompt.tool_chat import model_messages
from sennit.operations.context import OperationContext
from sennit.services.models.protocol import Model, supports_output_schema
from sennit.services.models.reply import Reply
from sennit.services.models.request import model_request
from sennit.services.models.traced_call import ask
from sennit.turns.prompt_history import check_answerable, prompt_ids


async def generate(
    where: OperationContext,
    /,
    *,
    imodel: str | Model,
    messages: Any = None,
    tools: Any = (),
    response_model: Any = None,
    **params: Any,
) -> Reply:
    """The model's reply to messages, by default to what is current on the branch.

    A `response_model` is asked for where the model can be held to one; the reply is not checked
    (see parse and communicate), and the tools it calls are not run. Raises ModelError.
    """
    model = where.model(imodel)
    said = messages
    if said is None:
        said = model_messages(where.session.messages, prompt_ids(where.branch))
        check_answerable(where.branch, said)
    if response_model is not None and not await supports_output_schema(model):
        response_model = None
    request = model_request(said, tools=where.tools(tools), output=response_model, **params)
    return await ask(model, request, where.session.id)

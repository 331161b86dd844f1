"""/v1/messages and /v1/messages/count_tokens, as Anthropic's clients use them.

A conversation is found by the history that the client sends, as that of a chat completion is, so
both APIs continue the same branches.
"""

from __future__ import annotations

from typing import Final

from sennit.ids import new_id
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.server.anthropic.message_events import MESSAGE_PREFIX, MessageEvents
from sennit.server.anthropic.message_schemas import (
    CountTokensRequest,
    MessagesRequest,
    ThreadParam,
)
from sennit.server.anthropic.threads import find_thread, thread_notes
from sennit.server.anthropic.translate import parse_messages
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import PRIVATE, bad_param
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.locate import BranchLocation, Locator, with_first_id
from sennit.server.openai.requests import (
    IdempotentRequest,
    PreparedAnswer,
    answer_history,
    ignored_fields,
    locate_once,
    named_session,
    respond,
    stored_metadata,
)
from sennit.server.openai.stored_responses import locate_next, response_id
from sennit.server.openai.translate import (
    ClientMessages,
    client_tools,
    output_schema,
    system_message,
)
from sennit.server.openai.turn import find_model
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import estimate_tokens

routes: Final = Routes()


@routes.post("/v1/messages", scope="run")
async def create(request: HTTPRequest, body: MessagesRequest) -> Response:
    """Answer a conversation, as Anthropic's Messages API does."""
    if body.thread is not None:
        return await _answer_in_thread(request, body, body.thread)
    sent = await _parse(request, body)
    return await answer_history(request, body, sent, lambda _: MessageEvents(body))


async def _answer_in_thread(
    request: HTTPRequest, body: MessagesRequest, param: ThreadParam
) -> Response:
    """Answer a request that starts or continues a conversation held by the server."""
    if body.store is False:
        raise bad_param("thread", "A thread is stored; leave out 'store', or 'thread'.")
    thread = await find_thread(request.caller, param)
    if thread is not None:
        body = thread.complete(body)
    sent = await _parse(request, body)
    kept = thread_notes(body, sent.system) if thread is None else thread.notes(sent.system)

    async def prepare(idempotent: IdempotentRequest | None) -> PreparedAnswer:
        uid = new_id() if idempotent is None else idempotent.uid
        notes = stored_metadata(body) | kept | ({} if idempotent is None else idempotent.notes)
        cache, named = request.server.branch_cache, named_session(request, body)
        locator = Locator(
            request.caller, cache, sent, named, always_append=True, uid=uid, notes=notes
        )

        async def locate() -> BranchLocation:
            if thread is None:
                return await locator.locate()
            return with_first_id(await locate_next(thread.previous, sent, cache), uid, notes)

        location, stored = await locate_once(idempotent, locator, locate)
        name = response_id(location.session.id, uid, MESSAGE_PREFIX)
        answer = None if stored is None else stored.complete_answer
        return PreparedAnswer(MessageEvents(body, name), location, answer)

    return await respond(request, body, prepare)


class TokenCount(ResponseModel):
    """The number of tokens of a request."""

    input_tokens: int


@routes.post("/v1/messages/count_tokens", scope="run", answer=TokenCount)
async def count_tokens(request: HTTPRequest, body: CountTokensRequest) -> Response:
    """Estimate the tokens of a request, as Anthropic's Messages API counts them."""
    sent = await _parse(request, body)
    find_model(request.server, body.model)
    count = TokenCount(await request.build(_size(body), _estimate, body, sent))
    return ok(count, headers={**PRIVATE, **ignored_fields(request, body)})


async def _parse(request: HTTPRequest, body: CountTokensRequest) -> ClientMessages:
    body.check()
    request.check_count(len(body.messages), request.limits.items, "messages")
    return await request.build(_size(body), parse_messages, body.system, body.messages)


def _size(body: CountTokensRequest) -> int:
    """Return the number of blocks."""
    contents = (message.content for message in body.messages)
    return sum(1 if isinstance(content, str) else len(content) for content in contents)


def _estimate(body: CountTokensRequest, sent: ClientMessages) -> int:
    system = () if sent.system is None else (system_message(sent.system),)
    tools = tuple(tool.schema for tool in client_tools(body.client_functions))
    messages = to_model_messages([*system, *sent.messages])
    return estimate_tokens(
        ModelRequest(messages=messages, tools=tools, output=output_schema(body.format))
    )

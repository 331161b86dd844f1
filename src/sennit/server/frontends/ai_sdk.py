"""/api/chat: the backend of `useChat`, with history, resume, stop, regenerate and approval."""

from __future__ import annotations

from asyncio import to_thread
from typing import Any, ClassVar, Final

from sennit.errors import ValidationError
from sennit.server.frontends.ai_sdk_messages import (
    UIMessage,
    decisions_of,
    parse_user_message,
    ui_message,
)
from sennit.server.frontends.ai_sdk_stream import UIMessageStream
from sennit.server.frontends.chats import ChatTurn, answer, follow, shown_groups
from sennit.server.http.endpoint import HTTPRequest, RequestModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import MEDIA, EventStream
from sennit.server.http.starlette_imports import Response
from sennit.server.rest.runs import RunRequest, plan_run

routes: Final = Routes()

_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


class ChatRequest(RequestModel, kw_only=True):
    """The body that the AI SDK's DefaultChatTransport sends; its `body` option adds `model`."""

    takes_unknown: ClassVar[bool] = True
    id: str
    messages: list[UIMessage]
    trigger: str = "submit-message"
    """Only "regenerate-message" asks for another answer to a message that has one."""
    model: str | None = None
    """Ours: a model of the server; without it, the first."""


@routes.post("/api/chat", scope="run", media=MEDIA)
async def chat(request: HTTPRequest, body: ChatRequest) -> EventStream:
    """Answer the last message of a chat as a UI message stream."""
    request.check_count(len(body.messages), request.limits.items, "messages")
    plan = plan_run(request, RunRequest(model=body.model))
    turn = _turn(body, request.caller.client.user)
    return await answer(request, turn, plan, UIMessageStream, _HEADERS)


def _turn(body: ChatRequest, sender: str) -> ChatTurn:
    """Return the turn; raise HTTPError 422 if the last message is invalid."""
    ids, path = [message.id for message in body.messages], f"/api/chat/{body.id}"
    last = body.messages[-1] if body.messages else None
    if last is None or last.role != "user":
        decisions = {} if last is None else decisions_of(last)
        return ChatTurn(body.id, ids, None, decisions, path)
    try:
        message = parse_user_message(last, sender)
    except ValidationError as error:
        raise HTTPError(422, "invalid", str(error), param=f"messages[{len(ids) - 1}]") from None
    again = body.trigger == "regenerate-message"
    return ChatTurn(body.id, ids, message, history_path=path, asks_again=again)


@routes.get("/api/chat/{chat}", scope="read")
async def history(request: HTTPRequest) -> dict[str, Any]:
    """Read the messages of a chat, for `messages` of `useChat` after a reload."""
    session = await request.caller.session(request.path["chat"])
    groups, waiting = await to_thread(shown_groups, session)
    return {"messages": [ui_message(group, waiting) for group in groups]}


@routes.get("/api/chat/{chat}/stream", scope="read", media=MEDIA)
async def resume(request: HTTPRequest) -> Response:
    """Follow the answer that is being generated, from its beginning; 204 if there is none."""
    return await follow(request, request.path["chat"], UIMessageStream, _HEADERS)


@routes.post("/api/chat/{chat}/stop", scope="run", status=204, stops=True)
async def stop(request: HTTPRequest) -> None:
    """Stop the answers that are being generated; their text so far stays."""
    session = await request.caller.session(request.path["chat"])
    await request.server.runs.stop_on(session.branches)

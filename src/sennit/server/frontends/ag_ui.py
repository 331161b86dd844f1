"""/api/ag-ui: an agent of the AG-UI protocol, with history, resume, forks and tool approval.

A thread is a session. Of the messages that a page sends, only the last one is read; texts in
`context` are added to the prompt of this run.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final

import msgspec

from sennit.errors import ValidationError
from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
)
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import tool_text
from sennit.server.frontends.ag_ui_stream import REASONING_SUFFIX, AGUIEvents
from sennit.server.frontends.chats import (
    ChatTurn,
    Group,
    answer,
    call_id_of,
    follow,
    shown_groups,
    user_message,
)
from sennit.server.http.endpoint import HTTPRequest, RequestModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import MEDIA, EventStream
from sennit.server.http.starlette_imports import Response
from sennit.server.rest.runs import RunRequest, plan_run
from sennit.turns.context import FixedContext

routes: Final = Routes()

_ANSWER_ROLES = ("assistant", "tool", "reasoning")


class AGUIMessage(msgspec.Struct, frozen=True):
    """A message as a page sends it."""

    id: str
    role: str
    content: str | list[dict[str, Any]] | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    """A text that the page adds to the prompt."""

    description: str
    value: str


class ResumeEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to an interrupt: a decision about a tool call."""

    interrupt_id: str
    status: str
    payload: Any = None


class RunAgentInput(RequestModel, kw_only=True, rename="camel"):
    """The input of a run, as AG-UI's clients send it."""

    takes_unknown: ClassVar[bool] = True
    thread_id: str
    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """Names the run: a request with the id of an earlier run streams that one again."""
    messages: list[AGUIMessage]
    context: list[ContextEntry] = msgspec.field(default_factory=list[ContextEntry])
    resume: list[ResumeEntry] | None = None
    forwarded_props: Any = None
    """May have the field `model`: a model of the server."""
    # Refused unless empty:
    tools: list[Any] | None = None
    # Accepted without effect:
    state: Any = None


@routes.post("/api/ag-ui", scope="run", media=MEDIA)
async def run(request: HTTPRequest, body: RunAgentInput) -> EventStream:
    """Answer the last message of a thread as a stream of AG-UI events."""
    request.check_count(len(body.messages), request.limits.items, "messages")
    if body.tools:
        message = "Tools of a page are not supported; tools are those of the server."
        raise HTTPError(422, "unsupported", message, param="tools")
    plan = plan_run(request, RunRequest(model=_model(body.forwarded_props)))
    if body.context:
        texts = tuple(f"{entry.description}: {entry.value}" for entry in body.context)
        plan = replace(plan, contexts=[FixedContext(texts), *plan.contexts])
    turn = _turn(body, request.caller.client.user)
    return await answer(request, turn, plan, lambda _: AGUIEvents(body.thread_id, body.run_id), {})


@routes.get("/api/ag-ui/{thread}", scope="read")
async def history(request: HTTPRequest) -> dict[str, Any]:
    """Read the messages of a thread, for `initialMessages` after a reload."""
    session = await request.caller.session(request.path["thread"])
    groups, waiting = await to_thread(shown_groups, session)
    messages = [one for group in groups for one in _messages(group)]
    return {"messages": messages, "waiting": sorted(waiting)}


@routes.get("/api/ag-ui/{thread}/stream", scope="read", media=MEDIA)
async def resume(request: HTTPRequest) -> Response:
    """Follow the run of a thread, from its beginning; 204 if there is none."""
    thread = request.path["thread"]
    return await follow(request, thread, partial(AGUIEvents, thread), {})


@routes.post("/api/ag-ui/{thread}/stop", scope="run", status=204, stops=True)
async def stop(request: HTTPRequest) -> None:
    """Stop the runs of a thread; their text so far stays."""
    session = await request.caller.session(request.path["thread"])
    await request.server.runs.stop_on(session.branches)


def _model(props: Any) -> str | None:
    model: Any = props.get("model") if isinstance(props, Mapping) else None  # pyright: ignore
    return model if isinstance(model, str) else None


def _turn(body: RunAgentInput, sender: str) -> ChatTurn:
    """Return the turn; raise HTTPError 422 if the last message is invalid."""
    ids = _group_ids(body.messages)
    path = f"/api/ag-ui/{body.thread_id}"
    last = body.messages[-1] if body.messages else None
    if body.resume or last is None or last.role != "user":
        decisions = {entry.interrupt_id: _decision(entry) for entry in body.resume or ()}
        return ChatTurn(body.thread_id, ids, None, decisions, path, run_id=body.run_id)
    try:
        message = user_message(last.id, *_texts_and_media(last.content), sender)
    except ValidationError as error:
        at = len(body.messages) - 1
        raise HTTPError(422, "invalid", str(error), param=f"messages[{at}]") from None
    return ChatTurn(
        body.thread_id,
        ids,
        message,
        history_path=path,
        asks_again=body.run_id is not None,
        run_id=body.run_id,
    )


def _group_ids(messages: Sequence[AGUIMessage]) -> list[str]:
    """Return the ids of the user's messages, and one for all that answers each of them."""
    ids: list[str] = []
    answers = False
    for message in messages:
        is_answer = message.role in _ANSWER_ROLES
        if message.role == "user" or (is_answer and not answers):
            ids.append(message.id.removesuffix(REASONING_SUFFIX) if is_answer else message.id)
        if message.role == "user" or is_answer:
            answers = is_answer
    return ids


def _decision(entry: ResumeEntry) -> tuple[bool, str]:
    match entry.payload:
        case {"approved": bool(approved), **rest}:
            return approved and entry.status == "resolved", str(rest.get("reason") or "")  # pyright: ignore
        case _:
            return False, ""


def _texts_and_media(
    content: str | list[dict[str, Any]] | None,
) -> tuple[list[str], list[MediaPart]]:
    if not isinstance(content, list):
        return [content or ""], []
    texts: list[str] = []
    media: list[MediaPart] = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image" | "audio" | "document" as kind, "source": {**source}}:
                media.append(_media_part(kind, source))
            case _:
                raise ValidationError(
                    "A user's message has parts of the types 'text', 'image', 'audio' and "
                    "'document'."
                )
    return texts, media


def _media_part(kind: str, source: Mapping[str, Any]) -> MediaPart:
    match source:
        case {"type": "url", "value": str(url)}:
            media_type = source.get("mimeType")
        case {"type": "data", "value": str(data), "mimeType": str(media_type)}:
            url = f"data:{media_type};base64,{data}"
        case _:
            raise ValidationError("A 'source' is a 'url', or 'data' with its 'mimeType'.")
    if kind == "image":
        return ImagePart(url)
    return AudioPart(url, media_type) if kind == "audio" else FilePart(url, None, media_type)


def _messages(group: Group) -> list[dict[str, Any]]:
    """Return a group as messages of AG-UI; calls belong to the text before them."""
    shown: list[dict[str, Any]] = []
    for message in group.messages:
        content = message.content
        name = str(message.id)
        if isinstance(content, InstructionContent):
            shown.append({"id": group.id, "role": "user", "content": _content(message, content)})
        elif isinstance(content, ActionRequestContent):
            if not shown or shown[-1]["role"] != "assistant":
                shown.append({"id": name, "role": "assistant"})
            shown[-1].setdefault("toolCalls", []).append(_call(message, content))
        elif isinstance(content, ActionResponseContent):
            call_id, text = content.request_id or "", tool_text(content)
            shown.append({"id": name, "role": "tool", "toolCallId": call_id, "content": text})
        elif isinstance(content, AssistantResponseContent):
            if content.reasoning:
                reasoning = f"{name}{REASONING_SUFFIX}"
                shown.append({"id": reasoning, "role": "reasoning", "content": content.reasoning})
            if content.words:
                shown.append({"id": name, "role": "assistant", "content": content.words})
    return shown


def _content(message: Message, content: InstructionContent) -> str | list[dict[str, Any]]:
    text = content.instruction or ""
    media = [_shown(part) for part in message.parts if isinstance(part, MediaPart)]
    if not media:
        return text
    return [{"type": "text", "text": text}, *media] if text else media


def _shown(part: MediaPart) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image", "source": {"type": "url", "value": part.url}}
    kind = "audio" if isinstance(part, AudioPart) else "document"
    source = {"type": "url", "value": part.url, "mimeType": part.media_type}
    return {"type": kind, "source": source}


def _call(message: Message, content: ActionRequestContent) -> dict[str, Any]:
    arguments = dumps(content.arguments or {}).decode()
    function = {"name": content.function or "", "arguments": arguments}
    return {"id": call_id_of(message), "type": "function", "function": function}

"""A chat that shows events as they arrive: each class of event has its own fields."""

import asyncio

import sennit
from sennit import ConversationSession, Message
from sennit.events import (
    AnyEvent,
    ApprovalRequired,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    WarningIssued,
)


def describe(event: AnyEvent) -> str:
    match event:
        case RunStarted(model=model, resumed=resumed):
            return f"{model} {resumed}"
        case TextAdded(text=text) | ReasoningAdded(text=text):
            return text
        case ToolCalled() | ToolCompleted() | MessageCompleted() | ApprovalRequired():
            message: Message = event.message
            return message.text
        case WarningIssued():
            return event.notice.code.upper()
        case RunEnded():
            return str(event.result.metrics.turns + 1)
        case _:
            return f"{event.kind} {event.seq + 1} {event.run_id.hex}"


def show(chat: ConversationSession) -> int:
    for event in chat.events("Hello"):
        print(describe(event))
    for piece in chat.stream("And now?"):
        print(piece.text, end="")
        if piece.is_final:
            return len(piece.notices)
    return max(event.seq for event in chat.history())


async def follow(chat: ConversationSession) -> str:
    async with chat.stream("Hello") as stream:
        async for piece in stream:
            if piece.is_delta:
                break
    async for event in chat.events(after=0):
        if isinstance(event, RunEnded):
            return event.result.text
    return ""


if __name__ == "__main__":
    conversation = sennit.conversation(model="local", system="Be brief.")
    print(show(conversation), asyncio.run(follow(conversation)))

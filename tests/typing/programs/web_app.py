"""A web application: one conversation per user, with FastAPI."""

from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import sennit
from sennit import ConversationSession, NotFoundError

app = FastAPI()


class Question(BaseModel):
    text: str


class Answer(BaseModel):
    text: str
    tokens: int


async def conversation_of(user: str) -> ConversationSession:
    client = sennit.open("app.db", user=user)
    session = await client.asession("chat")
    return session.conversation(model="openai:gpt-5")


@app.post("/users/{user}/say")
async def say(user: str, question: Question) -> Answer:
    result = await (await conversation_of(user)).asay(question.text)
    return Answer(text=result.text, tokens=result.metrics.usage.output_tokens)


@app.post("/users/{user}/stream")
async def stream(user: str, question: Question) -> StreamingResponse:
    conversation = await conversation_of(user)

    async def texts() -> AsyncIterator[str]:
        async for item in conversation.stream(question.text):
            if item.is_delta:
                yield item.text

    return StreamingResponse(texts())


@app.get("/users/{user}/messages")
def messages(user: str) -> list[str]:
    try:
        session = sennit.open("app.db", user=user).session("chat", create=False)
    except NotFoundError:
        return []
    return [message.text for message in session.default_branch.messages]

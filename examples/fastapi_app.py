"""A chat service on FastAPI: one stored conversation per user, any number of users at once.

    $ pip install 'sennit[models]' fastapi uvicorn
    $ uvicorn fastapi_app:app
    $ curl localhost:8000/chat/ada --json '{"text": "My name is Ada."}'
    "Nice to meet you, Ada."

Two messages of one user are answered one after the other. Each is stored before it is answered, so
a restarted service goes on with all conversations.
"""

from fastapi import FastAPI
from pydantic import BaseModel

import sennit

app = FastAPI()
client = sennit.open("service.db")
in_turn = sennit.SessionOptions(when_busy="wait")


class Said(BaseModel):
    text: str


@app.post("/chat/{user}")
async def chat(user: str, said: Said) -> str:
    session = await client.asession(user)
    conversation = session.conversation(model="openai:gpt-5", system="You are brief.")
    return (await conversation.asay(said.text, in_turn)).raise_for_error().text


@app.get("/chat/{user}")
async def history(user: str) -> list[str]:
    messages = (await client.asession(user)).default_branch.messages
    return [f"{one.role.value}: {one.content.words}" for one in messages if one.role != "system"]

from asyncio import Lock
from collections import defaultdict

from agents import Agent, Runner, SQLiteSession
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
agent = Agent("assistant", instructions="You are brief.", model="gpt-5")
locks: defaultdict[str, Lock] = defaultdict(Lock)


class Said(BaseModel):
    text: str


@app.post("/chat/{user}")
async def chat(user: str, said: Said) -> str:
    async with locks[user]:
        session = SQLiteSession(user, "service.db")
        result = await Runner.run(agent, said.text, session=session)
        session.close()
        return result.final_output


@app.get("/chat/{user}")
async def history(user: str) -> list[str]:
    session = SQLiteSession(user, "service.db")
    items = await session.get_items()
    session.close()
    texts = []
    for item in items:
        content = item["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        texts.append(f"{item['role']}: {text}")
    return texts

"""A personal assistant with memory over several sessions, streaming, on an event loop."""

import asyncio

import sennit
from sennit import Client, SessionOptions
from sennit.memory import AutoCommit, MemoryContext


async def talk(client: Client, day: str, text: str) -> str:
    session = await client.asession(day)
    conversation = session.conversation(
        model="anthropic:claude-sonnet-5",
        system="You know me.",
        contexts=[MemoryContext(client.memory)],
        max_tokens=500,
        reasoning="low",
    )
    async with conversation.stream(text, SessionOptions(max_turns=3)) as items:
        async for item in items:
            print(item.text, end="")
    result = await conversation.asay("And now?")
    await session.acommit()
    return result.text


async def main() -> None:
    with sennit.open("me.db", user="ada") as client:
        client.memory.auto(AutoCommit())
        for day in ("monday", "tuesday"):
            print((await talk(client, day, "I like sheet bends.")).strip())
        for match in await client.afind("knots", limit=3):
            print(round(match.score, 2), match.uri)


if __name__ == "__main__":
    asyncio.run(main())

"""Long-term memory: commits, search, files, and what a memory is based on."""

from datetime import UTC, datetime

import sennit
from sennit import Client
from sennit.memory import AutoCommit, MemoryContext, MiniLM


def remember(client: Client) -> list[str]:
    session = client.session("ada")
    session.add_message("user", "My name is Ada.")
    result = session.commit()
    task: str | None = result["task_id"]
    print(result.status, result["memories_extracted"] + 1, task)
    client.memory.use(model=None)
    client.memory.use(model="openai:gpt-5")
    client.memory.auto(AutoCommit(messages=10))
    matches = client.find("Who is Ada?", since=datetime(2026, 1, 1, tzinfo=UTC))
    lines = [f"{match.uri} {match.score:.2f} {match.abstract}" for match in matches]
    for memory in client.memory.all():
        sources = client.memory.evidence([memory])
        print(memory.uri, len(sources))
    undone = client.undo_commit(task) if task is not None else None
    print(undone, client.memory.commits(session))
    context = session.context(budget_tokens=500)
    return [*lines, context.text]


async def later(client: Client) -> str:
    session = await client.asession("ada")
    await session.aused(contexts=["viking://resources/knots.md"])
    chat = session.conversation(model="local", contexts=[MemoryContext(client.memory)])
    await chat.asay("What do you know about me?")
    await session.acommit(wait=False)
    entries = await client.fs.als("viking://user/memories")
    async for entry in client.fs.awalk():
        print(entry.name, entry.is_folder)
    text: str = await client.fs.aread(entries[0].uri)
    removed: int = await client.fs.arm(entries[0].uri, recursive=True)
    return f"{text} {removed + 1}"


if __name__ == "__main__":
    with sennit.open("memory.db", embedder=MiniLM()) as opened:
        print(remember(opened))

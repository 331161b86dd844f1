"""Durable Pydantic AI conversations with forks (`pip install 'sennit[pydantic-ai]'`).

Prints

    ['other', 'knots']
    pydantic-ai log (7 messages)
    knots (2 messages)
    └─ other (4 messages, forked after 2)
"""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import sennit
from sennit.adapters.pydantic_ai import SennitConversationStore


async def main() -> None:
    agent = Agent(TestModel(custom_output_text="The bowline."))
    with sennit.open(":memory:") as client:
        store = SennitConversationStore(client)
        result = await agent.run("Name a knot.", conversation_id="knots")
        await store.save(result)
        fork = await store.fork("knots", new_conversation_id="other")
        await store.save(await agent.run("Another one?", conversation=fork))
        print([one.conversation_id for one in await store.list_conversations()])
        print(client.session("pydantic-ai:knots").tree())


asyncio.run(main())

"""An OpenAI Agents SDK session on a branch (`pip install 'sennit[openai-agents]'`).

Prints

    2
    main (2 messages)
    └─ other (2 messages, forked after 1)
"""

import asyncio

import sennit
from sennit.adapters.openai_agents import SennitSession


async def main() -> None:
    with sennit.open(":memory:") as client:
        session = SennitSession(client, "knots")  # Runner.run(agent, "Hello", session=session)
        await session.add_items([{"role": "user", "content": "Name a knot."}])
        await session.add_items([{"role": "assistant", "content": "The bowline."}])
        other = await session.fork("other", at=0)
        await other.add_items([{"role": "assistant", "content": "The sheet bend."}])
        print(len(await other.get_items()))
        print(client.session("knots").tree())


asyncio.run(main())

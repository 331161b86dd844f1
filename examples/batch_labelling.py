"""Label a batch of tickets with typed answers, ten at a time; a restart labels only the rest.

Prints

    ticket-1 billing: I was charged twice.
    ticket-2 bug: The app crashes when I log in.
    ticket-3 other: Thank you, all is well!
    3 examples in tickets.jsonl
"""

import asyncio
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

import sennit

TICKETS = {
    "ticket-1": "I was charged twice.",
    "ticket-2": "The app crashes when I log in.",
    "ticket-3": "Thank you, all is well!",
}


class Ticket(BaseModel):
    """The label of a ticket."""

    kind: Literal["billing", "bug", "other"]


async def label(client: sennit.Client, key: str, limit: asyncio.Semaphore) -> str:
    """Label one ticket, in a session of its own."""
    async with limit:
        session = await client.asession(key)
        chat = session.conversation(model="openai:gpt-5", system="Which kind of ticket is it?")
        if any(message.role == "user" for message in session.default_branch.messages):
            result = await chat.aresume(output=Ticket)  # if a restart interrupted it
        else:
            result = await chat.asay(TICKETS[key], output=Ticket)
        return "done before" if result.stop_reason == "invalid" else result.output.kind


async def main() -> None:
    with sennit.open("tickets.db") as client:
        limit = asyncio.Semaphore(10)
        kinds = await asyncio.gather(*(label(client, key, limit) for key in TICKETS))
        for key, kind in zip(TICKETS, kinds, strict=True):
            print(f"{key} {kind}: {TICKETS[key]}")
        Path("tickets.jsonl").unlink(missing_ok=True)
        written = client.export_training("tickets.jsonl")
        print(written.rows["all"], "examples in tickets.jsonl")


asyncio.run(main())

"""An assistant that remembers its user over five sessions, shows its evidence, and can forget.

Prints

    Nice to meet you, Ada.
    Noted: no peanuts.
    A soup without peanuts.
    Lisbon is lovely.
    A curry without peanuts, Ada.
    monday: My name is Ada.
    tuesday: I am allergic to peanuts.

Each session begins without messages: what it knows of the others are memories, extracted by the
commit at the end of each. Here rules do that; `client.memory.use(model=...)` lets a model do it.
"""

import sennit
from sennit.memory import MemoryContext

DAYS = {
    "monday": "My name is Ada.",
    "tuesday": "I am allergic to peanuts.",
    "wednesday": "What shall I cook tonight?",
    "thursday": "I moved to Lisbon.",
    "friday": "What shall I cook for my guests?",
}

with sennit.open("assistant.db") as client:
    for day, text in DAYS.items():
        session = client.session(day)
        chat = session.conversation(model="openai:gpt-5", contexts=[MemoryContext(client.memory)])
        print(chat.say(text).text)
        session.commit()
    client.forget(session="thursday")  # the session, and all that was learned from it
    for source in client.memory.evidence(client.memory.all()).values():
        print(f"{source.session}: {source.text}")

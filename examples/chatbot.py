"""A chatbot for the terminal: it streams, stores every message, and continues after a restart.

    $ python chatbot.py
    > Name a knot that does not slip.
    The bowline.
    > And one that slips?
    The slip knot.

Started again, it first prints what was said. An empty line ends it.
"""

import sennit

with sennit.open("chatbot.db") as client:
    session = client.session("terminal")
    chat = session.conversation(model="openai:gpt-5", system="You are brief.")
    for message in session.default_branch.messages:
        if message.role != "system":
            print(f"{message.role.value}: {message.content.words}")
    while text := input("> "):
        try:
            for piece in chat.stream(text):
                print(piece, end="", flush=True)
        except sennit.RunError as error:  # such as a missing API key
            print(error, end="")
        print()

"""Hello world: one question, one answer.

Needs OPENAI_API_KEY; model="local" needs no key (`pip install 'sennit[local]'`). Prints

    The bowline.
"""

import sennit

chat = sennit.conversation("openai:gpt-5")
print(chat.say("Name a knot that does not slip.").text)

"""A LangChain chat history on a branch (`pip install 'sennit[langchain]'`).

Prints

    2 3
    ['The bowline.']
"""

from langchain_core.messages import AIMessage, HumanMessage

import sennit
from sennit.adapters.langchain import SennitChatMessageHistory

with sennit.open(":memory:") as client:
    history = SennitChatMessageHistory(client, "knots")
    history.add_messages([HumanMessage("Name a knot."), AIMessage("The bowline.")])
    other = history.fork("other")
    other.add_user_message("Another one?")
    print(len(history.messages), len(other.messages))
    print([hit.snippet for hit in client.search_messages("bowline")])

"""A LangGraph checkpointer on a Sennit store (`pip install 'sennit[langgraph]' langgraph`).

Prints

    You have said 2 things.
"""

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import sennit
from sennit.adapters.langgraph import SennitSaver


def answer(state: MessagesState) -> MessagesState:
    said = len(state["messages"]) // 2 + 1
    return {"messages": [AIMessage(f"You have said {said} things.")]}


with sennit.open(":memory:") as client:
    builder = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
    graph = builder.compile(checkpointer=SennitSaver(client))
    for text in ("Hello.", "And again."):
        given: MessagesState = {"messages": [HumanMessage(text)]}
        state = graph.invoke(given, {"configurable": {"thread_id": "thread-1"}})
    print(state["messages"][-1].content)

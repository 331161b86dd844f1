"""A LangGraph whose threads are kept by Sennit (`pip install 'sennit[langgraph]' langgraph`)."""

from langgraph.graph import START, MessagesState, StateGraph

import sennit
from sennit.adapters.langgraph import SennitSaver


def answer(state: MessagesState) -> dict[str, list[tuple[str, str]]]:
    return {"messages": [("ai", f"You have said {len(state['messages']) // 2 + 1} things.")]}


with sennit.open(":memory:") as client:
    builder = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
    graph = builder.compile(checkpointer=SennitSaver(client))
    for said in ("Hello.", "And again."):
        state = graph.invoke(
            {"messages": [("user", said)]}, {"configurable": {"thread_id": "thread-1"}}
        )
    print(state["messages"][-1].content)

"""The history is written after each run of the agent; a run that is killed begins again."""

from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

ORDERS = {"1042": "a kettle, 39 €, delivered broken"}
STATE = Path("support.json")
agent = Agent(
    "openai-chat:gpt-5",
    instructions="You are a support agent. Look up an order before you refund it.",
    output_type=[str, DeferredToolRequests],
)


@agent.tool_plain
def look_up(order: str) -> str:
    """Look up an order."""
    return ORDERS.get(order, "There is no such order.")


@agent.tool_plain(requires_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    with Path("refunds.txt").open("a") as ledger:
        ledger.write(f"{order}\n")
    return f"Order {order} is refunded."


history = ModelMessagesTypeAdapter.validate_json(STATE.read_bytes()) if STATE.exists() else []
last = history[-1] if history else None
calls = last.tool_calls if isinstance(last, ModelResponse) else []
if not calls:
    result = agent.run_sync(input("How can I help? "), message_history=history)
    STATE.write_bytes(result.all_messages_json())
    history = result.all_messages()
    calls = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
while calls:
    decisions = DeferredToolResults()
    for call in calls:
        print(call.tool_name, call.args_as_dict())
        approved = input("Approve? [y/n] ") == "y"
        decisions.approvals[call.tool_call_id] = approved or ToolDenied()
    result = agent.run_sync(message_history=history, deferred_tool_results=decisions)
    STATE.write_bytes(result.all_messages_json())
    history = result.all_messages()
    calls = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
print(result.output)

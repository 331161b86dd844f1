"""A support agent that looks up orders and asks before it refunds one; it survives `kill -9`.

    $ python support_agent.py
    How can I help? Please refund order 1042.
    function: refund
    arguments:
      order: 1042
    Approve? [y/n] y
    Order 1042, a kettle, is refunded.

Each step is stored before the next one begins. Kill the program while it asks, or at any other
point, and start it again: it continues there, and no order is refunded twice.
"""

from pathlib import Path

import sennit

ORDERS = {"1042": "a kettle, 39 €, delivered broken"}


def look_up(order: str) -> str:
    """Look up an order."""
    return ORDERS.get(order, "There is no such order.")


def refund(order: str) -> str:
    """Refund an order."""
    with Path("refunds.txt").open("a") as ledger:
        ledger.write(f"{order}\n")
    return f"Order {order} is refunded."


with sennit.open("support.db") as client:
    chat = client.session("ticket 7").conversation(
        model="openai:gpt-5",
        system="You are a support agent. Look up an order before you refund it.",
        tools=[look_up, sennit.Tool(refund, needs_approval=True)],
    )
    result = chat.resume()
    if result.stop_reason == "invalid":  # nothing was interrupted
        result = chat.say(input("How can I help? "))
    while calls := chat.pending_approvals():
        for call in calls:
            print(call.rendered)
            decide = chat.approve if input("Approve? [y/n] ") == "y" else chat.deny
            result = decide(call) or result
    print(result.raise_for_error().answer)

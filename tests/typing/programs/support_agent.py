"""A support agent: tools, approval of a refund, and a run continued after a crash."""

import sennit
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
    Message,
    SystemContent,
    Tool,
)


def order_status(order: int) -> str:
    """The status of an order."""
    return f"order {order} is on its way"


async def refund(order: int, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


def show(message: Message) -> str:
    match message.content:
        case ActionRequestContent(function=str(function), arguments=arguments):
            return f"{function}({arguments or {}})"
        case ActionResponseContent() as response:
            return str(response.error or response.result)
        case InstructionContent() | SystemContent():
            return message.rendered_text.replace("\n", " ")
        case other:
            return f"{other.role.value}: {message.text}"


def call_id(message: Message) -> str:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content.call_id or ""


def main() -> None:
    with sennit.open("support.db") as client:
        session = client.session("ticket-17", system="You help customers.")
        approve = Tool(refund, needs_approval=True, replay="never")
        conversation = session.conversation(
            model="openai:gpt-5",
            tools=[order_status, approve],
            temperature=0.2,
            stop=["END"],
            extra_body={"store": False},
        )
        result = conversation.say("Where is order 4?")
        while result.stop_reason == "suspended":
            for message in conversation.pending_approvals():
                print(show(message))
                conversation.approve(call_id(message))
            result = conversation.resume()
        print(result.text.upper())
        for notice in result.notices:
            print(notice.severity, notice.text)
        for message in session.default_branch.messages:
            print(show(message))


if __name__ == "__main__":
    main()

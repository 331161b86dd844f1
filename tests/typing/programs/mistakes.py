"""Mistakes that type checkers report; a comment that hides none is an error itself."""

from pydantic import BaseModel

import sennit
from sennit import Message, Session, SpecialTurn, SystemContent, Tool, iModel


class City(BaseModel):
    name: str


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


def options(session: Session) -> None:
    Tool(greet, needs_aproval=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    iModel("local", temprature=0.2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    session.conversation(model="local", temprature=0.2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    session.conversation(model="local", temperature="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.conversation(model="local", tools=[5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    session.conversation(model="local", contexts=[greet])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def results(message: Message) -> None:
    wrong: int = Tool(greet).invoke_sync("Ada")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    Tool(greet).invoke_sync(nom="Ada")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    town: str = iModel("local").invoke_sync("Where?", output=City).output  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    city: str = sennit.conversation(model="local").say("Where?", output=City).output  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wrong, town, city)
    print(message.tetx)  # type: ignore[attr-defined]  # pyright: ignore
    print(message.content.call_id)  # type: ignore[attr-defined]  # pyright: ignore
    if isinstance(message.content, SystemContent):
        print(message.content.instruction)  # type: ignore[attr-defined]  # pyright: ignore
    print(sennit.opne)  # type: ignore[attr-defined]  # pyright: ignore


async def operations(session: Session) -> None:
    operation = await session.conduct(branch="main", operation="communicate", instruction="Hello")
    number: int = await operation.invoke()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    SpecialTurn(tools=[number, 3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

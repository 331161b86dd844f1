"""Operations and tools whose results have the types that their parameters and functions say."""

from pydantic import BaseModel

import sennit
from sennit import IPU, Operation, OperationRegistry, Session, Tool
from sennit.operations import OperationContext
from sennit.services import Reply
from sennit.turns import greeting, summarize


class City(BaseModel):
    name: str
    people: int


async def shout(where: OperationContext, /, *, text: str) -> str:
    return f"{where.branch.name}: {text.upper()}"


def length(where: OperationContext, /, *, text: str) -> int:
    return len(text) + len(where.branch)


def distance(start: str, end: str, unit: str = "km") -> float:
    """The distance between two places."""
    return float(len(start) + len(end) + len(unit))


async def main(session: Session) -> None:
    reply: Operation[Reply] = await session.conduct(
        branch="main", operation="generate", imodel="sage", temperature=0.2
    )
    print((await reply.invoke()).text)
    text: str = await (
        await session.conduct(branch="main", operation="communicate", instruction="Hello")
    ).invoke()
    city: City = await (
        await session.conduct(
            branch="main",
            operation="operate",
            instruction="Where does Ada live?",
            response_model=City,
            tools=[distance, "search"],
            max_turns=3,
        )
    ).invoke()
    parsed = session.conduct_sync(
        branch="main", operation="parse", text=text, response_model=City
    ).invoke_sync()
    print(city.people + parsed.people)

    operations = OperationRegistry()
    shouting, measuring = operations.register("shout", shout), operations.register("len", length)
    own = Session(operations=operations)
    own.create_branch("main")
    loud: str = (
        own.conduct_sync(branch="main", operation=shouting, text="hi").invoke_sync().rstrip("!")
    )
    ipu = IPU()
    ipu.specify("len", input={"type": "object"}, output={"type": "integer"})
    count: int = await ipu.execute(
        await own.conduct(branch="main", operation=measuring, ipu=ipu, text=loud)
    )
    print(count.bit_length())

    tool = Tool(distance)
    far: float = await tool.invoke("Oslo", end="Porto")
    answer = await session.request("sage", messages="Hello", max_tokens=5)
    print(far.is_integer(), answer.text, answer.usage.output_tokens)

    chat = sennit.conversation(model="local")
    await chat.execute_special_turn(greeting("Be kind.", timeout=3.0))
    await chat.execute_special_turn(summarize(tools=[tool, distance, "search"], context=["a"]))

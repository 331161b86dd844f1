"""A tool, an operation, a content, a policy, an observer and a model of one's own."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from sennit import (
    ConversationObserver,
    Message,
    MessageContent,
    MessageRole,
    OperationRegistry,
    Return,
    ServiceRegistry,
    Session,
    Tool,
)
from sennit.operations import OperationContext
from sennit.services import Delta, ModelRequest, Reply, ToolContext
from sennit.turns import Policy, Refusal


@dataclass(frozen=True, slots=True)
class WeatherContent(MessageContent):
    role: ClassVar[MessageRole] = MessageRole.USER

    place: str
    degrees: float = 0.0

    @property
    def rendered(self) -> str:
        return f"{self.place}: {self.degrees} °C"


class City(BaseModel):
    name: str


def city(name: str) -> City:
    """A city by name."""
    return City(name=name)


async def later(context: ToolContext, seconds: float) -> str:
    """Wait a while."""
    return f"{context.call_id} {seconds}"


class NoSecrets(Policy):
    def on_request(self, request: ModelRequest) -> Refusal | None:
        return Refusal("secret") if "secret" in str(request.messages) else None


class Printer(ConversationObserver):
    def on_final(self, result: Return) -> None:
        print(result.text)


class Echo:
    """A model that repeats the question."""

    name = "echo"
    window: int | None = None
    streams = True
    supports_output_schema = False

    async def aask(self, request: ModelRequest) -> Reply:
        raise NotImplementedError(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        reply = await self.aask(request)

        async def deltas() -> AsyncIterator[Delta]:
            for delta in reply.deltas():
                yield delta

        yield deltas()


async def shout(where: OperationContext, /, *, text: str) -> str:
    return f"{where.branch.name}: {text.upper()}"


async def main() -> None:
    services = ServiceRegistry()
    registered = services.register(city)
    found: City = await registered.invoke("Oslo")
    waited: str = await Tool(later, timeout=3).invoke(ToolContext(), seconds=2)
    echo: Echo = services.register(Echo())
    print(found.name, waited, echo.name, services.register_all([later, echo]))
    operations = OperationRegistry()
    operations.register("shout", shout)
    session = Session(services=services, operations=operations)
    message = session.add_message(Message(WeatherContent("Porto", degrees=21)))
    if isinstance(message.content, WeatherContent):
        print(message.content.place, message.content.degrees)
    conversation = session.conversation(
        model=echo, tools=[city, registered, "later"], policies=[NoSecrets()], observers=[Printer()]
    )
    print((await conversation.arun()).text)

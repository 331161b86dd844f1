"""Pydantic AI: an Agent with its FunctionModel, nothing stored."""
# pyright: reportMissingImports=false

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.peers.turning import ANSWER, ARGUMENTS, FOUND, QUESTION, TOOL, Turner, serve


async def instant(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Asks for the tool, then answers, and so on."""
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(ANSWER)])
    return ModelResponse(parts=[ToolCallPart(TOOL, ARGUMENTS)])


class PydanticAI(Turner):
    def about(self) -> dict[str, Any]:
        return {"versions": {"pydantic-ai-slim": version("pydantic-ai-slim")}}

    async def prepare(self) -> None:
        async def look_up(knot: str) -> str:
            """Look up a knot."""
            assert knot
            self.looked += 1
            return FOUND

        self._agent = Agent(FunctionModel(instant), tools=[look_up])

    async def turn(self) -> str:
        return (await self._agent.run(QUESTION)).output


if __name__ == "__main__":
    serve(PydanticAI)

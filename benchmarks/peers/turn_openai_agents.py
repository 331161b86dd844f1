"""The OpenAI Agents SDK: an Agent with a model of our own, run by its Runner, nothing stored."""
# pyright: reportMissingImports=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.peers.turning import ANSWER, ARGUMENTS, FOUND, QUESTION, TOOL, Turner, serve


class Instant(Model):
    """Asks for the tool, then answers, and so on."""

    async def get_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, **given: Any
    ) -> ModelResponse:
        answered = isinstance(given["input"], list) and "output" in given["input"][-1]
        said = _text() if answered else _call()
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, **given: Any
    ) -> Any:
        raise NotImplementedError


def _text() -> ResponseOutputMessage:
    text = ResponseOutputText(annotations=[], text=ANSWER, type="output_text")
    return ResponseOutputMessage(
        id=uuid4().hex, content=[text], role="assistant", status="completed", type="message"
    )


def _call() -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        call_id=uuid4().hex, name=TOOL, arguments=json.dumps(ARGUMENTS), type="function_call"
    )


class Agents(Turner):
    def about(self) -> dict[str, Any]:
        return {"versions": {"openai-agents": version("openai-agents")}}

    async def prepare(self) -> None:
        set_tracing_disabled(True)

        @function_tool
        async def look_up(knot: str) -> str:
            """Look up a knot."""
            assert knot
            self.looked += 1
            return FOUND

        self._agent = Agent(name="bench", model=Instant(), tools=[look_up])

    async def turn(self) -> str:
        return (await Runner.run(self._agent, QUESTION)).final_output


if __name__ == "__main__":
    serve(Agents)

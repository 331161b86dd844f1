"""LangGraph: its prebuilt agent on a chat model of our own, without a checkpointer."""
# pyright: reportMissingImports=false

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.prebuilt import create_react_agent

from benchmarks.peers.turning import ANSWER, ARGUMENTS, FOUND, QUESTION, TOOL, Turner, serve


class Instant(BaseChatModel):
    """Asks for the tool, then answers, and so on."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage(ANSWER)
        else:
            call = {"name": TOOL, "args": ARGUMENTS, "id": uuid4().hex}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


class LangGraph(Turner):
    def about(self) -> dict[str, Any]:
        names = ("langgraph", "langgraph-prebuilt", "langchain-core")
        return {"versions": {name: version(name) for name in names}}

    async def prepare(self) -> None:
        async def look_up(knot: str) -> str:
            """Look up a knot."""
            assert knot
            self.looked += 1
            return FOUND

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has moved to a package that brings much more
            self._agent = create_react_agent(Instant(), [look_up])

    async def turn(self) -> str:
        state = await self._agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
        return state["messages"][-1].content


if __name__ == "__main__":
    serve(LangGraph)

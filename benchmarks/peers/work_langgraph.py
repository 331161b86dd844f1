"""LangGraph's SQLite checkpointers, below a graph on `plain` MessagesState or a `delta` channel."""
# pyright: reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer

from benchmarks.peers.worker import MIDDLE, SIZE, Clock, Worker, gather, serve, text


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class LangGraph(Worker):
    _long: str | None = None
    _forked: tuple[Any, Any] | None = None

    def about(self) -> dict[str, Any]:
        names = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite")
        with SqliteSaver.from_conn_string(str(self.new())) as saver:
            saver.setup()
            rows = [_pragma(saver.conn, name) for name in ("journal_mode", "synchronous")]
        return {
            "versions": {name: version(name) for name in names},
            "pragmas": f"{rows[0]}, synchronous={rows[1]}",
        }

    def append(self, count: int) -> dict[str, Any]:
        with SqliteSaver.from_conn_string(str(self.new())) as saver:
            graph = self._graph(saver)
            _add(graph, _thread("chat"), 0, 1)
            with Clock() as clock:
                for number in range(1, count + 1):
                    _add(graph, _thread("chat"), number, number + 1)
            return clock.answer(_length(graph, _thread("chat")) - 1)

    def concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        return self.runner.run(self._concurrent(sessions, tasks, count))

    async def _concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        async with AsyncSqliteSaver.from_conn_string(str(self.new())) as saver:
            graph = self._graph(saver)
            threads = [_thread(f"chat{number}") for number in range(sessions)]

            async def say(number: int, words: str) -> None:
                said = {"messages": [HumanMessage(words)]}
                await graph.aupdate_state(threads[number], said, as_node="say")

            clock = await gather(say, sessions, tasks, count)
            states = [await graph.aget_state(thread) for thread in threads]
            landed = sum(len(state.values["messages"]) for state in states)
            return clock.answer(landed)

    def load(self) -> dict[str, Any]:
        if self._long is None:
            self._long = str(self.new())
            with SqliteSaver.from_conn_string(self._long) as saver:
                self._fill(saver)
        with SqliteSaver.from_conn_string(self._long) as saver:
            graph = self._graph(saver)
            with Clock() as clock:
                state = graph.get_state(_thread("long"))
                read = [message.content for message in state.values["messages"]]
        return clock.answer(len(read))

    def fork(self, count: int) -> dict[str, Any]:
        if self._forked is None:
            connection = sqlite3.connect(self.new(), check_same_thread=False)
            self._forked = self._fill(SqliteSaver(connection))
        graph, middle = self._forked
        with Clock() as clock:
            forks = [_add(graph, middle, 0, 0) for _ in range(count)]
        return clock.answer(_length(graph, forks[-1]))

    def _fill(self, saver: Any) -> tuple[Any, Any]:
        """SIZE messages in two checkpoints; the graph, and where the first of them is."""
        graph = self._graph(saver)
        middle = _add(graph, _thread("long"), 0, MIDDLE)
        _add(graph, _thread("long"), MIDDLE, SIZE)
        return graph, middle

    def _graph(self, saver: Any) -> Any:
        builder = StateGraph(DeltaState if self.variant == "delta" else MessagesState)
        builder.add_node("say", lambda _: {})
        builder.add_edge(START, "say")
        return builder.compile(checkpointer=saver)


def _thread(key: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": key}}


def _add(graph: Any, thread: Any, first: int, last: int) -> Any:
    kinds = (HumanMessage, AIMessage)
    said = [kinds[number % 2](text(number)) for number in range(first, last)]
    return graph.update_state(thread, {"messages": said}, as_node="say")


def _length(graph: Any, thread: Any) -> int:
    return len(graph.get_state(thread).values["messages"])


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


if __name__ == "__main__":
    serve(LangGraph)

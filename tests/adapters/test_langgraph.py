"""A LangGraph checkpointer: what the framework asks for, and what it costs."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import sennit
from sennit import Client, InstructionContent, Message, ValidationError
from sennit.adapters.langgraph import SennitSaver
from sennit.server.schemas import message_shape
from sennit.stores.base import Store
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.sqlite.store import SQLiteStore

THREAD: Any = {"configurable": {"thread_id": "t"}}


pytest_plugins = ("tests.postgres",)


def conformance(store: Callable[[], Store]) -> dict[str, Any]:
    """What the framework's own suite says of a checkpointer on a store, by capability."""

    @checkpointer_test(name="SennitSaver")
    async def saver() -> AsyncIterator[SennitSaver]:
        with Client(store()) as client:
            yield SennitSaver(client)

    return dict(asyncio.run(validate(saver)).results)


def check(results: dict[str, Any]) -> None:
    assert len(results) == 8
    assert {name: one.failures for name, one in results.items() if not one.passed} == {}


def test_the_conformance_suite_passes_in_full_on_a_file(tmp_path: Path) -> None:
    check(conformance(lambda: SQLiteStore(tmp_path / "conformance.db", durability="normal")))


def test_the_conformance_suite_passes_in_full_on_postgresql(emptied: str) -> None:
    check(conformance(lambda: PostgresStore(emptied)))


def replying(saver: SennitSaver) -> Any:
    """A graph that answers each message with how many there are."""

    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"That makes {len(state['messages'])}.")]}

    builder = StateGraph(MessagesState).add_node(reply).add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def say(graph: Any, text: str, config: Any = THREAD) -> list[str]:
    state = graph.invoke({"messages": [HumanMessage(text)]}, config)
    return [message.content for message in state["messages"]]


def test_a_thread_goes_on_in_another_process(client: Client, elsewhere: Client) -> None:
    graph, other = replying(SennitSaver(client)), replying(SennitSaver(elsewhere))
    say(graph, "a")
    assert say(other, "b") == ["a", "That makes 1.", "b", "That makes 3."]
    assert say(graph, "c")[-1] == "That makes 5."
    assert [m.content for m in other.get_state(THREAD).values["messages"]] == [
        "a", "That makes 1.", "b", "That makes 3.", "c", "That makes 5.",
    ]  # fmt: skip


def test_a_fork_from_an_earlier_checkpoint_leaves_the_other_line_as_it_was(client: Client) -> None:
    graph = replying(SennitSaver(client))
    say(graph, "a")
    first = graph.get_state(THREAD).config
    say(graph, "b")
    second = graph.get_state(THREAD).config
    assert say(graph, "x", first) == ["a", "That makes 1.", "x", "That makes 3."]
    kept = graph.get_state(second).values["messages"]
    assert [m.content for m in kept] == ["a", "That makes 1.", "b", "That makes 3."]


def written(client: Client) -> list[int]:
    """The size of each record of the thread, in order."""
    session = client.session("langgraph:t", create=False)
    return [len(message.to_json()) for message in session.get_branch("langgraph").messages]


def test_a_step_writes_as_much_at_the_end_of_a_long_thread_as_at_its_start(client: Client) -> None:
    graph = replying(SennitSaver(client))
    for number in range(60):
        say(graph, f"message {number:03} " + "x" * 500)
    sizes = written(client)
    steps = len(sizes) // 60
    early, late = sum(sizes[5 * steps : 10 * steps]), sum(sizes[-5 * steps :])
    assert late < 1.1 * early


def test_messages_that_are_taken_out_of_a_list_are_gone_from_the_next_checkpoint(
    client: Client,
) -> None:
    saver = SennitSaver(client)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    lists = [["a", "b", "c"], ["a", "c"], [], ["a", "b", "c", "d"], ["x", "b"]]
    ids: list[Any] = []
    for version, values in enumerate(lists, 1):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"list": values}
        checkpoint["channel_versions"] = {"list": str(version)}
        config = saver.put(config, checkpoint, {}, {"list": str(version)})
        ids.append(config)
    found = [saver.get_tuple(one) for one in reversed(ids)]
    assert [one.checkpoint["channel_values"]["list"] for one in found if one] == lists[::-1]


words = st.lists(st.sampled_from(["a", "b", "c", "", {"x": 1}, ["n"]]), max_size=5)
values = words | st.lists(st.integers(0, 3), max_size=3) | st.none()
steps = st.lists(st.tuples(st.integers(0, 9), values, st.sampled_from("xy")), max_size=12)


@given(steps, st.sets(st.sampled_from("xy")), st.booleans())
def test_what_is_kept_comes_back_whichever_checkpoints_are_erased(
    steps: list[tuple[int, Any, str]], erased: set[str], pruned: bool
) -> None:
    with sennit.open(":memory:") as client:
        saver = SennitSaver(client)
        kept: list[tuple[Any, Any, str]] = []
        for parent, value, run in steps:
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            before = None
            if kept and parent:
                config, _, _ = kept[parent % len(kept)]
                found = saver.get_tuple(config)
                assert found is not None
                before = found.checkpoint["channel_versions"]["it"]
            version = saver.get_next_version(before, None)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"it": value}
            checkpoint["channel_versions"] = {"it": version}
            put = saver.put(config, checkpoint, {"run_id": run}, {"it": version})
            kept.append((put, value, run))
        saver.delete_for_runs(sorted(erased))
        left = [one for one in kept if one[2] not in erased]
        if pruned and left:
            saver.prune(["t"])
            left = [max(left, key=lambda one: one[0]["configurable"]["checkpoint_id"])]
        anew = SennitSaver(client)
        for config, value, _ in left:
            found = anew.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"it": value}
        assert len(list(anew.list(None))) == len(left)


def put_all(savers: Sequence[Any], parent: str | None, checkpoint: Any, names: set[str]) -> None:
    """Put a checkpoint; its values only of the channels named."""
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    if parent is not None:
        config["configurable"]["checkpoint_id"] = parent
    versions = checkpoint["channel_versions"]
    new = {name: versions[name] for name in names if name in versions}
    for saver in savers:
        saver.put(config, checkpoint, {"run_id": checkpoint["id"][-1]}, new)


def tuples(saver: Any) -> list[Any]:
    return [
        (one.config, one.checkpoint, one.parent_config)
        for one in sorted(saver.list(THREAD), key=lambda one: one.checkpoint["id"])
    ]


put_again = st.lists(
    st.tuples(
        st.integers(0, 4),  # the checkpoint's id, which may be one that is there
        st.none() | st.integers(0, 4),  # its parent
        st.dictionaries(st.sampled_from("ab"), st.tuples(st.integers(1, 3), words)),
        st.sets(st.sampled_from("ab")),
    ),
    max_size=10,
)


@given(put_again, st.sets(st.sampled_from("01234")), st.booleans())
def test_versions_that_are_put_again_are_what_they_are_in_memory(
    steps: list[Any], erased: set[str], moved: bool
) -> None:
    with sennit.open(":memory:") as client:
        saver, oracle = SennitSaver(client), InMemorySaver()
        for number, parent, channels, names in steps:
            checkpoint: Any = empty_checkpoint()
            checkpoint["id"] = f"id-{number}"
            checkpoint["channel_values"] = {name: value for name, (_, value) in channels.items()}
            checkpoint["channel_versions"] = {name: str(v) for name, (v, _) in channels.items()}
            put_all([saver, oracle], None if parent is None else f"id-{parent}", checkpoint, names)
            assert tuples(saver) == tuples(oracle)
        assert tuples(SennitSaver(client)) == tuples(oracle)
        if moved:
            saver.copy_thread("t", "u")
            saver.delete_thread("t")
            saver.copy_thread("u", "t")
        saver.delete_for_runs(sorted(erased))
        left = [one for one in tuples(oracle) if one[1]["id"][-1] not in erased]
        assert tuples(saver) == left
        assert tuples(SennitSaver(client)) == left


def test_a_thread_that_is_moved_with_all_its_versions_can_be_read_by_another_saver(
    client: Client, elsewhere: Client
) -> None:
    saver = SennitSaver(client)
    graph = replying(saver)
    for text in "abc":
        say(graph, text)
    there: Any = {"configurable": {"thread_id": "moved", "checkpoint_ns": ""}}
    for one in reversed(list(saver.list(THREAD))):
        versions = one.checkpoint["channel_versions"]
        there = saver.put(there, one.checkpoint, one.metadata, versions)
    before = graph.get_state(THREAD).values["messages"]
    other = replying(SennitSaver(elsewhere))
    assert other.get_state({"configurable": {"thread_id": "moved"}}).values["messages"] == before


def test_a_list_that_changes_under_its_version_is_the_new_one(
    client: Client, elsewhere: Client
) -> None:
    saver = SennitSaver(client)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for items in (["a", "b"], ["a", "c"]):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"list": items}
        checkpoint["channel_versions"] = {"list": "1"}
        config = saver.put(config, checkpoint, {}, {"list": "1"})
    for reader in (saver, SennitSaver(elsewhere)):
        found = reader.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"list": ["a", "c"]}


def test_a_checkpoint_that_was_put_twice_is_erased_whole(client: Client, elsewhere: Client) -> None:
    saver = SennitSaver(client)
    checkpoint = empty_checkpoint()
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for _ in range(2):
        put = saver.put(config, checkpoint, {"run_id": "x"}, {})
        saver.put_writes(put, [("secret", "word")], "task")
    saver.delete_for_runs(["x"])
    assert list(SennitSaver(elsewhere).list(THREAD)) == []
    assert len(client.session("langgraph:t").get_branch("langgraph")) == 0


def test_what_pruning_leaves_is_whole(client: Client, elsewhere: Client) -> None:
    saver = SennitSaver(client)
    graph = replying(saver)
    for text in "abcde":
        say(graph, text)
    before = graph.get_state(THREAD).values["messages"]
    saver.prune(["t"])
    assert len(list(saver.list(THREAD))) == 1
    other = replying(SennitSaver(elsewhere))
    assert other.get_state(THREAD).values["messages"] == before
    assert say(other, "f")[-2:] == ["f", "That makes 11."]
    saver.prune(["t"])
    assert len(graph.get_state(THREAD).values["messages"]) == 12


def test_erasing_a_run_keeps_what_later_checkpoints_are_made_of(client: Client) -> None:
    saver = SennitSaver(client)
    graph = replying(saver)
    run = "11111111-1111-1111-1111-111111111111"
    say(graph, "a", {**THREAD, "metadata": {"run_id": run}})
    say(graph, "b", {**THREAD, "metadata": {"run_id": run.replace("1", "2")}})
    before = len(list(saver.list(THREAD)))
    saver.delete_for_runs([run])
    left = list(saver.list(THREAD))
    assert 0 < len(left) < before
    assert [m.content for m in graph.get_state(THREAD).values["messages"]] == [
        "a", "That makes 1.", "b", "That makes 3.",
    ]  # fmt: skip


def test_an_unknown_way_to_prune_is_refused(client: Client) -> None:
    with pytest.raises(ValidationError, match="'keep_latest' or 'delete', got 'some'"):
        SennitSaver(client).prune(["t"], strategy="some")


def test_an_interrupted_graph_goes_on_with_another_saver(client: Client, elsewhere: Client) -> None:
    class State(TypedDict):
        said: Annotated[list[str], operator.add]

    def ask(state: State) -> dict[str, Any]:
        return {"said": [f"heard {interrupt('Which knot?')}"]}

    builder = StateGraph(State).add_node(ask).add_edge(START, "ask")
    first = builder.compile(checkpointer=SennitSaver(client))
    paused = first.invoke({"said": ["hello"]}, THREAD)
    assert paused["__interrupt__"][0].value == "Which knot?"
    second = builder.compile(checkpointer=SennitSaver(elsewhere))
    assert second.invoke(Command(resume="bowline"), THREAD) == {"said": ["hello", "heard bowline"]}


def test_async_callers_get_the_same(client: Client) -> None:
    async def talk() -> tuple[list[Any], list[Any]]:
        saver = SennitSaver(client)
        graph = replying(saver)
        await graph.ainvoke({"messages": [HumanMessage("a")]}, THREAD)
        await graph.ainvoke({"messages": [HumanMessage("b")]}, THREAD)
        return [one async for one in saver.alist(THREAD, limit=3)], list(saver.list(THREAD))

    some, every = asyncio.run(talk())
    assert some == every[:3]
    assert [one.metadata.get("step") for one in every] == [4, 3, 2, 1, 0, -1]


def test_many_threads_at_once_lose_nothing(client: Client) -> None:
    saver = SennitSaver(client)
    graph = replying(saver)

    def talk(number: int) -> int:
        config = {"configurable": {"thread_id": f"thread {number % 4}-{number}"}}
        for text in "abc":
            say(graph, text, config)
        return len(say(graph, "d", config))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(talk, range(8))) == [8] * 8
    assert len({one.config["configurable"]["thread_id"] for one in saver.list(None)}) == 8  # type: ignore[typeddict-item]


def test_threads_belong_to_the_owner_of_the_client(client: Client, tmp_path: Path) -> None:
    say(replying(SennitSaver(client)), "secret")
    with sennit.open(tmp_path / "adapters.db", user="mallory") as stranger:
        saver = SennitSaver(stranger)
        assert saver.get_tuple(THREAD) is None
        assert list(saver.list(None)) == []
        saver.delete_thread("t")
    assert SennitSaver(client).get_tuple(THREAD) is not None


@dataclass
class Point:
    """Something of the user's own in a state."""

    x: int


def put_point(saver: SennitSaver) -> Any:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"point": Point(1)}
    checkpoint["channel_versions"] = {"point": "1"}
    return saver.put(THREAD, checkpoint, {}, {"point": "1"})


def test_only_types_that_were_named_are_rebuilt(client: Client) -> None:
    naming = SennitSaver(client, serde=JsonPlusSerializer(allowed_msgpack_modules=[Point]))
    config = put_point(naming)
    found = naming.get_tuple(config)
    plain = SennitSaver(client).get_tuple(config)
    assert found is not None
    assert plain is not None
    assert found.checkpoint["channel_values"]["point"] == Point(1)
    assert plain.checkpoint["channel_values"]["point"] == {"x": 1}


def test_a_pickle_is_neither_written_nor_read(client: Client) -> None:
    careless = JsonPlusSerializer(pickle_fallback=True)
    saver = SennitSaver(client, serde=careless)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"odd": complex(1, 2)}
    checkpoint["channel_versions"] = {"odd": "1"}
    with pytest.raises(ValidationError, match="reading a pickle runs code"):
        saver.put(THREAD, checkpoint, {}, {"odd": "1"})
    assert saver.get_tuple(THREAD) is None

    config = put_point(saver)
    record: Any = client.session("langgraph:t").get_branch("langgraph").messages[-1].to_dict()
    forged = record["metadata"]["langgraph"]["put"]
    forged["values"][0][2] = {"whole": ["pickle", "gASVAAAA"]}
    forged["id"] = "forged"
    message = Message(InstructionContent(), metadata={"langgraph": {"put": forged}})
    client.session("langgraph:t").add_message(message, branches="langgraph")
    config["configurable"]["checkpoint_id"] = "forged"
    with pytest.raises(ValidationError, match="reading a pickle runs code"):
        saver.get_tuple(config)


def joined(held: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*held, *(one for write in writes for one in write)]


class Deltas(TypedDict):
    said: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=4)]


def test_pruning_keeps_what_delta_channels_are_rebuilt_from(client: Client) -> None:
    def reply(state: Deltas) -> dict[str, Any]:
        return {"said": [f"reply {len(state['said'])}"]}

    saver = SennitSaver(client)
    builder = StateGraph(Deltas).add_node(reply).add_edge(START, "reply")
    graph = builder.compile(checkpointer=saver)
    for text in "abcde":
        graph.invoke({"said": [text]}, THREAD)
    whole = graph.get_state(THREAD).values
    before = len(list(saver.list(THREAD)))
    saver.prune(["t"])
    assert len(list(saver.list(THREAD))) < before
    assert graph.get_state(THREAD).values == whole
    assert len(whole["said"]) == 10


def test_a_config_without_a_thread_says_what_is_missing(client: Client) -> None:
    with pytest.raises(ValidationError, match="thread_id"):
        SennitSaver(client).get_tuple({"configurable": {}})


def test_a_message_that_someone_puts_among_the_checkpoints_is_passed_over(client: Client) -> None:
    saver = SennitSaver(client)
    say(replying(saver), "a")
    client.session("langgraph:t").add_message("user", "Hello?", branches="langgraph")
    said = say(replying(SennitSaver(client)), "b")
    saver.copy_thread("t", "copy")
    assert say(replying(saver), "c", {"configurable": {"thread_id": "copy"}})[: len(said)] == said


def test_checkpoints_are_not_found_as_if_someone_had_said_them(client: Client) -> None:
    say(replying(SennitSaver(client)), "A bowline does not slip.")
    assert client.find("bowline") == []
    assert client.search_messages("bowline") == []


def test_checkpoints_are_told_as_what_they_are_where_people_look(client: Client) -> None:
    say(replying(SennitSaver(client)), "Hello")
    (info,) = client.sessions()
    shapes = [
        message_shape(one) for one in client.session(info.id).get_branch("langgraph").messages
    ]
    assert {one.kind for one in shapes} == {"record"}
    assert all(one.text.startswith("LangGraph ") and one.metadata == {} for one in shapes)
    assert "checkpoint" in shapes[0].text


def sources(tmp_path: Path) -> list[Any]:
    file = sqlite3.connect(tmp_path / "theirs.db", check_same_thread=False)
    return [InMemorySaver(), SqliteSaver(file)]


@pytest.mark.parametrize("kind", [0, 1], ids=["memory", "sqlite"])
def test_threads_move_from_the_savers_of_langgraph(
    client: Client, elsewhere: Client, tmp_path: Path, kind: int
) -> None:
    source = sources(tmp_path)[kind]
    graph = replying(source)
    for text in "abc":
        say(graph, text)
    asking = interrupted(source)
    waiting: Any = {"configurable": {"thread_id": "waits"}}
    asking.invoke({"answer": ""}, waiting)
    earlier = list(graph.get_state_history(THREAD))[4]
    say(graph, "another way", earlier.config)
    saver = SennitSaver(client)
    assert sorted(saver.import_threads(source)) == ["t", "waits"]
    moved = replying(SennitSaver(elsewhere))

    def states(graph: Any, thread: Any) -> list[Any]:
        return [
            (one.values, one.next, one.config, one.parent_config, one.interrupts)
            for one in graph.get_state_history(thread)
        ]

    assert states(moved, THREAD) == states(graph, THREAD)
    assert len(states(moved, THREAD)) > 8
    assert states(interrupted(saver), waiting) == states(asking, waiting)
    done = interrupted(saver).invoke(Command(resume="yes"), waiting)
    assert done["answer"] == "yes"
    say(graph, "d")
    assert saver.import_threads(source, ["t"]) == ["t"]
    assert asyncio.run(saver.aimport_threads(source, ["none"])) == []
    assert states(replying(saver), THREAD) == states(graph, THREAD)
    assert interrupted(saver).get_state(waiting).values == {"answer": "yes"}


def interrupted(saver: Any) -> Any:
    class State(TypedDict):
        answer: str

    def ask(state: State) -> State:
        del state
        return {"answer": interrupt("Sure?")}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


def older_log(client: Client, versions: Sequence[tuple[str, str | None, int, list[str]]]) -> None:
    """Write a log in which lists name their base by version."""
    saver = SennitSaver(client)
    thread = saver._get_or_create_thread("t")  # pyright: ignore[reportPrivateUsage]
    pack = saver._pack  # pyright: ignore[reportPrivateUsage]
    for number, (version, base, keep, items) in enumerate(versions):
        data = {"items": [pack(item) for item in items], "base": base, "keep": keep}
        put = {
            "ns": "",
            "id": f"id-{number}",
            "parent": f"id-{number - 1}" if number else None,
            "versions": {"list": version},
            "run": None,
            "body": pack({"id": f"id-{number}", "v": 4, "ts": "", "versions_seen": {}}),
            "metadata": pack({}),
            "deltas": [],
            "values": [["list", version, data]],
        }
        thread.write({"put": put})


def test_a_list_that_was_stored_as_its_own_base_is_read_whole(client: Client) -> None:
    lists = [("1", None, 0, ["a"]), ("2", "1", 1, ["b"]), ("2", "2", 2, []), ("3", "2", 2, ["c"])]
    older_log(client, lists)
    read = SennitSaver(client)
    found = [one.checkpoint["channel_values"]["list"] for one in read.list(THREAD)]
    assert found == [["a", "b", "c"], ["a", "b"], ["a", "b"], ["a"]]
    read.prune(["t"])
    (left,) = SennitSaver(client).list(THREAD)
    assert left.checkpoint["channel_values"] == {"list": ["a", "b", "c"]}
    read.prune(["t"])
    assert len(client.session("langgraph:t").get_branch("langgraph")) == 2


def test_damaged_lists_that_are_a_cycle_end(client: Client) -> None:
    saver = SennitSaver(client)
    older_log(client, [("1", None, 0, ["a"])])
    thread = saver._get_or_create_thread("t")  # pyright: ignore[reportPrivateUsage]
    data = {"id": "x", "base": "x", "keep": 0, "items": []}
    thread.write({"values": [["", "list", "1", True, data]]})
    (found,) = SennitSaver(client).list(THREAD)
    assert found.checkpoint["channel_values"] == {}

"""Pydantic AI's message history and conversation store."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent, DeferredToolRequests, ImageUrl, Tool
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    DocumentUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

import sennit
from sennit import (
    ActionResponseContent,
    AssistantResponseContent,
    AudioPart,
    Client,
    FilePart,
    ImagePart,
    InstructionContent,
    ToolPart,
    Unset,
)
from sennit.adapters.pydantic_ai import SennitConversationStore, SennitMessageHistory
from sennit.messages.media import part_record
from sennit.stores.postgres.store import PostgresStore

pytest_plugins = ("tests.postgres",)


def weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {city: "rain"}


def agent() -> Agent[None, str]:
    return Agent(TestModel(custom_output_text="It rains."), tools=[weather], instructions="Brief.")


def plain_agent() -> Agent[None, str]:
    """One request and one response per turn."""
    return Agent(TestModel(custom_output_text="Yes.", call_tools=[]))


def ran(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_history_comes_back_exactly_also_in_another_process(
    client: Client, elsewhere: Client
) -> None:
    prompt = ["Weather?", ImageUrl("https://example.com/a.png")]
    first = ran(agent().run(prompt))
    SennitMessageHistory(client, "chat").add(first.new_messages())
    history = SennitMessageHistory(elsewhere, "chat")
    assert history.messages() == first.all_messages()
    second = ran(agent().run("And now?", message_history=history.messages()))
    history.add(second.new_messages())
    assert SennitMessageHistory(client, "chat").messages() == second.all_messages()


def test_a_history_reads_as_messages_and_can_be_forked(client: Client) -> None:
    history = SennitMessageHistory(client, "chat")
    history.add(ran(agent().run("Weather?")).new_messages())
    kinds = [m.content.kind for m in client.session("chat").default_branch.messages]
    assert kinds == ["instruction", "action_request", "action_response", "assistant_response"]
    other = history.fork("other")
    assert other.messages() == history.messages()
    assert other.branch == "other"


def test_all_a_model_thinks_stands_where_it_thought_it(client: Client) -> None:
    thoughts = [ThinkingPart("One."), ThinkingPart("Two."), ToolCallPart("look", {}, "c1")]
    response = ModelResponse([*thoughts, TextPart("Seen.")])
    SennitMessageHistory(client, "chat").add([response])
    told = [
        (one.content.kind, getattr(one.content, "reasoning", None))
        for one in client.session("chat").default_branch.messages
    ]
    assert told == [
        ("assistant_response", "One."),
        ("assistant_response", "Two."),
        ("action_request", None),
        ("assistant_response", Unset),
    ]
    assert SennitMessageHistory(client, "chat").messages() == [response]


def test_what_was_said_elsewhere_comes_as_model_messages(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Name a knot.")
    session.add_message("assistant", "The bowline.")
    request, response = SennitMessageHistory(client, "chat").messages()
    assert isinstance(request, ModelRequest)
    assert isinstance(request.parts[0], UserPromptPart)
    assert request.parts[0].content == "Name a knot."
    assert isinstance(response, ModelResponse)
    assert response.parts == [TextPart("The bowline.")]


async def talk(store: ConversationStore, id: str, text: str) -> Conversation:
    """One turn, as its documentation shows it."""
    conversation = await store.load(id) or Conversation(conversation_id=id)
    result = await plain_agent().run(text, conversation=conversation)
    await store.save(result)
    return result.conversation


def test_a_conversation_goes_on_in_another_process(client: Client, elsewhere: Client) -> None:
    store, other = SennitConversationStore(client), SennitConversationStore(elsewhere)
    ran(talk(store, "knots", "a"))
    ran(talk(other, "knots", "b"))
    last = ran(talk(store, "knots", "c"))
    loaded = ran(other.load("knots"))
    assert loaded.messages == last.messages
    assert loaded.usage == last.usage
    assert len([m for m in loaded.messages if isinstance(m, ModelRequest)]) == 3


def test_a_save_over_another_save_is_refused(client: Client, elsewhere: Client) -> None:
    store, other = SennitConversationStore(client), SennitConversationStore(elsewhere)
    ran(talk(store, "knots", "a"))
    mine, theirs = ran(store.load("knots")), ran(other.load("knots"))
    ran(store.save(ran(plain_agent().run("b", conversation=mine))))
    with pytest.raises(ConversationConflict):
        ran(other.save(ran(plain_agent().run("c", conversation=theirs))))
    with pytest.raises(ConversationConflict):
        ran(other.save(Conversation(conversation_id="knots")))
    assert len(ran(other.load_entries("knots"))) == 4


def test_of_many_saves_at_once_one_is_kept(client: Client, elsewhere: Client) -> None:
    one_is_kept([SennitConversationStore(client), SennitConversationStore(elsewhere)])


def test_of_many_saves_at_once_one_is_kept_on_postgresql(emptied: str) -> None:
    with Client(PostgresStore(emptied)) as client, Client(PostgresStore(emptied)) as elsewhere:
        one_is_kept([SennitConversationStore(client), SennitConversationStore(elsewhere)])


def one_is_kept(stores: list[SennitConversationStore]) -> None:
    """Eight writers who all have seen the same revision."""

    async def race() -> list[Any]:
        await talk(stores[0], "knots", "a")
        loaded = [await stores[n % 2].load("knots") for n in range(8)]
        for number, one in enumerate(loaded):
            assert one is not None
            one.messages.append(ModelRequest.user_text_prompt(f"number {number}"))
        saves = [stores[n % 2].save(one) for n, one in enumerate(loaded) if one is not None]
        return await asyncio.gather(*saves, return_exceptions=True)

    outcomes = ran(race())
    assert sum(isinstance(one, list) for one in outcomes) == 1
    assert sum(isinstance(one, ConversationConflict) for one in outcomes) == 7
    assert len(ran(stores[1].load("knots")).messages) == 3


def test_forks_share_their_entries_and_go_on_apart(client: Client) -> None:
    store = SennitConversationStore(client)
    ran(talk(store, "knots", "a"))
    ran(talk(store, "knots", "b"))
    ran(store.fork("knots", at=2, new_conversation_id="other"))
    ran(talk(store, "other", "c"))
    ran(store.fork("other", new_conversation_id="third"))
    knots, other, third = (ran(store.load_entries(one)) for one in ("knots", "other", "third"))
    assert [one.id for one in knots[:2]] == [one.id for one in other[:2]]
    assert knots[2].id != other[2].id
    assert [one.id for one in third] == [one.id for one in other]
    session = client.session("pydantic-ai:knots", create=False)
    shared = session.diff("knots", "other")
    assert (shared.common, len(session.get_branch("third"))) == (2, 4)


def test_a_branch_that_a_crash_left_behind_is_mended_by_the_next_save(client: Client) -> None:
    store = SennitConversationStore(client)
    for text in "ab":
        ran(talk(store, "knots", text))
    session = client.session("pydantic-ai:knots")
    del session.get_branch("knots")[1:]
    ran(talk(store, "knots", "c"))
    assert len(session.get_branch("knots")) == 6
    session.remove_branch("knots")
    last = ran(talk(store, "knots", "d"))
    assert len(session.get_branch("knots")) == 8
    assert ran(store.load("knots")).messages == last.messages


def test_a_branch_leaves_a_history_that_one_can_go_back_to(client: Client) -> None:
    store = SennitConversationStore(client)
    first = ran(talk(store, "knots", "a"))
    second = ran(talk(store, "knots", "b"))
    tip = ran(store.load_entries("knots"))[-1].id
    back = ran(store.branch("knots", at=2, expected_revision=second.revision))
    assert back.messages == first.messages
    ran(talk(store, "knots", "c"))
    assert len(client.session("pydantic-ai:knots").get_branch("knots")) == 4
    record = ran(store.list_conversations())[0]
    assert record.branches == [tip]
    again = ran(store.branch("knots", from_entry=tip, expected_revision=record.revision))
    assert again.messages == second.messages
    branch = client.session("pydantic-ai:knots").get_branch("knots")
    assert [m.content.words for m in branch.messages if m.content.kind == "instruction"] == [
        "a",
        "b",
    ]


def test_an_erased_conversation_is_gone_and_its_forks_are_not(client: Client) -> None:
    store = SennitConversationStore(client)
    ran(talk(store, "knots", "shared secret"))
    ran(store.fork("knots", new_conversation_id="other"))
    stale = ran(talk(store, "knots", "own secret"))
    ran(store.delete("knots"))
    assert ran(store.load("knots")) is None
    assert len(ran(store.load("other")).messages) == 2
    assert client.search_messages("own") == []
    assert len(client.search_messages("shared")) == 1
    with pytest.raises(ConversationConflict):
        ran(store.save(stale))
    ran(talk(store, "knots", "anew"))
    assert len(ran(store.load("knots")).messages) == 2
    ran(store.delete("other"))
    ran(store.delete("knots"))
    assert ran(store.list_conversations()) == []
    assert client.sessions() == []


def test_a_fork_lasts_as_long_as_the_session_it_is_in(client: Client) -> None:
    store = SennitConversationStore(client)
    ran(talk(store, "knots", "a"))
    ran(store.save(ran(store.fork("knots", new_conversation_id="other"))))
    forked = client.session_info("pydantic-ai:other").updated_at
    ran(talk(store, "other", "b"))
    just_after = forked + timedelta(microseconds=1)
    assert client.expire(just_after) == 0
    assert len(ran(store.load("other")).messages) == 4
    assert client.expire(datetime.now(UTC) + timedelta(seconds=1)) == 2
    assert client.sessions() == []


def test_a_fork_can_begin_anew_after_its_session_was_deleted(client: Client) -> None:
    store = SennitConversationStore(client)
    ran(talk(store, "knots", "a"))
    ran(store.save(ran(store.fork("knots", new_conversation_id="other"))))
    client.delete_session("pydantic-ai:knots")
    assert ran(store.load("other")) is None
    ran(talk(store, "other", "b"))
    assert len(ran(store.load("other")).messages) == 2


def test_a_message_that_someone_puts_into_the_log_is_passed_over(client: Client) -> None:
    ran(talk(SennitConversationStore(client), "knots", "a"))
    session = client.session("pydantic-ai:knots")
    session.add_message("user", "Hello?", branches="pydantic-ai log")
    ran(talk(SennitConversationStore(client), "knots", "b"))
    assert _length(client, "knots") == 4
    assert len(session.branches) == 2


def test_scopes_keep_conversations_apart(client: Client, tmp_path: Path) -> None:
    store = SennitConversationStore(client)
    for number in range(5):
        conversation = Conversation(conversation_id=f"c{number}")
        conversation.messages.append(ModelRequest.user_text_prompt("Hello"))
        ran(store.save(conversation, scope="even" if number % 2 == 0 else "odd"))
    listed = ran(store.list_conversations(scope="even"))
    assert [one.conversation_id for one in listed] == ["c4", "c2", "c0"]
    assert [one.conversation_id for one in ran(store.list_conversations(limit=2))] == ["c4", "c3"]
    assert ran(store.load("c1", scope="even")) is None
    with sennit.open(tmp_path / "adapters.db", user="mallory") as stranger:
        assert ran(SennitConversationStore(stranger).load("c1")) is None


def test_a_paused_run_keeps_what_it_waits_for(client: Client, elsewhere: Client) -> None:
    asking = Tool(weather, requires_approval=True)
    careful = Agent(TestModel(), tools=[asking], output_type=[str, DeferredToolRequests])
    result = ran(careful.run("Weather?", conversation_id="knots"))
    ran(SennitConversationStore(client).save(result))
    loaded = ran(SennitConversationStore(elsewhere).load("knots"))
    assert loaded.deferred_tool_requests == result.output
    assert loaded == result.conversation


def test_a_window_of_a_conversation_is_enough_to_go_on(client: Client) -> None:
    store = SennitConversationStore(client)
    for text in "abc":
        ran(talk(store, "knots", text))
    heard: list[int] = []

    def reply(messages: list[ModelMessage], _info: Any) -> ModelResponse:
        heard.append(len(messages))
        return ModelResponse(parts=[TextPart("Yes.")])

    window = ran(store.load("knots", limit=4))
    ran(store.save(ran(Agent(FunctionModel(reply)).run("d", conversation=window))))
    assert heard == [5]
    assert len(ran(store.load("knots")).messages) == 8


def test_an_unknown_conversation_or_entry_is_none_or_said_to_be_missing(client: Client) -> None:
    store = SennitConversationStore(client)
    assert ran(store.load("nothing")) is None
    with pytest.raises(LookupError, match="Entry 'nothing' does not exist"):
        ran(store.read_entry("nothing"))
    with pytest.raises(UserError, match="not in the store"):
        ran(store.fork("nothing"))


def test_a_save_costs_the_same_at_any_length(client: Client) -> None:
    store = SennitConversationStore(client)
    sizes: list[int] = []
    for _ in range(40):
        ran(talk(store, "knots", "x" * 200))
        session = client.session("pydantic-ai:knots")
        log = session.get_branch("pydantic-ai log")
        sizes.append(sum(len(m.to_json()) for m in log.messages) - sum(sizes))
    assert max(sizes[5:]) < 1.1 * min(sizes[5:])


NAMES = st.sampled_from(["a", "b", "c"])
ACTS = st.lists(
    st.tuples(st.sampled_from(["say", "fork", "branch", "rewrite", "delete"]), NAMES, NAMES)
    | st.tuples(st.just("branch"), NAMES, st.integers(0, 4)),
    max_size=14,
)


async def act(store: ConversationStore, what: str, name: str, more: Any, said: ModelMessage) -> Any:
    """Do something to a store; gives what came of it, ids left out."""
    try:
        loaded = await store.load(name)
        conversation = loaded or Conversation(conversation_id=name)
        at = more if isinstance(more, int) else len(conversation.messages) // 2
        match what:
            case "say":
                conversation.messages.append(said)
                return len(await store.save(conversation))
            case "rewrite":
                conversation.messages[at:] = [said]
                return len(await store.save(conversation))
            case "fork":
                return (await store.fork(name, at=at, new_conversation_id=str(more))).messages
            case "branch":
                revision = conversation.revision or "none"
                return (await store.branch(name, at=at, expected_revision=revision)).messages
            case _:
                return await store.delete(name)
    except UserError as error:
        return type(error)


async def state(store: ConversationStore) -> dict[str, Any]:
    """All that a store has, ids left out."""
    listed = await store.list_conversations()
    return {
        one.conversation_id: (
            await store.load(one.conversation_id),
            one.forked_from,
            [[e.message for e in await store.read_history(tip)] for tip in one.branches],
        )
        for one in listed
    }


def without_revision(found: dict[str, Any]) -> dict[str, Any]:
    for conversation, *_ in found.values():
        conversation.revision = None
    return found


@given(ACTS)
def test_it_does_what_the_store_in_memory_does(acts: list[tuple[str, str, Any]]) -> None:
    async def both() -> None:
        with sennit.open(":memory:") as client:
            ours, theirs = SennitConversationStore(client), InMemoryConversationStore()
            for number, (what, name, more) in enumerate(acts):
                said = ModelRequest.user_text_prompt(f"message {number}")
                done = await act(ours, what, name, more, said)
                assert done == await act(theirs, what, name, more, said)
                assert without_revision(await state(ours)) == without_revision(await state(theirs))
                shown = {
                    one.conversation_id: len((await ours.load(one.conversation_id)).messages)  # type: ignore[union-attr]
                    for one in await ours.list_conversations()
                }
                assert shown == {name: _length(client, name) for name in shown}
            for one in await ours.list_conversations():
                await ours.delete(one.conversation_id)
            assert client.sessions() == []

    ran(both())


def _length(client: Client, name: str) -> int:
    """How many messages the branch of a conversation holds."""
    session = client.session(f"pydantic-ai:{name}", create=False)
    root = session.metadata.get("shares")
    if root is not None:
        session = client.session(root, create=False)
    return len(session.get_branch(name))


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(16)


def test_pictures_and_reasoning_of_other_kinds_are_messages_too(client: Client) -> None:
    url = "https://example.com/a.png"
    picture = BinaryImage(data=PICTURE, media_type="image/png")
    prompt = UserPromptPart(["What is it?", picture, ImageUrl(url)])
    messages = [ModelRequest([prompt]), ModelResponse([ThinkingPart("A dot?"), TextPart("A dot.")])]
    history = SennitMessageHistory(client, "chat")
    history.add(messages)
    assert history.messages() == messages
    question, reply = (one.content for one in client.session("chat").default_branch.messages)
    assert isinstance(question, InstructionContent)
    assert question.instruction == "What is it?"
    data = b64encode(PICTURE).decode()
    assert question.images == [f"data:image/png;base64,{data}", url]
    assert isinstance(reply, AssistantResponseContent)
    assert reply.reasoning == "A dot?"


PDF = b"%PDF-1.7 " + bytes(40)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(40)


def test_files_and_recordings_are_of_the_message_and_of_the_result(client: Client) -> None:
    prompt = UserPromptPart(
        [
            "Read.",
            BinaryContent(PDF, media_type="application/pdf", identifier="a.pdf"),
            BinaryContent(WAV, media_type="audio/wav"),
            DocumentUrl("https://example.com/b.pdf"),
            AudioUrl("https://example.com/c.mp3"),
        ]
    )
    picture = BinaryImage(data=PICTURE, media_type="image/png")
    messages = [
        ModelRequest([prompt]),
        ModelResponse([ToolCallPart("draw", {}, "c1")]),
        ModelRequest([ToolReturnPart("draw", ["Drawn.", picture], "c1")]),
    ]
    history = SennitMessageHistory(client, "chat")
    history.add(messages)
    assert history.messages() == messages
    question, _, result = client.session("chat").default_branch.messages
    assert question.parts[1:] == [
        FilePart(PDF, "a.pdf"),
        AudioPart(WAV),
        FilePart("https://example.com/b.pdf"),
        AudioPart("https://example.com/c.mp3"),
    ]
    assert isinstance(result.content, ActionResponseContent)
    assert result.content.files == [part_record(ImagePart(PICTURE))]


def test_files_from_elsewhere_come_with_their_messages(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", ["Read.", FilePart(PDF, "a.pdf"), AudioPart(WAV)])
    call = ToolPart("draw", {}, "Drawn.", tool_id="c1", files=(ImagePart(PICTURE),))
    session.add_message("assistant", [call])
    question, _, answer = SennitMessageHistory(client, "chat").messages()
    content: Any = question.parts[0].content  # type: ignore[union-attr]
    assert [item.media_type for item in content[1:]] == ["application/pdf", "audio/wav"]
    returned = answer.parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert [file.media_type for file in returned.files] == ["image/png"]

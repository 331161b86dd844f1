"""Special turns: beside the conversation, seen by nobody until something of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    Client,
    GreetingSpecialTurn,
    InteractionFilter,
    Message,
    ModelError,
    PersistenceStrategy,
    Session,
    SessionOptions,
    SpecialTurn,
    SystemContent,
    Tool,
)
from sennit.errors import InvalidTypeError, ValidationError
from sennit.events import HistoryReplaced
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.services.models.reply import Reply, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.stores.postgres.store import PostgresStore
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns import greeting, summarize
from sennit.turns.result import Return
from sennit.turns.tools.pending_calls import call_id_of
from tests.conversation_fixtures import PLAIN, Talk, in_short, kinds, rest_of
from tests.turns.test_observers import Recorder

pytest_plugins = ("tests.postgres",)

RESULT, ALL = PersistenceStrategy.PERSIST_RESULT, PersistenceStrategy.PERSIST_ALL
EPHEMERAL, REPLACE = PersistenceStrategy.EPHEMERAL, PersistenceStrategy.REPLACE_ABOVE


def talked(*replies: Any, session: Session | None = None, **options: Any) -> Talk:
    """A conversation of two finished turns, with more replies to come."""
    talk = Talk("One.", "Two.", *replies, session=session, **options)
    talk.run()
    talk.say("More.")
    talk.run()
    return talk


TALKED = ["user Go.", "says One.", "user More.", "says Two."]


def special(talk: Talk, turn: SpecialTurn, streaming: bool = False, **more: Any) -> Return:
    return asyncio.run(talk.conversation(**more).execute_special_turn(turn, streaming))


def sent(talk: Talk, call: int = -1) -> list[tuple[str, Any]]:
    return [(one["role"], one["content"]) for one in talk.model.requests[call].messages]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Session]:
    """A session without a store, and one on each."""
    if request.param == "memory":
        yield Session()
        return
    if request.param == "sqlite":
        client = sennit.open(tmp_path / "sennit.db")
    else:
        client = Client(PostgresStore(request.getfixturevalue("emptied")))
    with client:
        yield client.session("chat")


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("strategy", "left"),
    [
        (RESULT, [*TALKED, "says A title."]),
        (ALL, [*TALKED, "user Find a title.", "says A title."]),
        (EPHEMERAL, TALKED),
        (REPLACE, ["says A title."]),
    ],
)
def test_a_special_turn_leaves_what_its_strategy_says(
    session: Session, strategy: PersistenceStrategy, left: list[str], streaming: bool
) -> None:
    talk = talked("A title.", session=session)
    turn = SpecialTurn(name="title", instruction="Find a title.", strategy=strategy)
    result = special(talk, turn, streaming)
    assert (result.stop_reason, result.text) == ("stable", "A title.")
    assert talk.said == left
    assert sent(talk)[-1] == ("user", "Find a title.")
    assert len(sent(talk)) == 5
    kept = [one for one in talk.branch.messages if "special_turn" in one.metadata]
    assert {one.metadata["special_turn"] for one in kept} <= {"title"}
    assert len(kept) == len(left) - len([one for one in left if one in TALKED])


def test_all_of_a_special_turn_with_tools_is_kept_or_only_its_answer() -> None:
    calls = ["Hm.", ToolCall("add", {"a": 1, "b": 2})]
    for strategy, left in (
        (ALL, ["user Add.", "says Hm.", "call add", "result 3", "says Three."]),
        (RESULT, ["says Three."]),
    ):
        talk = talked(calls, "Three.")
        result = special(talk, SpecialTurn(instruction="Add.", strategy=strategy))
        assert result.metrics.tool_calls == 1
        assert talk.said == [*TALKED, *left]


def test_a_filter_chooses_what_is_kept() -> None:
    talk = talked(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.")
    turn = SpecialTurn(
        instruction="Add.",
        strategy=ALL,
        filter=InteractionFilter.allow("user", "assistant", "tool").block("user", "tool"),
    )
    special(talk, turn)
    assert talk.said == [*TALKED, "says Hm.", "says Three."]


@pytest.mark.parametrize("strategy", [ALL, REPLACE])
@pytest.mark.parametrize("replay", ["never", "safe", "ask"])
def test_a_call_whose_result_is_not_kept_is_not_made_again(
    session: Session, replay: Any, strategy: PersistenceStrategy
) -> None:
    made: list[int] = []

    def fire(times: int) -> int:
        """Fire."""
        made.append(times)
        return times

    fires = ["Hm.", ToolCall("fire", {"times": 1})]
    replies = (
        ["Hi.", fires, "Done.", "Yes."] if strategy is ALL else [fires, "Hi.", "Done.", "Yes."]
    )
    talk = Talk(*replies, session=session, tools=[Tool(fire, replay=replay)])
    talk.run()
    no_results = InteractionFilter.block("tool")
    assert special(
        talk, SpecialTurn(instruction="Fire.", strategy=strategy, filter=no_results)
    ).success
    for branch in session.branches:  # where what was replaced stands, with the result
        if branch is not talk.branch:
            session.remove_branch(branch)
    assert talk.run().stop_reason == "stable"
    assert made == [1]
    assert "call fire" not in talk.said
    assert talk.said[-2:] == ["says Done.", "says Yes."]


def test_a_result_whose_call_is_not_kept_is_not_kept_either() -> None:
    talk = talked(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.")
    results = InteractionFilter.allow("user", "tool")
    special(talk, SpecialTurn(instruction="Add.", strategy=ALL, filter=results))
    assert talk.said == [*TALKED, "user Add."]


def test_a_special_turn_that_makes_no_calls_leaves_none_behind(session: Session) -> None:
    talk = Talk("Hi.", [ToolCall("add", {"a": 1, "b": 2})], "Yes.", session=session)
    talk.run()
    by_hand = SessionOptions(process_tools=False)
    special(talk, SpecialTurn(instruction="Add.", strategy=ALL, options=by_hand))
    assert talk.run().metrics.tool_calls == 0
    assert talk.said == ["user Go.", "says Hi.", "user Add.", "says Yes."]


def test_a_call_that_waits_is_not_answered_by_one_of_a_special_turn_with_its_id(
    session: Session,
) -> None:
    made: list[int] = []

    def fire(times: int) -> int:
        """Fire."""
        made.append(times)
        return times

    def look(far: int) -> str:
        """Look."""
        return f"{far} miles"

    first, second = ToolCall("fire", {"times": 1}, "call_0"), ToolCall("look", {"far": 9}, "call_0")
    tools = [Tool(fire, needs_approval=True), Tool(look)]
    talk = Talk([first], [second], "All quiet.", "Done.", "So it is.", session=session, tools=tools)
    assert talk.run().stop_reason == "suspended"
    assert special(talk, SpecialTurn(instruction="Look.", strategy=ALL)).success
    conversation = talk.conversation()
    fork = session.fork(talk.branch, name="fork", resources=True)
    assert [call_id_of(one) for one in conversation.pending_approvals()] == ["call_0"]
    result = asyncio.run(conversation.aapprove("call_0"))
    assert result is not None
    assert (result.stop_reason, made) == ("stable", [1])
    told = [one["content"] for one in talk.model.requests[-1].messages if one["role"] == "tool"]
    assert told == ["1", "9 miles"]
    elsewhere = session.conversation(fork, model="scripted", tools=talk.tools)
    assert asyncio.run(elsewhere.run_to_stable_result()).stop_reason == "stable"
    assert in_short(fork.messages[-2]) == "result 1"
    assert made == [1]


def test_what_is_overridden_is_not_as_in_the_conversation() -> None:
    talk = talked()
    other = ScriptedModel(["Bonjour."], name="acme:other")
    talk.session.services.register(other)
    turn = SpecialTurn(
        interactions=[SystemContent(system_message="You are French."), "Say hello."],
        provider="acme",
        model="other",
        tools=(),
        context=["It is morning."],
        params={"temperature": 0.1},
    )
    assert special(talk, turn, temperature=0.9, max_tokens=50).text == "Bonjour."
    (request,) = other.requests
    assert request.tools == ()
    assert request.params == {"temperature": 0.1, "max_tokens": 50}
    assert [one["role"] for one in request.messages] == ["system", "user"]
    assert request.messages[1]["content"] == "Context:\n  - It is morning.\n\nSay hello."
    assert talk.said == [*TALKED, "says Bonjour."]


def test_a_model_that_the_branch_was_not_granted_is_not_asked() -> None:
    session = Session()
    own, other = ScriptedModel([], name="own"), ScriptedModel(["Hi."], name="other")
    session.services.register(own)
    session.services.register(other)
    main = session.create_branch("main", resources={"own"})
    session.add_message("user", "Go.", branches=main)
    conversation = session.conversation(main, model="own")
    for model, code in (("other", "access"), ("nobody", "not_found")):
        turn = SpecialTurn(instruction="Hello?", model=model)
        result = asyncio.run(conversation.execute_special_turn(turn))
        assert (result.stop_reason, result.notices[0].code) == ("invalid", code)
    assert len(main) == 1
    assert other.requests == []


def test_observers_see_what_is_kept_and_nothing_else() -> None:
    for strategy, seen in (
        (EPHEMERAL, []),
        (RESULT, ["said"]),
        (ALL, ["said", "said", "call", "result", "said"]),
        (REPLACE, ["said"]),
    ):
        watcher = Recorder()
        talk = talked(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.", chunk=1)
        turn = SpecialTurn(instruction="Add.", strategy=strategy)
        special(talk, turn, streaming=True, observers=[watcher])
        assert watcher.calls == seen, strategy


def test_an_observer_that_raises_becomes_a_warning_of_the_special_turn() -> None:
    class Bad:
        def on_interaction_completed(self, _: Message) -> None:
            raise RuntimeError("no")

    talk = talked("A title.")
    result = special(talk, SpecialTurn(instruction="Title?"), observers=[Bad()])
    assert result.success
    assert [one.code for one in result.notices] == ["observer"]


def test_nothing_is_seen_of_a_special_turn_while_it_is_said(session: Session) -> None:
    during: list[list[str]] = []

    def reply(_: ModelRequest) -> str:
        during.append([*talk.said, *kinds(conversation.history())])
        return "A title."

    talk = talked(reply, session=session)
    conversation = talk.conversation()
    before = [*talk.said, *kinds(conversation.history())]
    asyncio.run(conversation.execute_special_turn(SpecialTurn(instruction="Title?")))
    assert during == [before]
    assert kinds(conversation.history())[-1] == "message.interjected"


@pytest.mark.parametrize("strategy", [RESULT, REPLACE])
def test_what_is_added_meanwhile_is_not_lost(
    session: Session, strategy: PersistenceStrategy
) -> None:
    def reply(_: ModelRequest) -> str:
        talk.say("By the way.")
        return "In short."

    talk = talked(reply, session=session)
    special(talk, SpecialTurn(instruction="Sum up.", strategy=strategy))
    if strategy is RESULT:
        assert talk.said == [*TALKED, "user By the way.", "says In short."]
    else:
        assert talk.said == ["says In short.", "user By the way."]


def test_several_special_turns_run_at_once(session: Session) -> None:
    together = asyncio.Barrier(3)

    async def reply(request: ModelRequest) -> str:
        await together.wait()
        return f"Answer to {request.messages[-1]['content']}"

    talk = talked(reply, reply, reply, session=session)
    conversation = talk.conversation()

    async def all_of_them() -> list[Return]:
        turns = [
            SpecialTurn(instruction="1"),
            SpecialTurn(instruction="2", strategy=ALL),
            SpecialTurn(instruction="3", strategy=REPLACE),
        ]
        return await asyncio.gather(*map(conversation.execute_special_turn, turns))

    results = asyncio.run(all_of_them())
    assert [one.text for one in results] == ["Answer to 1", "Answer to 2", "Answer to 3"]
    assert all(one.success for one in results)
    left = set(talk.said)
    assert left == {"says Answer to 1", "user 2", "says Answer to 2", "says Answer to 3"}
    seqs = [event.seq for event in conversation.history()]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_special_turn_while_a_run_is_under_way_is_told_by_that_run(session: Session) -> None:
    results: list[Return] = []

    async def look() -> str:
        """Ask for a title in the middle of a run."""
        turn = SpecialTurn(instruction="Title?", tools=())
        results.append(await conversation.execute_special_turn(turn))
        return "seen"

    talk = Talk([ToolCall("look", {}, "c1")], "A title.", "Done.", session=session, tools=[look])
    conversation = talk.conversation()

    async def watch() -> list[Any]:
        async with conversation.events(None, PLAIN) as events:
            return [event async for event in events]

    events = asyncio.run(watch())
    assert results[0].text == "A title."
    assert kinds(events) == [
        "run.started",
        "turn.started",
        "tool.called",
        "tool.started",
        "message.interjected",
        "tool.completed",
        "turn.started",
        "message.completed",
        "run.ended",
    ]
    assert events[-1].result.text == "Done."
    assert talk.said == ["user Go.", "call look", "says A title.", "result seen", "says Done."]
    assert [role for role, _ in sent(talk)][:3] == ["user", "assistant", "tool"]


def test_a_special_turn_waits_for_a_run_of_another_conversation(session: Session) -> None:
    gate = asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        await gate.wait()
        return "Done."

    talk = Talk(slow, "A title.", session=session)
    running, other = talk.conversation(), talk.conversation()

    async def both() -> Return:
        async with running.events(None, PLAIN) as events:
            await anext(events)  # it has begun
            await anext(events)
            waiting = asyncio.create_task(
                other.execute_special_turn(SpecialTurn(instruction="Title?"))
            )
            while len(talk.model.requests) < 2:
                await asyncio.sleep(0)
            gate.set()
            await rest_of(events)
            return await waiting

    assert asyncio.run(both()).success
    assert talk.said == ["user Go.", "says Done.", "says A title."]


def test_two_replacements_at_once_leave_the_run_under_way_as_it_is(session: Session) -> None:
    together = asyncio.Barrier(2)
    results: list[Return] = []

    async def short(_: ModelRequest) -> str:
        await together.wait()
        return "In short."

    async def look() -> str:
        """Have it summarised twice in the middle of a run."""
        both = (conversation.execute_special_turn(summarize()) for _ in range(2))
        results.extend(await asyncio.gather(*both))
        return "seen"

    call = [ToolCall("look", {}, "c1")]
    talk = talked(call, short, short, "Done.", session=session, tools=[look])
    talk.say("Go on.")
    conversation = talk.conversation()
    assert conversation.run().text == "Done."
    assert sorted(one.success for one in results) == [False, True]
    assert talk.said == [
        "says In short.",
        "user Go on.",
        "call look",
        "result seen",
        "says Done.",
    ]


def test_a_message_removed_while_a_replacement_waits_does_not_come_back(session: Session) -> None:
    gate = asyncio.Event()

    async def slow(_: ModelRequest) -> str:
        await gate.wait()
        return "Done."

    talk = talked(slow, "In short.", session=session)
    talk.say("Last.")
    running, other = talk.conversation(), talk.conversation()
    keeping = summarize(filter=InteractionFilter.allow("user"))

    async def both() -> Return:
        async with running.events(None, PLAIN) as events:
            await anext(events)  # it has begun
            waiting = asyncio.create_task(other.execute_special_turn(keeping))
            while len(talk.model.requests) < 4:
                await asyncio.sleep(0)
            talk.branch.popleft()
            gate.set()
            await rest_of(events)
            return await waiting

    assert asyncio.run(both()).success
    assert talk.said == ["user More.", "says In short.", "user Last.", "says Done."]


@pytest.mark.parametrize(
    ("reply", "streaming", "code"),
    [
        (ModelError("no", kind="overloaded"), False, "overloaded"),
        (ModelError("no", kind="overloaded"), True, "overloaded"),
        (["Half a sum", ModelError("broke off", kind="network")], True, "network"),
        ("", True, "empty"),
        ("  \n", False, "empty"),
        (RuntimeError("bug"), True, "RuntimeError"),
    ],
)
def test_a_failed_or_empty_replacement_changes_nothing(
    session: Session, reply: Any, streaming: bool, code: str
) -> None:
    talk = talked(reply, session=session)
    before = [one.id for one in talk.branch.messages]
    conversation = talk.conversation()
    history = conversation.history()
    result = special(talk, summarize(), streaming)
    assert result.stop_reason == "error"
    assert result.notices[-1].code == code
    assert [one.id for one in talk.branch.messages] == before
    assert conversation.history() == history
    assert [branch.name for branch in talk.session.branches] == ["talk"]


def test_a_replacement_that_is_cut_off_changes_nothing() -> None:
    talk = talked(Reply((ReplyText("The sum is"),), "length"))
    assert special(talk, summarize()).stop_reason == "length"
    assert talk.said == TALKED


def test_a_special_turn_that_takes_too_long_changes_nothing(session: Session) -> None:
    async def never(_: ModelRequest) -> str:
        await asyncio.Event().wait()
        return ""

    talk = talked(never, session=session)
    result = special(talk, summarize(timeout=0.01))
    assert (result.stop_reason, result.notices[0].code) == ("error", "timeout")
    assert talk.said == TALKED


def test_a_tool_that_needs_approval_ends_a_special_turn() -> None:
    def untie() -> str:
        """Untie."""
        return "untied"

    session = Session()
    talk = Talk([ToolCall("untie")], session=session, tools=[Tool(untie, needs_approval=True)])
    result = special(talk, SpecialTurn(instruction="Untie it."))
    assert (result.stop_reason, result.notices[-1].code) == ("error", "approval")
    assert talk.said == ["user Go."]


def test_a_special_turn_leaves_a_run_that_waits_for_approval_waiting(session: Session) -> None:
    def untie() -> str:
        """Untie."""
        return "untied"

    talk = Talk(
        [ToolCall("untie", {}, "c1")],
        "A title.",
        "Done.",
        session=session,
        tools=[Tool(untie, needs_approval=True)],
    )
    conversation = talk.conversation()

    async def go() -> Return | None:
        assert (await conversation.run_to_stable_result()).stop_reason == "suspended"
        turn = SpecialTurn(instruction="Title?", tools=())
        assert (await conversation.execute_special_turn(turn)).success
        return await conversation.aapprove("c1")

    result = asyncio.run(go())
    assert result is not None
    assert result.text == "Done."
    assert talk.said == ["user Go.", "call untie", "says A title.", "result untied", "says Done."]


def test_replaced_history_is_on_a_branch_of_its_own_and_forks_keep_theirs(
    session: Session,
) -> None:
    talk = talked("In short.", session=session)
    talk.session.set_branch_system(talk.branch, Message(SystemContent(system_message="Be kind.")))
    before = talk.branch.messages
    fork = talk.session.fork(talk.branch, name="fork")
    watched: list[Any] = []

    async def go() -> Return:
        conversation = talk.conversation()
        result = await conversation.execute_special_turn(summarize())
        watched.extend(conversation.history())
        return result

    result = asyncio.run(go())
    system, summary = talk.branch.messages
    assert system is before[0]
    assert summary == result.body.interactions[0]
    assert fork.messages == before[1:]
    event = watched[-1]
    assert isinstance(event, HistoryReplaced)
    assert (event.message, event.count) == (summary, 4)
    old = talk.session.get_branch(event.branch_id)
    assert old.messages == before
    assert summary.metadata["replaced"] == {"branch_id": str(old.id), "count": 4}
    assert old.resources == frozenset()
    assert (old.name, old.lineage()[0].branch_name) == ("talk_above_1", "talk")
    talk.session.refresh()
    assert talk.branch.messages == [system, summary]
    assert talk.session.get_branch("talk_above_1").messages == before


def test_another_client_sees_what_was_replaced(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db", durability="normal") as client:
        early = client.session("chat")
        talk = talked("In short.", session=client.session("chat"))
        special(talk, summarize())
        talk.say("On.")
        with sennit.open(tmp_path / "sennit.db") as other:
            for there in (other.session("chat"), early):
                there.refresh()
                said = [in_short(one) for one in there.get_branch("talk").messages]
                assert said == ["says In short.", "user On."]
                old = [in_short(one) for one in there.get_branch("talk_above_1").messages]
                assert old == TALKED


def test_a_turn_that_is_not_over_is_not_replaced() -> None:
    talk = talked("In short.")
    talk.say("And?")
    talk.session.add_message("assistant", [sennit.ToolPart("add", {"a": 1}, 2)], talk.branch)
    special(talk, summarize())
    assert talk.said == ["says In short.", "user And?", "call add", "result 2"]
    assert [content for _, content in sent(talk)][:-1] == ["Go.", "One.", "More.", "Two."]


def test_an_aside_is_not_taken_for_the_end_of_a_turn() -> None:
    talk = talked("A title.", "In short.")
    talk.say("And?")
    talk.session.add_message("assistant", [sennit.ToolPart("add", {"a": 1}, 2)], talk.branch)
    special(talk, SpecialTurn(instruction="Title?"))
    special(talk, summarize())
    left = ["says In short.", "user And?", "call add", "result 2", "says A title."]
    assert talk.said == left


def test_calls_that_are_pending_are_not_made_by_a_special_turn() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Hm.", "Done.")
    talk.run(SessionOptions(process_tools=False))
    result = special(talk, SpecialTurn(strategy=EPHEMERAL))
    assert (result.text, result.metrics.tool_calls) == ("Hm.", 0)
    assert sent(talk) == [("user", "Go.")]
    assert talk.run().metrics.tool_calls == 1


@pytest.mark.parametrize("strategy", PersistenceStrategy)
@pytest.mark.parametrize("seen", ["results left out", "waiting calls handed in"])
def test_a_special_turn_makes_no_call_of_the_conversation_it_sees(
    seen: str, strategy: PersistenceStrategy
) -> None:
    made: list[int] = []

    def fire(times: int) -> int:
        """Fire."""
        made.append(times)
        return times

    talk = Talk("Hi.", [ToolCall("fire", {"times": 1})], "Done.", "A title.", "No.", tools=[fire])
    talk.run()
    talk.say("Fire.")
    if seen == "results left out":
        talk.run()
        turn = SpecialTurn(sees=InteractionFilter.allow("user", "assistant"), strategy=strategy)
    else:
        talk.run(SessionOptions(process_tools=False))
        turn = SpecialTurn(interactions=talk.branch.messages, strategy=strategy)
    before = list(made)
    assert special(talk, turn).success
    assert made == before


@pytest.mark.parametrize("approved", [False, True], ids=["asked about", "left pending"])
@pytest.mark.parametrize("as_message", [False, True], ids=["text", "message"])
def test_the_instruction_of_a_special_turn_leaves_a_pending_call_pending(
    session: Session, approved: bool, as_message: bool
) -> None:
    made: list[int] = []

    def fire(times: int) -> int:
        """Fire."""
        made.append(times)
        return times

    tool = Tool(fire, needs_approval=not approved)
    call = [ToolCall("fire", {"times": 1}, "c1")]
    talk = Talk(call, "A title.", "Done.", tools=[tool], session=session)
    talk.run(SessionOptions(process_tools=not approved))
    asked = Message(InstructionContent(instruction="Find a title."))
    asks: dict[str, Any] = (
        {"interactions": [asked]} if as_message else {"instruction": "Find a title."}
    )
    special(talk, SpecialTurn(**asks, name="title", strategy=ALL, tools=()))
    marks = [one.metadata.get("special_turn") for one in talk.branch.messages]
    assert marks == [None, None, "title", "title"]
    conversation = talk.conversation()
    if approved:
        result = conversation.run()
    else:
        assert [call_id_of(one) for one in conversation.pending_approvals()] == ["c1"]
        result = asyncio.run(conversation.aapprove("c1"))
    assert result is not None
    assert (result.stop_reason, made) == ("stable", [1])


def test_contexts_stay_when_what_is_around_them_is_replaced() -> None:
    talk = talked("In short.")
    context = Message(InstructionContent(context=["A fact."]))
    talk.session.add_message(context, branches=talk.branch)
    talk.branch.move(4, 1)
    special(talk, summarize())
    assert talk.branch.messages[0] is context
    assert talk.said[1:] == ["says In short."]


def test_there_is_nothing_to_summarise_twice() -> None:
    talk = talked("In short.")
    special(talk, summarize())
    result = special(talk, summarize())
    assert (result.stop_reason, result.notices[0].code) == ("invalid", "nothing_above")
    assert talk.said == ["says In short."]


def test_a_special_turn_with_nothing_to_ask_is_invalid() -> None:
    talk = Talk(say=None)
    result = special(talk, SpecialTurn())
    assert (result.stop_reason, result.notices[0].code) == ("invalid", "empty")


@pytest.mark.parametrize(
    ("chosen", "passing"),
    [
        (InteractionFilter.allow_all(), "system user assistant tool context"),
        (InteractionFilter.default(), "user assistant tool context"),
        (InteractionFilter.preserve_system_context(), "system context"),
        (InteractionFilter.allow("user"), "user"),
        (InteractionFilter.allow("user").allow(sennit.MessageRole.TOOL), "user tool"),
        (InteractionFilter.block("tool"), "system user assistant context"),
        (InteractionFilter.allow("user", "tool").block("tool"), "user"),
        (InteractionFilter.block("tool").allow("user", "tool"), "user"),
    ],
)
def test_a_filter_passes_what_is_allowed_and_not_blocked(
    chosen: InteractionFilter, passing: str
) -> None:
    messages = {
        "system": Message(SystemContent(system_message="Be kind.")),
        "user": Message(InstructionContent(instruction="Go.", context=["A fact."])),
        "assistant": Message(AssistantResponseContent(assistant_response="Yes.")),
        "tool": Message(sennit.ActionResponseContent(request_id="c1", result=1)),
        "context": Message(InstructionContent(context=["A fact."])),
    }
    assert [kind for kind, one in messages.items() if chosen.passes(one)] == passing.split()


def test_what_makes_no_special_turn_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"A filter has no kind 'robot'; there are 'system'"):
        InteractionFilter.allow("robot")
    with pytest.raises(InvalidTypeError, match=r"strategy of a special turn cannot be 'keep'"):
        SpecialTurn(strategy="keep")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="timeout must be a number"):
        SpecialTurn(timeout=-1)
    with pytest.raises(InvalidTypeError, match="A special turn is a SpecialTurn, got 'hi'"):
        special(Talk(), "hi")  # type: ignore[arg-type]


def test_the_greeting_of_the_document(session: Session) -> None:
    talk = Talk("Welcome aboard!", say=None, session=session)
    turn = GreetingSpecialTurn.create("scripted", "You are a sailor.")
    result = special(talk, turn, streaming=True)
    assert result.text == "Welcome aboard!"
    assert talk.said == ["says Welcome aboard!"]
    assert sent(talk)[0] == ("system", "You are a sailor.")
    assert talk.branch.system is None


def test_a_greeting_sees_the_system_message_alone() -> None:
    talk = talked("Hello!")
    talk.session.set_branch_system(talk.branch, Message(SystemContent(system_message="Be kind.")))
    special(talk, greeting())
    assert [role for role, _ in sent(talk)] == ["system", "user"]
    assert sent(talk)[0][1] == "Be kind."


@pytest.mark.parametrize("made", [greeting, summarize])
def test_limits_on_answers_do_not_cut_off_what_is_built_in(made: Any) -> None:
    talk = talked("In short.")
    assert special(talk, made(), max_tokens=3, stop=["."], temperature=0.5).success
    assert talk.model.requests[-1].params == {"temperature": 0.5}


@pytest.mark.parametrize("streaming", [False, True])
def test_the_greeting_comes_first_and_may_be_all(session: Session, streaming: bool) -> None:
    talk = Talk("Welcome!", "It is late.", say=None, session=session)
    conversation = talk.conversation(generate_greeting=True)

    async def go() -> Return:
        if not streaming:
            return await conversation.run_to_stable_result()
        async with conversation.stream(None, PLAIN) as pieces:
            return [piece async for piece in pieces][-1]

    result = asyncio.run(go())
    assert (result.stop_reason, result.text) == ("stable", "Welcome!")
    assert kinds(conversation.history()) == ["run.started", "message.completed", "run.ended"]
    assert asyncio.run(go()).notices[0].code == "empty"  # it has greeted, and nobody answered
    talk.say("What time is it?")
    assert asyncio.run(go()).text == "It is late."
    assert talk.said == ["says Welcome!", "user What time is it?", "says It is late."]


def test_the_greeting_stands_before_what_is_yet_to_be_answered(session: Session) -> None:
    talk = Talk("Welcome!", "It is late.", say="What time is it?", session=session)
    result = talk.run(generate_greeting=True)
    assert [in_short(one) for one in result.body.interactions] == [
        "says Welcome!",
        "says It is late.",
    ]
    assert talk.said == ["says Welcome!", "user What time is it?", "says It is late."]
    assert [role for role, _ in sent(talk)] == ["assistant", "user"]
    assert result.metrics.turns == 1
    talk.session.refresh()
    assert len(talk.said) == 3


def test_a_greeting_that_fails_ends_the_run_and_changes_nothing(session: Session) -> None:
    talk = Talk(ModelError("no", kind="auth"), say=None, session=session)
    result = talk.run(generate_greeting=True)
    assert (result.stop_reason, result.notices[0].code) == ("error", "auth")
    assert talk.said == []

"""What is archived is in no prompt any more: on all branches, in all processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    Branch,
    Client,
    InstructionContent,
    Message,
    Session,
    SessionOptions,
    SystemContent,
    TextPart,
    ToolPart,
)
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.sqlite.store import SQLiteStore
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns import summarize
from tests.conversation_fixtures import Talk, in_short
from tests.memory.remembering import client, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)


def asked(model: ScriptedModel) -> list[str]:
    """What the model was sent last: each message in a word or two."""
    return [_gist(one) for one in model.requests[-1].messages]


def _gist(message: Any) -> str:
    calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
    return " ".join(
        [message["role"], *calls, *([message["content"]] if message["content"] else [])]
    )


def said(session: Session, branch: Branch | None = None) -> list[str]:
    """What is current, in short."""
    return [in_short(one) for one in session.current(branch)]


def test_a_turn_is_sent_what_is_not_archived(client: Client) -> None:
    here = Talk("Two.", "Four.", session=client.session("chat"), say="One?")
    here.session.set_branch_system(here.branch, Message(SystemContent(system_message="Count.")))
    here.run()
    here.session.commit(branch=here.branch)
    here.say("Three?")
    here.run()
    assert asked(here.model) == ["system Count.", "user Three?"]
    assert len(here.branch) == 5


def test_what_is_kept_recent_is_sent(client: Client) -> None:
    here = Talk("Two.", "Four.", "Six.", session=client.session("chat"), say="One?")
    here.run()
    here.say("Three?")
    here.run()
    here.session.commit(branch=here.branch, keep_recent=2)
    here.say("Five?")
    here.run()
    assert asked(here.model) == ["user Three?", "assistant Four.", "user Five?"]


def test_an_entry_that_one_branch_archives_leaves_the_prompts_of_all(client: Client) -> None:
    session = client.session("chat")
    talk(session, "One?", "Three?")
    main = session.default_branch
    fork = main.fork(resources=True, name="fork")
    session.add_message("user", "Only here.", branches=fork)
    session.add_message("user", "Only there.", branches=main)
    session.commit(branch=fork)
    assert said(session, main) == ["user Only there."]
    assert said(session, fork) == []
    model = ScriptedModel(["Yes."])
    main.grant(resources={model.name})
    session.conversation(main, model=model).run()
    assert asked(model) == ["user Only there."]
    again = main.fork(at=1, resources=True)  # ends with what is archived, and begins anew
    session.add_message("user", "Again.", branches=again)
    assert said(session, again) == ["user Again."]


def test_a_question_that_was_archived_before_its_answer_is_sent_all_the_same(
    client: Client,
) -> None:
    here = Talk("Two.", "Four.", "Six.", session=client.session("chat"), say="One?")
    here.run()
    here.say("Three?")
    here.session.commit(branch=here.branch)
    here.run()
    assert asked(here.model) == ["user Three?"]
    here.say("Five?")
    here.run()
    assert asked(here.model) == ["assistant Four.", "user Five?"]


def test_a_commit_within_a_turn_parts_no_call_from_its_result(client: Client) -> None:
    session = client.session("chat")

    def save() -> str:
        """Commit what was said so far."""
        session.commit(branch="talk")
        return "saved"

    here = Talk([ToolCall("save")], "Done.", "Yes.", tools=[save], session=session, say="Save!")
    here.run()
    assert asked(here.model) == ["user Save!", "assistant save", "tool saved"]
    here.say("Saved?")
    here.run()
    assert asked(here.model) == ["assistant Done.", "user Saved?"]


@pytest.mark.parametrize("recent", range(8))
def test_what_is_kept_recent_never_begins_inside_of_what_belongs_together(recent: int) -> None:
    session = Client(MemoryStore()).session("chat")
    branch = session.default_branch
    for content in (
        InstructionContent(instruction="Both?"),
        ActionRequestContent("add", {"a": 1}, call_id="c1"),
        ActionRequestContent("add", {"a": 2}, call_id="c2"),
        ActionResponseContent(request_id="c1", result=1),
        ActionResponseContent(request_id="c2", result=2),
    ):
        session.add_message(Message(content), branches=branch)
    group = [TextPart("I look."), ToolPart("look", {}, output="seen")]
    session.add_message("assistant", group)
    session.commit(keep_recent=recent)
    left = {0: 0, 1: 3, 2: 3, 3: 3, 4: 7, 5: 7, 6: 7, 7: 7}[recent]
    assert len(session.current()) == left


def test_an_undone_commit_stays_archived(client: Client) -> None:
    session = client.session("chat")
    talk(session, "My name is Ada.")
    client.undo_commit(session.commit()["task_id"])
    session.add_message("user", "Who am I?")
    assert said(session) == ["user Who am I?"]
    assert client.memory.all() == []


def test_what_another_client_archives_leaves_the_next_prompt(client: Client, store: Store) -> None:
    here = Talk("Two.", "Four.", session=client.session("chat"), say="One?")
    here.run()
    other = Client(store, user="ada", agent="helper").session("chat")
    other.commit(branch="talk")
    here.say("Three?")
    here.run()
    assert asked(here.model) == ["user Three?"]
    reopened = Client(store, user="ada", agent="helper").session("chat")
    assert said(reopened, reopened.get_branch("talk")) == ["user Three?", "says Four."]
    assert said(other, other.get_branch("talk")) == ["user Three?", "says Four."]


def test_turns_with_memory_get_the_last_summaries_and_may_recall_what_is_archived(
    client: Client,
) -> None:
    here = Talk("I see.", "It is.", session=client.session("chat"), say="The kiln is 40 feet long.")
    here.run()
    here.session.commit(branch=here.branch)
    here.say("Is the kiln long?")
    here.run(contexts=[MemoryContext(client.memory)])
    (prompt,) = here.model.requests[-1].messages
    assert (
        client.fs.read("viking://session/chat/history/archive_001/.abstract.md")
        in prompt["content"]
    )
    assert "40 feet" in prompt["content"].split("Is the kiln long?")[0]


def test_summaries_of_what_was_said_on_other_branches_are_not_given(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Let us count.")
    aside = session.default_branch.fork(name="aside")
    session.add_message("user", "The kiln is 40 feet long.", branches=aside)
    session.commit(branch=session.default_branch)
    session.commit(branch=aside)
    assert [piece.uri for piece in session.context().of("summary")] == [
        f"viking://session/{session.id}/history/archive_001/.abstract.md"
    ]
    assert len(session.context(aside).of("summary")) == 2


def test_a_summary_after_a_commit_reads_and_replaces_what_is_current(client: Client) -> None:
    here = Talk("Two.", "Four.", "We counted.", session=client.session("chat"), say="One?")
    here.run()
    here.session.commit(branch=here.branch)
    here.say("Three?")
    here.run()
    asyncio.run(here.conversation().execute_special_turn(summarize()))
    assert asked(here.model)[:2] == ["user Three?", "assistant Four."]
    assert here.said == ["user One?", "says Two.", "says We counted."]
    assert said(here.session, here.branch) == ["says We counted."]


def test_what_is_archived_does_not_fill_the_window(client: Client) -> None:
    long = "It is a long story. " * 200
    here = Talk("I see.", "Yes.", session=client.session("chat"), say=long, window=2_000)
    here.run(SessionOptions(summarize_at=None))
    here.session.commit(branch=here.branch, keep_recent=1)
    here.say("Long?")
    assert here.run(SessionOptions(summarize_at=0.5)).text == "Yes."
    assert asked(here.model) == ["assistant I see.", "user Long?"]


OPERATIONS = ("say", "answer", "fork", "switch", "commit", "recent", "drop", "insert", "other")


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9)), max_size=25))
def test_a_prompt_is_what_is_current_whatever_was_done(steps: list[tuple[str, int]]) -> None:
    store = MemoryStore()
    session, other = (Client(store).session("chat") for _ in range(2))
    branch, texts = session.default_branch, iter(map(str, range(1000)))
    covered: set[str] = set()

    def words(of: Branch) -> list[str]:
        return [in_short(one).split()[-1] for one in of.messages]

    def commit(through: Session, recent: int) -> None:
        current = [one for one in words(branch) if one not in covered]
        through.commit(branch=branch.id, keep_recent=recent)
        covered.update(current[: max(0, len(current) - recent)])

    for what, number in steps:
        match what:
            case "say" | "answer":
                session.add_message("user", next(texts), branches=branch)
                if what == "answer":
                    session.add_message("assistant", next(texts), branches=branch)
            case "fork":
                branch = branch.fork(at=number % len(branch) if len(branch) else None)
            case "switch":
                branch = list(session.branches)[number % len(session.branches)]
            case "commit" | "recent":
                commit(session, number if what == "recent" else 0)
            case "other":
                other.refresh()
                commit(other, number)
                session.refresh()
            case "drop" if len(branch):
                branch.pop(number % len(branch))
            case "insert":
                message = Message(InstructionContent(instruction=next(texts)))
                session.add_message(message, branches=())
                branch.insert(number % (len(branch) + 1), message)
            case _:
                pass
        for one in session.branches:
            current = [word for word in words(one) if word not in covered]
            assert [in_short(m).split()[-1] for m in session.current(one)] == current
        session.add_message("assistant", next(texts), branches=branch)  # nothing waits
        covered_now = [word for word in words(branch) if word not in covered]
        request = session.conversation(branch, model=_granted(session, branch)).request
        sent = [_gist(one).split()[1:] for one in request.model_request().messages]
        assert [word for text in sent for word in text] == covered_now


def _granted(session: Session, branch: Branch) -> ScriptedModel:
    model = ScriptedModel([])
    branch.grant(resources={model.name})
    return model


def test_a_turn_costs_no_more_the_more_is_archived(tmp_path: Any) -> None:
    client = Client(SQLiteStore(tmp_path / "a.db"))
    few, many = (_archived(client, key, count) for key, count in (("few", 10), ("many", 2_000)))
    took = {few: 99.0, many: 99.0}
    for _ in range(8):
        for turn in took:
            before = process_time()
            turn()
            took[turn] = min(took[turn], process_time() - before)
    assert took[many] < 3 * took[few]


def _archived(client: Client, key: str, count: int) -> Callable[[], object]:
    """A turn on a branch of which so many messages are archived."""
    session = client.session(key)
    branch = session.default_branch
    messages = [Message(InstructionContent(instruction=f"Number {n}.")) for n in range(count)]
    session.add_messages(messages, branches=branch)
    session.commit(keep_recent=2)
    model = ScriptedModel(["Yes."] * 20)
    branch.grant(resources={model.name})
    conversation = session.conversation(
        branch, model=model, contexts=[MemoryContext(client.memory)]
    )

    def turn() -> None:
        session.add_message("user", "And now?")
        assert conversation.run().text == "Yes."

    turn()
    return turn

"""Edit and regenerate: the same conversation on a fork, and nothing of the old one lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import ConversationObserver, ConversationSession, Session
from sennit.errors import NotFoundError, ValidationError
from sennit.testing import ScriptedModel, ToolCall

pytest_plugins = ("tests.on_loop",)


def length(knot: str) -> int:
    """How much rope a knot takes."""
    return 40


def talk(*replies: Any) -> tuple[Session, ConversationSession]:
    session = Session()
    session.services.register(ScriptedModel(list(replies), name="sage"))
    session.services.register(length)
    main = session.create_branch("main", resources={"sage", "length"})
    session.add_message("user", "How long?", branches=main)
    return session, session.conversation(main, model="sage", tools=["length"])


def said(conversation: ConversationSession) -> list[str]:
    return [message.content.words for message in conversation.request.branch.messages]


def test_an_edited_question_is_answered_on_a_fork() -> None:
    session, first = talk("40 cm.", "2 m.")
    first.run()
    second = first.edit(0, "How high?", name="other")
    assert second.run().success
    assert said(second) == ["How high?", "2 m."]
    assert said(first) == ["How long?", "40 cm."]
    assert session.get_branch("other").resources == {"sage", "length"}


def test_the_last_answer_is_regenerated_with_all_that_led_to_it() -> None:
    calls = [["Let me look.", ToolCall("length", {"knot": "bowline"})], "40 cm."]
    _, first = talk(*calls, "Forty.")
    first.run()
    again = first.regenerate()
    assert said(again) == ["How long?"]
    assert again.run().success
    assert said(again) == ["How long?", "Forty."]
    assert said(first)[-1] == "40 cm."


def test_one_message_of_the_model_is_regenerated() -> None:
    _, first = talk("One.", "Two.", "Other.")
    first.run()
    first.request.session.add_message("user", "And?", branches="main")
    first.run()
    again = first.regenerate(1)
    assert said(again) == ["How long?"]
    again.run()
    assert said(again) == ["How long?", "Other."]


def test_what_cannot_be_regenerated_says_why() -> None:
    _, first = talk("One.")
    with pytest.raises(NotFoundError, match="no answer yet"):
        first.regenerate()
    with pytest.raises(ValidationError, match="edit"):
        first.regenerate(0)
    assert len(first.request.session.branches) == 1


def test_observers_and_policies_come_along() -> None:
    ended: list[str] = []

    class Watching(ConversationObserver):
        def on_final(self, result: object) -> None:
            ended.append(type(result).__name__)

    _, first = talk("One.", "Two.")
    watched = ConversationSession(first.request, observers=[Watching()])
    watched.run()
    watched.regenerate().run()
    assert len(ended) == 2


def test_async_callers_edit_and_regenerate_without_keeping_the_loop_waiting(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def work() -> None:
        async with sennit.open(tmp_path / "chat.db") as client:
            session = await client.asession("chat")
            session.services.register(ScriptedModel(["40 cm.", "Forty.", "2 m."], name="sage"))
            main = await session.acreate_branch("main", resources={"sage"})
            first = session.conversation(main, model="sage")
            assert (await first.asteer("How long?")).content.words == "How long?"
            await first.run_to_stable_result()
            again = await first.aregenerate()
            await again.run_to_stable_result()
            edited = await first.aedit(0, "How high?")
            await edited.run_to_stable_result()
            assert [said(one) for one in (first, again, edited)] == [
                ["How long?", "40 cm."],
                ["How long?", "Forty."],
                ["How high?", "2 m."],
            ]
            events = await first.ahistory()
            assert events == await asyncio.to_thread(first.history)
            assert await first.areplay(events[0].run_id) == events

    asyncio.run(work())
    assert on_loop == []

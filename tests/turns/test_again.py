"""Edit and regenerate: the same conversation on a fork, and nothing of the old one lost."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import ConversationSession, Session
from sennit.errors import NotFoundError, ValidationError
from sennit.testing import ScriptedModel, ToolCall


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
    with pytest.raises(NotFoundError, match="said nothing"):
        first.regenerate()
    with pytest.raises(ValidationError, match="edit"):
        first.regenerate(0)
    assert len(first.request.session.branches) == 1


def test_observers_and_policies_come_along() -> None:
    ended: list[str] = []

    class Watching:
        def on_final(self, result: object) -> None:
            ended.append(type(result).__name__)

    _, first = talk("One.", "Two.")
    watched = ConversationSession(first.request, observers=[Watching()])
    watched.run()
    watched.regenerate().run()
    assert len(ended) == 2

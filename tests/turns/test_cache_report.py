"""The use of prompt caches on a branch."""

from __future__ import annotations

import sennit
from sennit.services.models.reply import Reply, ReplyText, Usage
from sennit.testing import ScriptedModel
from sennit.turns import CacheReport


def reply(text: str, prompt: int, cached: int) -> Reply:
    usage = Usage(input_tokens=prompt, output_tokens=5, cached_tokens=cached)
    return Reply((ReplyText(text),), usage=usage, model="sage-1")


def test_the_report_adds_up_what_the_provider_counted() -> None:
    replies = [reply("a", 2000, 0), reply("b", 2100, 1920), reply("c", 2200, 2048)]
    session = sennit.Session()
    chat = session.conversation(model=ScriptedModel(replies))
    for text in ("one", "two", "three"):
        chat.say(text)
    report = CacheReport.of(session.default_branch)
    assert [(one.input_tokens, one.cached_tokens) for one in report.answers] == [
        (2000, 0),
        (2100, 1920),
        (2200, 2048),
    ]
    assert (report.input_tokens, report.cached_tokens) == (6300, 3968)
    assert report.share == 3968 / 4300
    assert {one.model for one in report.answers} == {"sage-1"}
    assert report.answers[-1].message == session.default_branch.messages[-1].id
    assert str(report) == (
        "3,968 of 6,300 prompt tokens in 3 answers were read from a cache; 92% after the first."
    )


def test_a_fork_counts_the_answers_before_it_and_an_empty_branch_none() -> None:
    session = sennit.Session()
    assert CacheReport.of(session.default_branch).share == 0.0
    chat = session.conversation(model=ScriptedModel([reply("a", 2000, 0), reply("b", 2100, 1920)]))
    chat.say("one")
    chat.say("two")
    fork = session.default_branch.fork(at=1)
    assert len(CacheReport.of(fork).answers) == 1


def test_answers_of_people_have_no_usage() -> None:
    session = sennit.Session()
    session.add_message("user", "one")
    session.add_message("assistant", "two")
    assert CacheReport.of(session.default_branch).answers == ()

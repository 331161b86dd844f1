"""A message that is removed takes along what was learnt from it, on every store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sennit
from sennit import Client, Message, ModelError, NotFoundError, Session
from sennit.stores.base import Store
from sennit.testing import ScriptedModel, faults
from tests.memory.remembering import client, memories, store, talk
from tests.memory.test_crashes import CutOffError, answers

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

PROFILE = "viking://user/memories/profile.md"
ARCHIVE = "viking://session/chat/history/archive_001"


def that_said(session: Session, text: str) -> Message:
    return next(one for one in session.messages if text in str(one.rendered))


def test_what_was_learnt_from_a_removed_message_is_gone_and_the_rest_stays(client: Client) -> None:
    session = client.session("chat")
    talk(session, "My name is Ada.", "I prefer tea to coffee.")
    session.commit()
    session.remove_message(that_said(session, "Ada"))
    assert "tea" in "\n".join(memories(client).values())
    assert PROFILE not in memories(client)
    for name in (".abstract.md", ".overview.md", "messages.jsonl"):
        assert "Ada" not in client.fs.read(f"{ARCHIVE}/{name}")
    assert "tea" in client.fs.read(f"{ARCHIVE}/.overview.md")
    noted = json.loads(client.fs.read(f"{ARCHIVE}/memory_diff.json"))["memories"]
    assert [one["category"] for one in noted] == ["preferences"]
    assert client.find("Ada") == []
    assert client.doctor() == []


def test_what_was_said_elsewhere_too_is_remembered_on_that_evidence_alone(client: Client) -> None:
    for name in ("chat", "other"):
        talk(client.session(name), "My name is Ada.")
        client.session(name).commit()
    session = client.session("chat")
    session.remove_message(that_said(session, "Ada"))
    profile = client.memory.get(PROFILE)
    assert "My name is Ada." in profile.text
    assert [one.session for one in profile.evidence] == [client.session("other").id]


def test_what_was_never_archived_was_never_learnt(client: Client) -> None:
    session = client.session("chat")
    talk(session, "My name is Ada.")
    session.commit()
    before = memories(client)
    talk(session, "I live in Lisbon.")
    session.remove_message(that_said(session, "Lisbon"))
    assert memories(client) == before
    with pytest.raises(NotFoundError):
        session.remove_message(Message({"instruction": "never said"}))


def test_a_message_removed_between_archive_and_memory_is_not_learnt(client: Client) -> None:
    session = client.session("chat")
    talk(session, "My name is Ada.", "I prefer tea to coffee.")
    with (
        faults.arm("memory.commit: archived", faults.raising(CutOffError())),
        pytest.raises(CutOffError),
    ):
        session.commit()
    session.remove_message(that_said(session, "Ada"))
    assert client.finish_commits()[0].status == "committed"
    assert PROFILE not in memories(client)
    assert memories(client)


@pytest.mark.parametrize("step", ["thought", "write"])
def test_a_message_removed_while_it_is_thought_about_is_not_learnt(
    store: Store, client: Client, step: str
) -> None:
    talk(client.session("chat"), "My name is Ada.", "I prefer tea to coffee.")

    def remove(_: str) -> None:
        session = Client(store, user="ada", agent="helper").session("chat")
        session.remove_message(that_said(session, "Ada"))

    with faults.arm(f"memory.commit: {step}", remove):
        assert client.session("chat").commit().status == "committed"
    assert PROFILE not in memories(client)
    assert memories(client)
    assert "Ada" not in client.fs.read(f"{ARCHIVE}/.overview.md")


def test_what_a_model_has_said_of_a_removed_message_is_not_believed(client: Client) -> None:
    client.memory.use(model=ScriptedModel(answers()))
    session = client.session("chat")
    talk(session, "Hello, my name is Ada.")
    with (
        faults.arm("memory.commit: marked", faults.raising(CutOffError())),
        pytest.raises(CutOffError),
    ):
        session.commit()
    session.remove_message(that_said(session, "Ada"))
    client.memory.use(model=None)
    client.finish_commits()
    assert memories(client) == {}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelError("No xylophones here.", kind="failed"), "committed"),
        (RuntimeError("No xylophones here."), "failed"),
    ],
)
def test_what_a_model_complained_of_goes_with_a_removed_message(
    client: Client, error: Exception, status: str
) -> None:
    client.memory.use(model=ScriptedModel([error] * 3))
    session = client.session("chat")
    talk(session, "I prefer xylophones to trumpets.", "I live in Lisbon.")
    result = session.commit()
    assert (result["status"], "xylophones" in str(result)) == (status, True)
    session.remove_message(that_said(session, "xylophones"))
    told = client.get_task(result.task_id or "")
    assert told["warnings"] or told["reasons"]
    assert "xylophones" not in str(told)


def test_of_a_removed_message_no_trace_is_left_in_the_file(tmp_path: Path) -> None:
    canary = "Xylophonia"
    with sennit.open(tmp_path / "chat.db") as client:
        session = client.session("chat")
        talk(session, f"My name is {canary}.", "I prefer tea to coffee.")
        session.commit()
        assert client.find(canary)
        session.remove_message(that_said(session, canary))
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert canary.encode() not in left
    assert canary.lower().encode() not in left

"""Large results of tools: stored whole, shown as a preview, read on by the model."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit import Client, ImagePart, Session, SessionOptions, ValidationError
from sennit.sessions.repository import repository_of
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.tools.large_output import READ_OUTPUT

pytest_plugins = ("tests.durable",)

TEXT = "".join(f"line {number} of the log \u00e9\n" for number in range(2_000))
OPTIONS = SessionOptions(max_output_chars=2_000)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with sennit.open(address) as client:
        yield client


def read_log() -> str:
    """Read the log."""
    return TEXT


def read_rows() -> list[dict[str, int]]:
    """Read the rows."""
    return [{"row": number} for number in range(1_000)]


def tool_results(model: ScriptedModel) -> list[str]:
    messages = model.requests[-1].messages
    return [message["content"] for message in messages if message["role"] == "tool"]


def name_in(preview: str) -> str:
    return preview.partition("output='")[2].partition("'")[0]


def test_a_model_pages_through_a_result_that_is_too_long(client: Client) -> None:
    session = client.session("chat")
    model = ScriptedModel([[ToolCall("read_log", {})], "long"], name="sage")
    talk = session.conversation(model=model, tools=[read_log])
    talk.say("read", OPTIONS).raise_for_error()
    [preview] = tool_results(model)
    assert len(preview) < 400
    assert preview.startswith(TEXT[:200])
    assert READ_OUTPUT in {tool.name for tool in model.requests[0].tools}
    pieces, start, name = [TEXT[:200]], len(TEXT[:200].encode()), name_in(preview)
    while len("".join(pieces)) < len(TEXT):
        call = ToolCall(READ_OUTPUT, {"output": name, "start": start, "length": 1_999})
        model = ScriptedModel([[call], "more"], name="sage")
        talk = session.conversation(model=model, tools=[read_log])
        talk.say("go on", OPTIONS).raise_for_error()
        page, _, note = tool_results(model)[-1].rpartition("\n[")
        pieces.append(page)
        start += len(page.encode())
        assert note.startswith("End of" if start == len(TEXT.encode()) else f"{start:,} of ")
    assert "".join(pieces) == TEXT
    stored = session.default_branch.messages
    assert max(len(message.rendered_text) for message in stored) < 3_000


def test_a_result_that_is_no_text_is_stored_as_json(client: Client) -> None:
    session = client.session("chat")
    model = ScriptedModel([[ToolCall("read_rows", {})], "many"], name="sage")
    session.conversation(model=model, tools=[read_rows]).say("read", OPTIONS).raise_for_error()
    [result] = [message for message in session.messages if "stored_output" in message.metadata]
    data = session.read_blob(result.metadata["stored_output"])
    assert json.loads(data) == read_rows()


def test_only_results_of_the_same_branch_can_be_read(client: Client) -> None:
    session, other = client.session("chat"), client.session("other")
    model = ScriptedModel([[ToolCall("read_log", {})], "long"], name="sage")
    session.conversation(model=model, tools=[read_log]).say("read", OPTIONS).raise_for_error()
    name = name_in(tool_results(model)[0])
    secret = other.put_blob(b"a secret of another conversation", "text/plain").reference
    for asked in (name, secret, f"output_{secret.split(':')[2][:16]}", "", "output_"):
        call = ToolCall(READ_OUTPUT, {"output": asked})
        model = ScriptedModel([[call], "nothing"], name="sage")
        # What a person or a tool writes does not make a result readable.
        other.conversation(model=model).say(f"read {asked} {secret}", OPTIONS).raise_for_error()
        assert "No result" in tool_results(model)[-1]
    fork = session.fork("main", name="fork")
    model = ScriptedModel([[ToolCall(READ_OUTPUT, {"output": name})], "yes"], name="sage")
    talk = session.conversation(model=model, branch=fork)
    talk.say("read on", OPTIONS).raise_for_error()
    assert tool_results(model)[-1].startswith(TEXT[:1_000])


def test_without_the_option_or_a_store_results_stay_whole(client: Client) -> None:
    for session, options in ((client.session("chat"), None), (Session(), OPTIONS)):
        model = ScriptedModel([[ToolCall("read_log", {})], "long"], name="sage")
        session.conversation(model=model, tools=[read_log]).say("read", options).raise_for_error()
        assert tool_results(model) == [TEXT]
        assert [tool.name for tool in model.requests[0].tools] == ["read_log"]


def test_a_large_result_goes_with_the_conversation(client: Client, tmp_path: Path) -> None:
    session = client.session("chat")
    model = ScriptedModel([[ToolCall("read_log", {})], "long"], name="sage")
    session.conversation(model=model, tools=[read_log]).say("read", OPTIONS).raise_for_error()
    client.export(tmp_path / "archive")
    with sennit.open(tmp_path / "other.db") as other:
        other.import_sessions(tmp_path / "archive")
        moved = other.session("chat")
        [result] = [message for message in moved.messages if "stored_output" in message.metadata]
        assert moved.read_blob(result.metadata["stored_output"]).decode() == TEXT
    client.delete_session("chat")
    client._store.scrub()
    assert client._store.blob_bytes(client._owner) == 0


@pytest.mark.parametrize("limit", [0, 99, -1])
def test_a_limit_that_is_too_small_is_refused(limit: int) -> None:
    with pytest.raises(ValidationError, match="max_output_chars"):
        SessionOptions(max_output_chars=limit)


def test_events_of_parallel_calls_name_the_pictures_of_their_results(client: Client) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
    released = asyncio.Event()

    async def draw() -> ImagePart:
        """Draw a picture."""
        released.set()
        return ImagePart(data)

    async def wait() -> str:
        """Wait until the picture is drawn."""
        await released.wait()
        return "waited"

    session = client.session("chat")
    model = ScriptedModel([[ToolCall("wait", {}), ToolCall("draw", {})], "done"], name="sage")
    talk = session.conversation(model=model, tools=[wait, draw])
    talk.say("draw", SessionOptions(allow_parallel_tools=True)).raise_for_error()
    stored = repository_of(session).stored()
    branch = session.default_branch.id
    events = stored.store.events(stored.owner, session.id, branch, 0, 1_000)
    assert not [event for event in events if b";base64," in event.body]
    assert b64encode(data).decode() in str(model.requests[-1].messages)

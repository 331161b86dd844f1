"""Programs written for OpenViking, with the import line changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit.compat.openviking import (
    AsyncOpenViking,
    ContextPart,
    OpenViking,
    Session,
    TextPart,
    ToolPart,
)
from sennit.errors import CodecError, ExistsError, InvalidTypeError, NotFoundError, ValidationError

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(tmp_path: Path) -> Iterator[OpenViking]:
    client = OpenViking(path=tmp_path / "data")
    client.initialize()
    yield client
    client.close()


def test_a_client_keeps_its_store_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    client = OpenViking(path=str(folder))
    client.session("chat").add_message("user", "Hello")
    client.close()
    again = OpenViking(folder)
    assert len(again.session("chat").messages) == 1
    again.close()


def test_a_session_has_an_id_and_a_uri_and_need_not_be_named(client: OpenViking) -> None:
    named, unnamed, other = client.session("chat_001"), client.session(), client.session()
    assert (named.session_id, named.uri) == ("chat_001", "viking://session/chat_001")
    assert unnamed.session_id != other.session_id
    assert client.session(unnamed.session_id) is unnamed
    assert client.fs.exists(unnamed.uri)
    with pytest.raises(NotFoundError):
        client.session("unknown", must_exist=True)
    assert client.session_exists("chat_001")
    assert not client.session_exists("unknown")


def test_sessions_are_listed_as_dicts(client: OpenViking) -> None:
    created = client.create_session()
    assert client.add_message("chat", "user", "Hello") == {"session_id": "chat", "message_count": 1}
    client.add_message("chat", "assistant", parts=[TextPart("Hi"), TextPart("there")])
    listed = {entry["session_id"] for entry in client.list_sessions()}
    assert listed == {created["session_id"], "chat"}
    assert client.get_session("new", auto_create=True)["session_id"] == "new"
    assert client.delete_session("new")
    with pytest.raises(NotFoundError):
        client.get_session("new")
    with pytest.raises(InvalidTypeError, match="content="):
        client.add_message("chat", "user")


async def test_a_session_loads_what_another_client_wrote(
    client: OpenViking, tmp_path: Path
) -> None:
    session = client.session("chat")
    other = OpenViking(tmp_path / "data")
    other.session("chat").add_message("user", "Hello")
    await session.load()
    assert len(session.messages) == 1
    other.close()


def test_parts_have_the_names_of_openviking(client: OpenViking) -> None:
    session = client.session("chat")
    message = session.add_message(
        "assistant",
        [
            TextPart("I look it up."),
            ContextPart(uri="viking://resources/doc.md", context_type="resource", abstract="Doc"),
            ToolPart(
                tool_id="tool_1",
                tool_name="search",
                tool_uri="viking://session/chat/tools/tool_1",
                skill_uri="viking://agent/skills/search",
                tool_input={"query": "knots"},
                tool_output="found 3",
                tool_status="completed",
            ),
        ],
    )
    text, context, tool = message.parts
    assert (message.role, text) == ("assistant", TextPart("I look it up."))
    assert context == sennit.ContextPart("viking://resources/doc.md", "Doc")
    assert tool == sennit.ToolPart("search", {"query": "knots"}, "found 3", tool_id="tool_1")
    failed = ToolPart("t", "search", tool_output="No network", tool_status="error")
    assert (failed.error, bool(failed.output)) == ("No network", False)
    with pytest.raises(ValidationError, match="tool_status"):
        ToolPart("t", "search", tool_status="done")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match="context_type"):
        ContextPart("viking://user/x", context_type="file")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("status", "shown"), [("completed", "output"), ("failed", "error")])
def test_a_running_tool_call_gets_its_outcome_later(
    client: OpenViking, status: str, shown: str
) -> None:
    session = client.session("chat")
    running = ToolPart("call_1", "search", tool_input={"q": "x"}, tool_status="running")
    message = session.add_message("assistant", [TextPart("One moment."), running])
    session.update_tool_part(message.id, "call_1", "the outcome", status)  # pyright: ignore[reportArgumentType]
    stored = client.read("viking://session/chat/tools/call_1/tool.json")
    assert f'"{shown}"' in stored
    assert "the outcome" in stored
    with pytest.raises(NotFoundError):
        session.update_tool_part("msg_00000000-0000-0000-0000-000000000000", "call_1", "x")
    with pytest.raises(NotFoundError):
        session.update_tool_part("msg_1", "call_1", "x")
    with pytest.raises(NotFoundError, match="call_2"):
        session.update_tool_part(message.id, "call_2", "x")
    count = len(session.messages)
    with pytest.raises(ExistsError):
        session.update_tool_part(message.id, "call_1", "another outcome")
    assert len(session.messages) == count


@pytest.mark.parametrize("name", ["a/b", "..", "chat/messages.jsonl", "%20"])
async def test_a_session_has_a_folder_whatever_its_id(client: OpenViking, name: str) -> None:
    assert not client.session_exists(name)
    session = client.session(name)
    session.add_message("user", "My name is Ada.")
    assert client.session_exists(name)
    assert client.fs.exists(session.uri)
    session.commit()
    context = await session.get_context_for_search("name")
    assert "Ada" in context["latest_archive_overview"]


def test_the_path_of_a_file_is_not_a_session(client: OpenViking) -> None:
    client.session("chat").add_message("user", "Hello")
    assert not client.session_exists("chat/messages.jsonl")


def test_wrong_skills_and_links_are_refused_with_errors_of_sennit(
    client: OpenViking, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match="name"):
        client.add_skill({"content": "x"})
    with pytest.raises(NotFoundError):
        client.add_skill(tmp_path / "none")
    with pytest.raises(InvalidTypeError, match="dict"):
        client.session("chat").used(skill="viking://agent/skills/x")  # pyright: ignore[reportArgumentType]
    client.fs.write("viking://resources/docs/.relations.json", "[5]")
    with pytest.raises(CodecError, match="list of links"):
        client.relations("viking://resources/docs")


def test_uses_are_recorded_and_counted_and_using_nothing_does_nothing(client: OpenViking) -> None:
    client.fs.write("viking://agent/skills/search/SKILL.md", "Search well.")
    session = client.session("chat")
    session.add_message("user", "Find the config, please.")
    session.used()
    assert session.usage_records == []
    session.used(contexts=["viking://agent/skills/search/SKILL.md"])
    session.used(
        contexts="viking://agent/skills/search/SKILL.md",
        skill={"uri": "viking://agent/skills/search", "name": "search_skill"},
    )
    assert [use.type for use in session.usage_records] == ["context", "context", "skill"]
    assert session.commit()["active_count_updated"] >= 1


async def test_a_commit_names_its_session_and_archive(client: OpenViking) -> None:
    session = client.session("chat")
    assert session.commit()["archive_uri"] is None
    session.add_message("user", "My name is Ada.")
    result = session.commit()
    assert (result["session_id"], result["archive_uri"]) == (
        "chat",
        "viking://session/chat/history/archive_001",
    )
    assert client.fs.exists(result["archive_uri"])
    session.add_message("user", "I live in Porto.")
    assert (await session.commit_async())["archive_uri"].endswith("archive_002")
    session.add_message("user", "I like tea.")
    assert client.commit_session("chat")["archived"]


async def test_the_context_for_a_search_is_the_last_overview_and_the_current_messages(
    client: OpenViking,
) -> None:
    session = client.session("chat")
    empty = await session.get_context_for_search(query="test")
    assert empty == {"latest_archive_overview": "", "current_messages": []}
    for text in ("My name is Ada.", "I live in Porto."):
        session.add_message("user", text)
        session.commit()
    for text in ("One", "Two", "Three"):
        session.add_message("user", [TextPart(text)])
    context = await session.get_context_for_search(query="test", max_messages=2)
    assert context["latest_archive_overview"] == client.read(
        "viking://session/chat/history/archive_002/.overview.md"
    )
    assert [message.parts[0].text for message in context["current_messages"]] == ["Two", "Three"]
    none = await session.get_context_for_search("test", max_messages=0)
    assert none["current_messages"] == []


def test_pending_work_is_finished_on_request(client: OpenViking) -> None:
    session = client.session("chat")
    session.add_message("user", "My name is Ada.")
    pending = session.commit(wait=False)
    client.wait_processed(timeout=60.0)
    assert client.get_task(pending["task_id"])["status"] == "committed"


def test_resources_and_skills_are_added_and_found_by_kind(
    client: OpenViking, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "auth.md").write_text("# Tokens\nA token expires after a day.")
    (tmp_path / "note.md").write_text("Tokens are opaque.")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    assert client.add_resource(tmp_path / "docs")["root_uri"] == "viking://resources/docs"
    client.add_resource(tmp_path / "note.md", to="viking://resources/notes/tokens.md")
    skill = client.add_skill({"name": "tokens", "description": "Renew tokens", "content": "..."})
    assert client.read(f"{skill['uri']}/SKILL.md").startswith("---\nname: tokens\n")
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "SKILL.md").write_text("Deploy with tokens.")
    assert client.add_skill(tmp_path / "deploy")["name"] == "deploy"

    found = client.find("tokens", limit=20)
    assert {match.uri for match in found.resources} == {
        "viking://resources/docs/auth.md",
        "viking://resources/notes/tokens.md",
    }
    assert len(found.skills) == 2
    assert found.memories == []
    assert found.total == len(found) == 4
    assert all(match.score >= 0.5 for match in client.find("tokens", score_threshold=0.5))
    assert client.search("tokens?", limit=1).total <= 1
    assert client.find("tokens", target_uri="viking://resources/notes").total == 1
    with pytest.raises(ValidationError, match="not text in UTF-8"):
        client.add_resource(tmp_path / "image.png")
    with pytest.raises(NotFoundError, match="missing"):
        client.add_resource(tmp_path / "missing.md")


def test_memories_are_found_apart_from_messages(client: OpenViking) -> None:
    session = client.session("chat")
    session.add_message("user", "My name is Ada and I live in Porto.")
    session.commit()
    found = client.find("Porto")
    assert found.memories
    assert len(found.memories) < found.total


def test_the_file_system_is_on_the_client(client: OpenViking) -> None:
    client.mkdir("viking://resources/docs")
    client.fs.write("viking://resources/docs/a.md", "one\ntwo\nthree\n")
    assert client.ls("viking://resources/docs", simple=True) == ["a.md"]
    [entry] = client.ls("viking://resources/docs")
    assert (entry["name"], entry["isDir"], entry["size"]) == ("a.md", False, 14)
    assert "docs/a.md" in client.ls("viking://resources", simple=True, recursive=True)
    assert client.tree("viking://resources")[-1]["rel_path"] == "docs/a.md"
    assert client.stat("viking://resources/docs")["isDir"]
    assert client.read("viking://resources/docs/a.md", offset=1, limit=1) == "two\n"
    assert client.overview("viking://resources/docs/a.md").startswith("one")
    assert client.abstract("viking://resources/docs/a.md")
    assert client.grep("viking://resources", "TWO", case_insensitive=True) == {
        "matches": [{"uri": "viking://resources/docs/a.md", "line": 2, "content": "two"}],
        "count": 1,
    }
    assert client.glob("**/*.md", "viking://resources")["count"] == 1
    assert client.glob("resources/**/*.md")["matches"] == ["viking://resources/docs/a.md"]
    client.mv("viking://resources/docs/a.md", "viking://resources/b.md")
    client.rm("viking://resources/docs", recursive=True)
    assert client.ls("viking://resources", simple=True) == ["b.md"]


def test_folders_are_linked_to_other_uris(client: OpenViking) -> None:
    for name in ("a", "b", "c"):
        client.mkdir(f"viking://resources/{name}")
    client.link("viking://resources/a", ["viking://resources/b"], reason="same topic")
    client.link("viking://resources/a", "viking://resources/c")
    assert client.relations("viking://resources/a") == [
        {"uri": "viking://resources/b", "reason": "same topic"},
        {"uri": "viking://resources/c", "reason": ""},
    ]
    client.unlink("viking://resources/a", "viking://resources/b")
    assert [one["uri"] for one in client.relations("viking://resources/a")] == [
        "viking://resources/c"
    ]
    assert client.relations("viking://resources/b") == []
    with pytest.raises(NotFoundError):
        client.link("viking://resources/a", "viking://resources/missing")


async def test_the_async_client_has_the_same_methods() -> None:
    client = AsyncOpenViking(path=":memory:")
    await client.initialize()
    session = client.session()
    assert isinstance(session, Session)
    assert re.fullmatch(r"session_[0-9a-f-]{36}", session.session_id)
    session.add_message("user", [TextPart("My name is Ada.")])
    await session.commit_async()
    assert (await client.find("Ada")).total > 0
    assert await client.ls("viking://session", simple=True) == [session.session_id]
    with pytest.raises(AttributeError, match="nothing"):
        await client.nothing()
    await client.close()

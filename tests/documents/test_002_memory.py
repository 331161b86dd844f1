"""Document 002 (commit, archives, memories, storage structure), line by line, in its order.

Each docstring opens with the heading under which the document says it; the code is the document's,
with only the import line changed.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Generator
from datetime import datetime

import pytest

import sennit
from sennit import Client, ContextPart, TextPart, ToolPart
from sennit.memory.extraction.values import Action, Category
from sennit.messages import MessageGroup

SECTIONS = (
    "Overview",
    "Core API",
    "add_message",
    "used",
    "commit",
    "Message",
    "Part Types",
    "Archive Flow",
    "Summary Format",
    "6 Categories",
    "Extraction Flow",
    "Dedup Decisions",
    "Storage Structure",
)

CONVERSATION = (
    "How do I configure the embedding model? I prefer short answers.",
    "My name is Ada and I work at Lovelace Labs.",
    "My colleague is called Grace.",
    "Yesterday we decided to ship on Friday.",
)


@pytest.fixture
def client() -> Generator[Client]:
    with sennit.open(":memory:") as client:
        yield client


def converse(client: Client, key: str = "chat_001") -> None:
    session = client.session(session_id=key)
    for said in CONVERSATION:
        session.add_message("user", [TextPart(said)])
        session.add_message("assistant", [TextPart("I will keep that in mind.")])


def test_create_interact_commit(client: Client) -> None:
    """Overview"""
    session = client.session(session_id="chat_001")
    session.add_message("user", [TextPart("...")])
    session.commit()

    assert session.current() == []
    assert client.fs.exists("viking://session/chat_001/history/archive_001")


def test_a_session_has_the_three_methods_as_documented(client: Client) -> None:
    """Core API"""
    session = client.session("chat_001")
    added = inspect.signature(session.add_message).parameters
    assert list(added)[1:2] == ["parts"]
    used = inspect.signature(session.used).parameters
    assert list(used)[:2] == ["contexts", "skill"]
    assert all(
        parameter.default is not inspect.Parameter.empty
        for parameter in inspect.signature(session.commit).parameters.values()
    )


def test_messages_are_added_by_role_and_parts(client: Client) -> None:
    """add_message"""
    session = client.session("chat_001")
    session.add_message("user", [TextPart("How to configure embedding?")])

    session.add_message(
        "assistant",
        [
            TextPart("Here's how..."),
            ContextPart(uri="viking://user/memories/profile.md"),
        ],
    )

    lines = client.fs.read("viking://session/chat_001/messages.jsonl").splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user", "assistant"]
    assert json.loads(lines[1])["parts"] == [
        {"type": "text", "text": "Here's how..."},
        {"type": "context", "uri": "viking://user/memories/profile.md", "abstract": ""},
    ]


def test_contexts_and_skills_that_were_used_are_recorded(client: Client) -> None:
    """used"""
    converse(client)
    client.session("chat_001").commit()
    client.fs.write("viking://agent/skills/code-search", "Search the code.")
    session = client.session("chat_001")
    session.add_message("user", [TextPart("And now?")])
    # Record used contexts
    session.used(contexts=["viking://user/memories/profile.md"])

    # Record used skill
    session.used(
        skill={
            "uri": "viking://agent/skills/code-search",
            "input": "search config",
            "output": "found 3 files",
            "success": True,
        }
    )

    assert session.commit()["active_count_updated"] == 2
    assert client.fs.stat("viking://user/memories/profile.md").active_count == 1


def test_the_examples_in_their_order_on_a_fresh_store_count_two_uses(client: Client) -> None:
    """commit"""
    session = client.session(session_id="chat_001")
    session.add_message("user", [TextPart("How to configure embedding?")])
    session.add_message(
        "assistant",
        [TextPart("Here's how..."), ContextPart(uri="viking://user/memories/profile.md")],
    )
    session.used(contexts=["viking://user/memories/profile.md"])
    skill = {"uri": "viking://agent/skills/code-search", "input": "search config"}
    session.used(skill=skill | {"output": "found 3 files", "success": True})
    assert session.commit()["active_count_updated"] == 2


def test_a_memory_that_the_commit_itself_writes_is_counted_too(client: Client) -> None:
    """commit"""
    session = client.session("chat_001")
    session.add_message("user", [TextPart("My name is Ada.")])
    session.used(contexts=["viking://user/memories/profile.md"])
    session.commit()
    assert client.fs.stat("viking://user/memories/profile.md").active_count == 1


def test_a_commit_says_what_it_did(client: Client) -> None:
    """commit"""
    converse(client)
    session = client.session("chat_001")

    result = session.commit()

    assert result["status"] == "committed"
    assert result["memories_extracted"] >= 4
    assert result["active_count_updated"] == 0
    assert result["archived"] is True
    assert isinstance(result, dict)


def test_a_message_has_an_id_a_role_parts_and_a_time(client: Client) -> None:
    """Message"""
    message = client.session("chat_001").add_message("user", [TextPart("Hello")])

    assert isinstance(message, MessageGroup)
    assert re.fullmatch(r"msg_[0-9a-f-]{36}", message.id)
    assert message.role == "user"
    assert list(message.parts) == [TextPart("Hello")]
    assert isinstance(message.created_at, datetime)


def test_the_three_parts_come_back_from_the_archive(client: Client) -> None:
    """Part Types"""
    session = client.session("chat_001")
    parts = [
        TextPart("Looking."),
        ContextPart(uri="viking://resources/guide.md", abstract="A guide"),
        ToolPart("search", {"q": "config"}, output=["a", "b"], tool_id="call_1"),
    ]
    said = session.add_message("assistant", parts)
    session.commit()

    line = client.fs.read("viking://session/chat_001/history/archive_001/messages.jsonl")
    assert MessageGroup.from_json(line.strip()) == said


def test_a_commit_archives_and_clears_what_is_current(client: Client) -> None:
    """Archive Flow"""
    converse(client)
    session = client.session("chat_001")
    before = client.fs.read("viking://session/chat_001/messages.jsonl")

    first = session.commit()

    archive = "viking://session/chat_001/history/archive_001"
    assert first["archive"] == "archive_001"  # 1. the next compression index
    assert client.fs.read(f"{archive}/messages.jsonl") == before  # 2. copied
    assert client.fs.read(f"{archive}/.overview.md")  # 3. summarised
    assert client.fs.read("viking://session/chat_001/messages.jsonl") == ""  # 4. cleared
    session.add_message("user", [TextPart("One more thing.")])
    assert session.commit()["archive"] == "archive_002"


def test_the_summary_has_the_documented_form(client: Client) -> None:
    """Summary Format"""
    converse(client)
    client.session("chat_001").commit()

    summary = client.fs.read("viking://session/chat_001/history/archive_001/.overview.md")

    headings = [line for line in summary.splitlines() if line.startswith("#")]
    assert headings == [
        "# Session Summary",
        "## Analysis",
        "## Primary Request and Intent",
        "## Key Concepts",
        "## Pending Tasks",
    ]
    one_line = r"^\*\*One-line overview\*\*: .+: .+ \| .+ \| .+$"
    assert re.search(one_line, summary, re.MULTILINE)
    abstract = client.fs.read("viking://session/chat_001/history/archive_001/.abstract.md")
    assert len(abstract.strip().splitlines()) == 1


def test_there_are_six_categories_four_of_the_user_two_of_the_agent() -> None:
    """6 Categories"""
    table = {str(one): (one.owner, one.mergeable) for one in Category}
    assert table == {
        "profile": ("user", True),
        "preferences": ("user", True),
        "entities": ("user", True),
        "events": ("user", False),
        "cases": ("agent", False),
        "patterns": ("agent", True),
    }


def test_messages_become_memories_in_their_folders(client: Client) -> None:
    """Extraction Flow"""
    converse(client)
    client.session("chat_001").commit()

    found = client.memory.all()
    assert {one.category for one in found} >= {"profile", "preferences", "entities", "events"}
    for memory in found:
        assert memory.category is not None
        assert memory.category in memory.uri
        assert memory.evidence


def test_decisions_are_create_update_merge_and_skip(client: Client) -> None:
    """Dedup Decisions"""
    assert [str(action) for action in Action] == ["CREATE", "UPDATE", "MERGE", "SKIP"]

    converse(client, "chat_001")
    created = client.session("chat_001").commit()
    converse(client, "chat_002")
    skipped = client.session("chat_002").commit()

    assert created["counts"]["created"] == created["memories_extracted"] > 0
    assert skipped["counts"]["confirmed"] > 0
    changed = client.session("chat_003")
    changed.add_message("user", [TextPart("I now work at Analytical Engines.")])
    assert changed.commit()["counts"]["updated"] == 1


def test_the_storage_has_the_documented_tree(client: Client) -> None:
    """Storage Structure"""
    converse(client)
    session = client.session("chat_001")
    session.add_message("assistant", [ToolPart("search", {"q": "x"}, output=1, tool_id="call_1")])
    session.commit()

    for uri in (
        "viking://session/chat_001/messages.jsonl",
        "viking://session/chat_001/.abstract.md",
        "viking://session/chat_001/.overview.md",
        "viking://session/chat_001/history/archive_001/messages.jsonl",
        "viking://session/chat_001/history/archive_001/.abstract.md",
        "viking://session/chat_001/history/archive_001/.overview.md",
        "viking://session/chat_001/tools/call_1/tool.json",
        "viking://user/memories/profile.md",
    ):
        assert not client.fs.stat(uri).is_folder, uri
    for uri in (
        "viking://user/memories/preferences",
        "viking://user/memories/entities",
        "viking://user/memories/events",
        "viking://agent/memories/cases",
        "viking://agent/memories/patterns",
    ):
        assert client.fs.stat(uri).is_folder, uri


def test_the_profile_is_append_only(client: Client) -> None:
    """Storage Structure"""
    for key, said in (("one", "I live in Lisbon."), ("two", "I moved to Berlin.")):
        client.session(key).add_message("user", [TextPart(said)])
        client.session(key).commit()

    profile = client.fs.read("viking://user/memories/profile.md")
    assert profile.index("I live in Lisbon.") < profile.index("Berlin")


def test_every_section_listed_has_a_test_and_every_test_names_a_section() -> None:
    """The list at the top is kept honest."""
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    docstrings = {test.__name__: inspect.getdoc(test) or "" for test in tests}
    del docstrings["test_every_section_listed_has_a_test_and_every_test_names_a_section"]

    for section in SECTIONS:
        assert any(section in docstring for docstring in docstrings.values()), section
    for name, docstring in docstrings.items():
        assert docstring.split("\n")[0] in SECTIONS, name

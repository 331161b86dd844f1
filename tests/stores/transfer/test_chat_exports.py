"""Conversations of other programs: every branch comes in once, and bad ones are named."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import Client, Session
from sennit.cli.app import app
from sennit.errors import ArchiveError, ValidationError
from sennit.stores.transfer.chat_exports import files

JUNE = 1_717_200_000.25  # 2024-06-01 00:00:00.25 UTC


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with sennit.open(tmp_path / "store.db") as client:
        yield client


# ChatGPT


def node(
    key: str, parent: str | None, role: str = "", text: str = "", **message: Any
) -> dict[str, Any]:
    """A node of ChatGPT's mapping; without a role it has no message."""
    body = {
        "id": key,
        "author": {"role": role, "name": message.pop("name", None), "metadata": {}},
        "create_time": message.pop("time", JUNE),
        "update_time": None,
        "content": {"content_type": "text", "parts": [text]},
        "status": "finished_successfully",
        "end_turn": None,
        "weight": 1.0,
        "metadata": {},
        "recipient": "all",
        "channel": None,
        **message,
    }
    return {"id": key, "message": body if role else None, "parent": parent, "children": []}


def chatgpt(*nodes: dict[str, Any], id: str = "c-1", tip: str | None = None) -> dict[str, Any]:
    for one in nodes:
        one["children"] = [other["id"] for other in nodes if other["parent"] == one["id"]]
    return {
        "title": "Knots",
        "create_time": JUNE,
        "update_time": JUNE + 60,
        "mapping": {one["id"]: one for one in nodes},
        "moderation_results": [],
        "current_node": tip or nodes[-1]["id"],
        "plugin_ids": None,
        "conversation_id": id,
        "conversation_template_id": None,
        "gizmo_id": None,
        "is_archived": False,
        "default_model_slug": "gpt-4o",
        "id": id,
    }


HIDDEN = {"is_visually_hidden_from_conversation": True}


def knots() -> list[dict[str, Any]]:
    """An edited question, a regenerated answer, a tool, a picture, custom instructions."""
    about = {"about_user_message": "I sail.", "about_model_message": "Be brief."}
    return [
        node("root", None),
        node("s", "root", "system", "", metadata=HIDDEN),
        node(
            "custom",
            "s",
            "user",
            metadata={"is_user_system_message": True, "user_context_message_data": about, **HIDDEN},
        ),
        node("q1", "custom", "user", "Name a knot", time=JUNE + 1),
        node("a1", "q1", "assistant", "A bowline.", metadata={"model_slug": "gpt-4o"}),
        node("a1-again", "q1", "assistant", "A sheet bend."),
        node("q2-old", "a1", "user", "Is it strong"),
        node("q2", "a1", "user", "How strong is it?"),
        node(
            "think",
            "q2",
            "assistant",
            content={"content_type": "thoughts", "thoughts": [{"content": "Look it up."}]},
        ),
        node(
            "call",
            "think",
            "assistant",
            recipient="python",
            content={"content_type": "code", "language": "python", "text": "strength()"},
        ),
        node(
            "result",
            "call",
            "tool",
            name="python",
            content={"content_type": "execution_output", "text": "65 %"},
        ),
        node(
            "picture",
            "result",
            "user",
            content={
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": "sediment://f1"},
                    "Like this?",
                ],
            },
            metadata={"attachments": [{"id": "f2", "name": "rope.pdf"}]},
        ),
        node("a3", "picture", "assistant", "Yes."),
    ]


def saved(folder: Path, value: Any, name: str = "conversations.json") -> Path:
    path = folder / name
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def texts(session: Session, branch: str = "main") -> list[str]:
    at = session.branches[branch]
    shown = [session.messages.get(uid) for uid in at]
    return [str(message.content.words) for message in shown if message.role.value != "system"]


def only(client: Client) -> Session:
    (info,) = client.sessions()
    return client.session(info.id, create=False)


def test_a_chatgpt_conversation_comes_with_all_its_branches(client: Client, tmp_path: Path) -> None:
    result = client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    assert (result.format, result.sessions, result.skipped) == ("chatgpt", 1, 0)
    session = only(client)
    assert texts(session) == [
        "Name a knot",
        "A bowline.",
        "How strong is it?",
        "[call of python]\nstrength()",
        "[result of python]\n65 %",
        "[image: sediment://f1]\n\nLike this?\n\n[attachment: rope.pdf]",
        "Yes.",
    ]
    assert texts(session, "main_fork_1") == ["Name a knot", "A sheet bend."]
    assert texts(session, "main_fork_2") == ["Name a knot", "A bowline.", "Is it strong"]
    assert str(session.tree()).splitlines() == [
        "main (8 messages)",
        "├─ main_fork_1 (3 messages, forked after 2)",
        "└─ main_fork_2 (4 messages, forked after 3)",
    ]
    system = session.branches["main_fork_1"].system
    assert system is not None
    assert system.rendered == "I sail.\n\nBe brief."


def test_titles_times_models_and_reasoning_are_kept(client: Client, tmp_path: Path) -> None:
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    (info,) = client.sessions(contains="knots")
    assert (info.key, info.title) == ("chatgpt-c-1", "Knots")
    assert info.created_at == datetime(2024, 6, 1, 0, 0, 0, 250_000, UTC)
    session = only(client)
    question, answer, _, call, *_ = (
        session.messages.get(uid)
        for uid in session.branches["main"]
        if session.messages.get(uid).role.value != "system"
    )
    assert question.created_at == datetime(2024, 6, 1, 0, 0, 1, 250_000, UTC)
    assert answer.metadata["model"] == "gpt-4o"
    assert call.content.to_dict()["reasoning"] == "Look it up."


def test_imported_conversations_are_found_committed_and_continued(
    client: Client, tmp_path: Path
) -> None:
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    session = only(client)
    (hit,) = client.search_messages("sheet bend")
    assert hit.session == session.id
    session.add_message("user", "I live in Oslo.")
    session.commit()
    assert any("Oslo" in match.abstract for match in client.find("Where does the user live? Oslo"))
    session.fork("main_fork_1", name="mine")
    assert texts(session, "mine") == ["Name a knot", "A sheet bend."]


@pytest.mark.parametrize("kind", ["zip", "folder", "parts", "one"])
def test_the_zip_its_folder_and_split_files_are_read(
    client: Client, tmp_path: Path, kind: str
) -> None:
    chats = [chatgpt(*knots(), id="one"), chatgpt(*knots(), id="two")]
    if kind == "zip":
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("user.json", "{}")
            packed.writestr("data/conversations.json", json.dumps(chats))
            packed.writestr("chat.html", "<html>")
    elif kind == "parts":
        path = tmp_path / "export"
        path.mkdir()
        for number, chat in enumerate(chats):
            saved(path, [chat], f"conversations-00{number}.json")
    elif kind == "folder":
        path = tmp_path / "export"
        path.mkdir()
        saved(path, chats)
    else:
        path = saved(tmp_path, json.dumps(chats[0], indent=1))
        chats.pop()
    result = client.import_sessions(path)
    assert (result.sessions, result.new_sessions, result.new_branches) == (
        len(chats),
        len(chats),
        3 * len(chats),
    )


# Importing again


def histories(client: Client) -> dict[str, list[str]]:
    session = only(client)
    return {branch.name: texts(session, branch.name) for branch in session.branches}


@pytest.mark.parametrize("reopened", [False, True])
def test_importing_again_changes_nothing(client: Client, tmp_path: Path, reopened: bool) -> None:
    path = saved(tmp_path, [chatgpt(*knots())])
    client.import_sessions(path)
    before = histories(client)
    with sennit.open(tmp_path / "store.db") as other:
        again = (other if reopened else client).import_sessions(path)
    assert (again.new_sessions, again.new_branches, again.new_messages) == (0, 0, 0)
    assert histories(client) == before


def test_a_conversation_that_has_grown_extends_its_branch(client: Client, tmp_path: Path) -> None:
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    grown = [*knots(), node("q4", "a3", "user", "Thanks")]
    result = client.import_sessions(saved(tmp_path, [chatgpt(*grown)]))
    assert (result.new_branches, result.new_messages) == (0, 1)
    assert histories(client)["main"][-2:] == ["Yes.", "Thanks"]


def test_a_changed_message_makes_a_branch_that_shares_the_rest(
    client: Client, tmp_path: Path
) -> None:
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    before = histories(client)
    changed = knots()
    changed[-1]["message"]["content"]["parts"] = ["Yes, indeed."]
    path = saved(tmp_path, [chatgpt(*changed)])
    result = client.import_sessions(path)
    assert (result.new_branches, result.new_messages) == (1, 1)
    assert client.import_sessions(path).new_branches == 0
    after = histories(client)
    assert after.pop("main_fork_3") == [*before["main"][:-1], "Yes, indeed."]
    assert after == before


def test_what_was_continued_here_stays_and_what_is_new_there_gets_a_branch(
    client: Client, tmp_path: Path
) -> None:
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())]))
    only(client).add_message("user", "Mine")
    grown = saved(tmp_path, [chatgpt(*knots(), node("q4", "a3", "user", "Thanks"))])
    for new in (1, 0):
        result = client.import_sessions(grown)
        assert (result.new_branches, result.new_messages) == (new, new)
    after = histories(client)
    assert after["main"][-2:] == ["Yes.", "Mine"]
    assert after["main_fork_3"][-2:] == ["Yes.", "Thanks"]


# Claude


def claude(*messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "uuid": "c0ffee00-0000-4000-8000-000000000001",
        "name": "Ropes",
        "summary": "",
        "created_at": "2025-03-01T10:00:00.000000Z",
        "updated_at": "2025-03-01T11:00:00.000000Z",
        "account": {"uuid": "a"},
        "chat_messages": list(messages),
    }


def turn(
    key: str, sender: str, text: str, parent: str | None = None, **more: Any
) -> dict[str, Any]:
    above = {} if parent is None else {"parent_message_uuid": parent}
    return {
        "uuid": key,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": "2025-03-01T10:00:01.5Z",
        "updated_at": "2025-03-01T10:00:01.5Z",
        "attachments": [],
        "files": [],
        **above,
        **more,
    }


FIRST = "00000000-0000-4000-8000-000000000000"


def test_a_claude_conversation_keeps_branches_tools_and_attachments(
    client: Client, tmp_path: Path
) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Search."},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "rope"}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "hemp"}]},
        {"type": "text", "text": "Hemp."},
        {"type": "text", "text": "Or nylon."},
    ]
    notes = [{"file_name": "a.txt", "file_size": 4, "extracted_content": "manila"}]
    chat = claude(
        turn("1", "human", "Which rope?", FIRST, attachments=notes, files=[{"file_name": "b.png"}]),
        turn("2", "assistant", "", "1", content=blocks),
        turn("3", "assistant", "Sisal.", "1"),
    )
    result = client.import_sessions(saved(tmp_path, [chat]))
    assert (result.format, result.new_messages) == ("claude", 6)
    session = only(client)
    question = "Which rope?\n\n[attachment: a.txt]\nmanila\n\n[file: b.png]"
    assert texts(session) == [question, "Sisal."]
    other = [session.messages.get(uid).content.to_dict() for uid in session.branches["main_fork_1"]]
    assert other[1:] == [
        {"assistant_response": "Let me see.", "reasoning": "Search."},
        {"function": "search", "arguments": {"q": "rope"}, "call_id": "t1"},
        {"request_id": "t1", "result": "hemp"},
        {"assistant_response": "Hemp.\n\nOr nylon."},
    ]
    assert client.sessions()[0].title == "Ropes"
    first = session.messages.get(session.branches["main"][0])
    assert first.created_at == datetime(2025, 3, 1, 10, 0, 1, 500_000, UTC)


def test_claude_messages_without_parents_follow_each_other(client: Client, tmp_path: Path) -> None:
    old = [turn("1", "human", "Hi"), turn("2", "assistant", "Hello"), turn("3", "human", "Bye")]
    client.import_sessions(saved(tmp_path, [claude(*old)]))
    assert histories(client) == {"main": ["Hi", "Hello", "Bye"]}


# OpenAI chat JSONL


def line(*messages: dict[str, Any], **more: Any) -> str:
    return json.dumps({"messages": list(messages), **more})


SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Where does Ada live?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"who": "Ada"}'}}


def test_openai_lines_with_tool_calls_are_imported(client: Client, tmp_path: Path) -> None:
    called = line(
        SYSTEM,
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "London"},
        {"role": "assistant", "content": "In London.", "weight": 1},
        tools=[],
    )
    result = client.import_sessions(saved(tmp_path, called + "\n", "train.jsonl"))
    assert (result.format, result.new_messages) == ("openai", 5)
    session = only(client)
    contents = [session.messages.get(uid).content.to_dict() for uid in session.branches["main"]]
    assert contents == [
        {"system_message": "Be brief."},
        {"instruction": "Where does Ada live?"},
        {"function": "look", "arguments": {"who": "Ada"}, "call_id": "c1"},
        {"request_id": "c1", "result": "London"},
        {"assistant_response": "In London."},
    ]


def test_lines_that_begin_alike_are_branches_and_their_order_does_not_matter(
    client: Client, tmp_path: Path
) -> None:
    answers = [
        line(SYSTEM, ASKED, {"role": "assistant", "content": text}) for text in ("London", "Paris")
    ]
    other = line({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})
    path = saved(tmp_path, "\n".join([*answers, other]), "a.jsonl")
    assert client.import_sessions(path).sessions == 3
    assert len(client.sessions()) == 2
    again = client.import_sessions(saved(tmp_path, "\n".join([other, *answers[::-1]]), "b.jsonl"))
    assert (again.new_sessions, again.new_branches, again.new_messages) == (0, 0, 0)


@pytest.mark.parametrize("store", ["recurring.db", ":memory:"])
def test_a_session_that_recurs_far_apart_in_a_file_is_one(tmp_path: Path, store: str) -> None:
    lines = [
        line(
            {"role": "user", "content": f"Question {number}"},
            {"role": "assistant", "content": answer},
        )
        for answer in ("first", "second", "first")
        for number in range(40)
    ]
    path = saved(tmp_path, "\n".join(lines), "a.jsonl")
    address = store if store == ":memory:" else tmp_path / store
    with sennit.open(address) as client:
        result = client.import_sessions(path)
        assert (result.sessions, result.new_sessions, result.new_branches) == (120, 40, 80)
        assert (result.new_messages, result.problems) == (120, ())
        for info in client.sessions():
            session = client.session(info.id)
            assert texts(session)[1:] == ["first"]
            assert texts(session, "main_fork_1")[1:] == ["second"]


# llm's logs.db, in the schema of its versions before 0.32 and since

OLD_SCHEMA = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT,
    prompt_json TEXT, options_json TEXT, response TEXT, response_json TEXT,
    conversation_id TEXT REFERENCES conversations(id), duration_ms INTEGER, datetime_utc TEXT,
    input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, schema_id TEXT,
    resolved_model TEXT);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER,
    PRIMARY KEY (response_id, attachment_id));
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, datetime_utc TEXT,
    source TEXT);
CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER,
    PRIMARY KEY (response_id, fragment_id, "order"));
CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT,
    arguments TEXT, tool_call_id TEXT);
CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT,
    output TEXT, tool_call_id TEXT, instance_id INTEGER, exception TEXT);
"""
NEW_SCHEMA = """
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT,
    provider_metadata TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT,
    tool_name TEXT, text TEXT, payload TEXT);
CREATE TABLE part_attachments (part_id INTEGER, attachment_id TEXT, "order" INTEGER);
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT,
    datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT,
    tip_message_hash TEXT, model TEXT, resolved_model TEXT, options_json TEXT, schema_id TEXT,
    input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, duration_ms INTEGER,
    datetime_utc TEXT, response_json TEXT);
"""
OLD_ROWS = """
INSERT INTO conversations VALUES ('01a', 'Knots', 'gpt-4o');
INSERT INTO responses (id, model, prompt, system, response, conversation_id, datetime_utc) VALUES
    ('r1', 'gpt-4o', 'Name a knot', 'Be brief.', '', '01a', '2025-05-01T10:00:00.5'),
    ('r2', 'gpt-4o', '', 'Be brief.', 'A bowline.', '01a', '2025-05-01T10:00:01'),
    ('r3', 'gpt-4o', 'And this?', NULL, 'A bend.', '01a', '2025-05-01T10:00:02');
INSERT INTO tool_calls VALUES (1, 'r1', NULL, 'look', '{"n": 1}', 'c1');
INSERT INTO tool_results VALUES (1, 'r2', NULL, 'look', 'bowline', 'c1', NULL, NULL);
INSERT INTO fragments VALUES (1, 'h', 'A long text.', NULL, NULL);
INSERT INTO prompt_fragments VALUES ('r3', 1, 0);
INSERT INTO attachments VALUES ('f', 'image/png', '/tmp/a.png', NULL, x'89');
INSERT INTO prompt_attachments VALUES ('r3', 'f', 0);
"""
NEW_ROWS = """
INSERT INTO messages VALUES ('s', NULL, 'system', NULL), ('q', 's', 'user', NULL),
    ('c', 'q', 'assistant', NULL), ('t', 'c', 'tool', NULL), ('a', 't', 'assistant', NULL),
    ('q2', 'a', 'user', NULL), ('a2', 'q2', 'assistant', NULL), ('a3', 'q2', 'assistant', NULL);
INSERT INTO parts (message_hash, position, type, tool_name, text, payload) VALUES
    ('s', 0, 'text', NULL, 'Be brief.', NULL), ('q', 0, 'text', NULL, 'Name a knot', NULL),
    ('c', 0, 'tool_call', 'look', NULL,
        '{"name": "look", "arguments": {"n": 1}, "tool_call_id": "c1"}'),
    ('t', 0, 'tool_result', 'look', NULL,
        '{"name": "look", "output": "bowline", "tool_call_id": "c1"}'),
    ('a', 0, 'text', NULL, 'A bowline.', NULL),
    ('q2', 0, 'text', NULL, NULL, '{"text_ref": [{"fragment": 1}, {"literal": "\\nAnd this?"}]}'),
    ('q2', 1, 'attachment', NULL, NULL, '{"attachment": {"id": "f"}}'),
    ('a2', 0, 'text', NULL, 'A bend.', NULL), ('a3', 0, 'text', NULL, 'A hitch.', NULL);
INSERT INTO threads VALUES ('01a', 'Knots', 'a2', NULL, '2025-05-01 10:00:00.5+00:00'),
    ('01b', NULL, 'a3', '01a', '2025-05-02 10:00:00+00:00');
INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model, datetime_utc)
VALUES ('r2', '01a', 't', 'a', 'gpt-4o', '2025-05-01T10:00:01'),
    ('r3', '01a', 'q2', 'a2', 'gpt-4o', '2025-05-01T10:00:02');
"""
LOGGED = [
    "Name a knot",
    "function: look\narguments:\n  n: 1",
    "success: true\nrequest_id: c1\nresult: bowline",
    "A bowline.",
    "A long text.\nAnd this?\n\n[attachment: /tmp/a.png]",
    "A bend.",
]


def logged(path: Path, *scripts: str) -> Path:
    with closing(sqlite3.connect(path)) as log:
        log.executescript("".join(scripts))
    return path


def test_the_logs_of_older_llm_versions_are_imported(client: Client, tmp_path: Path) -> None:
    result = client.import_sessions(logged(tmp_path / "logs.db", OLD_SCHEMA, OLD_ROWS))
    assert (result.format, result.sessions, result.skipped) == ("llm", 1, 0)
    assert histories(client) == {"main": LOGGED}
    (info,) = client.sessions()
    assert (info.key, info.title) == ("llm-01a", "Knots")
    assert info.created_at == datetime(2025, 5, 1, 10, 0, 0, 500_000, UTC)


def test_forked_threads_of_llm_are_branches(client: Client, tmp_path: Path) -> None:
    path = logged(tmp_path / "logs.db", OLD_SCHEMA, OLD_ROWS, NEW_SCHEMA, NEW_ROWS)
    assert client.import_sessions(path).sessions == 1
    assert histories(client) == {"main": LOGGED, "main_fork_1": [*LOGGED[:-1], "A hitch."]}
    session = only(client)
    answer = session.messages.get(session.branches["main"][-1])
    assert answer.metadata["model"] == "gpt-4o"


def test_a_conversation_is_the_same_before_and_after_llm_was_updated(
    client: Client, tmp_path: Path
) -> None:
    client.import_sessions(logged(tmp_path / "old.db", OLD_SCHEMA, OLD_ROWS))
    rows = NEW_ROWS.replace(", ('a3', 0, 'text', NULL, 'A hitch.', NULL)", "")
    result = client.import_sessions(
        logged(tmp_path / "new.db", OLD_SCHEMA, OLD_ROWS, NEW_SCHEMA, rows)
    )
    assert (result.new_branches, result.new_messages) == (0, 0)
    assert histories(client) == {"main": LOGGED}


# Bad files


def looped() -> dict[str, Any]:
    return chatgpt(node("a", "b", "user", "1"), node("b", "a", "user", "2"), id="loop")


BAD: dict[str, tuple[Any, str]] = {
    "cycle": (looped(), "in a cycle"),
    "not an object": (["a"], "A conversation is an object"),
    "no known key": ({"x": 1}, "neither 'mapping'"),
    "wrong types": ({"mapping": [1]}, "mapping must be an object"),
    "wrong parts": (
        chatgpt(node("a", None, "user", content={"content_type": "text", "parts": 5})),
        "parts must be a list",
    ),
    "wrong time": (chatgpt(node("a", None, "user", "Hi", time="now")), "seconds since 1970"),
    "far time": (chatgpt(node("a", None, "user", "Hi", time=1e300)), "seconds since 1970"),
    "wrong sender": (claude(turn("1", "robot", "Hi")), "sender is 'human' or 'assistant'"),
    "wrong ISO time": (claude(turn("1", "human", "Hi", created_at="soon")), "ISO 8601"),
    "twice": (claude(turn("1", "human", "Hi"), turn("1", "human", "Ho")), "Two messages"),
    "wrong role": ({"messages": [{"role": "robot", "content": "Hi"}]}, "Message 1: "),
    "no messages": ({"messages": []}, "has no messages"),
    "wrong arguments": (
        {"messages": [{"role": "assistant", "function_call": {"name": "a", "arguments": "{"}}]},
        "not JSON",
    ),
    "calls that are no list": (
        {"messages": [{"role": "assistant", "tool_calls": 5}]},
        "tool_calls is a list",
    ),
}


def test_a_very_long_title_is_shortened_and_the_conversation_imported(
    client: Client, tmp_path: Path
) -> None:
    chat = chatgpt(node("a", None, "user", "Hi")) | {"title": "x" * 9000}
    assert client.import_sessions(saved(tmp_path, [chat])).problems == ()
    (info,) = client.sessions()
    assert info.title == f"{'x' * 2000}…"


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_conversation_is_named_and_the_rest_is_imported(
    client: Client, tmp_path: Path, kind: str
) -> None:
    bad, reason = BAD[kind]
    good = claude(turn("g", "human", "Good"))
    result = client.import_sessions(saved(tmp_path, [bad, good]))
    (problem,) = result.problems
    assert problem.startswith("conversations.json, conversation 1: ")
    assert reason in problem
    assert (result.sessions, result.skipped) == (1, 1)
    assert histories(client) == {"main": ["Good"]}


RAW = {
    "deep nesting": ('{"mapping": ' + "[" * 200_000 + "]" * 200_000 + "}", "nested too deeply"),
    "deep part": ('{"messages": [{"role": ' + "[" * 200 + "]" * 200 + "}]}", "one of"),
    "no value": ('{"mapping": }', "Invalid JSON"),
    "not UTF-8": ('{"mapping": "\udcff"}', "Invalid JSON"),
}


@pytest.mark.parametrize("kind", RAW)
def test_bad_json_is_named_and_the_rest_is_imported(
    client: Client, tmp_path: Path, kind: str
) -> None:
    bad, reason = RAW[kind]
    good = json.dumps(claude(turn("g", "human", "Good")))
    result = client.import_sessions(saved(tmp_path, f"[{bad},\n{good}]"))
    assert [reason in problem for problem in result.problems] == [True]
    assert histories(client) == {"main": ["Good"]}


def test_half_an_emoji_and_nul_do_not_lose_a_conversation(client: Client, tmp_path: Path) -> None:
    text = json.dumps(
        [chatgpt(node("a", None, "user", "cut \ud83d here, \U0001f600 \\ud83d not, \0 nul"))]
    )
    assert "\\ud83d\\ude00" in text
    assert client.import_sessions(saved(tmp_path, text)).skipped == 0
    assert texts(only(client)) == ["cut \ufffd here, \U0001f600 \\ud83d not, \ufffd nul"]


def test_citations_of_chatgpt_become_links(client: Client, tmp_path: Path) -> None:
    mark = "\ue200cite\ue202turn0search0\ue201"
    references = [
        {"matched_text": mark, "alt": "([Knots](https://knots.example))", "items": []},
        {"matched_text": " ", "alt": "", "type": "sources_footnote"},
    ]
    answer = node(
        "a",
        "q",
        "assistant",
        f"A bowline {mark} holds.\ue200navlist\ue202x\ue201",
        metadata={"content_references": references},
    )
    client.import_sessions(
        saved(tmp_path, [chatgpt(node("q", None, "user", "Name a knot"), answer)])
    )
    assert texts(only(client))[1] == "A bowline ([Knots](https://knots.example)) holds."


def test_a_number_among_the_parts_and_a_call_with_a_text_are_kept(
    client: Client, tmp_path: Path
) -> None:
    content = {"content_type": "text", "parts": [12, None, "knots"]}
    client.import_sessions(saved(tmp_path, [chatgpt(node("a", None, "user", content=content))]))
    assert texts(only(client)) == ["12\n\nknots"]
    call = {"type": "tool_use", "id": "c", "name": "search", "input": "knots"}
    told = turn("2", "assistant", "", content=[call], parent_message_uuid="1")
    asked = claude(turn("1", "human", "Look"), told)
    assert client.import_sessions(saved(tmp_path, [asked], "claude.json")).skipped == 0


@pytest.mark.parametrize("end", [1, 60])
def test_a_file_that_is_cut_off_is_imported_up_to_there(
    client: Client, tmp_path: Path, end: int
) -> None:
    text = json.dumps([claude(turn("g", "human", "Good")), chatgpt(*knots())])
    result = client.import_sessions(saved(tmp_path, text[:-end]))
    assert result.skipped == 1
    assert "the file ends within it" in result.problems[0]


def test_a_line_that_is_cut_off_does_not_hide_the_next(client: Client, tmp_path: Path) -> None:
    good = line(ASKED, {"role": "assistant", "content": "London"})
    other = line({"role": "user", "content": "Hi"})
    result = client.import_sessions(saved(tmp_path, f"{good}\n{good[:40]}\n{other}\n", "a.jsonl"))
    assert (result.sessions, result.skipped) == (2, 1)
    assert "conversation 2" in result.problems[0]


def test_hostile_ids_and_names_cannot_reach_other_sessions(client: Client, tmp_path: Path) -> None:
    client.session("mine").add_message("user", "secret")
    ids = ["../mine", "mine\n\x1b[2J", "x" * 5000, "\u202egnp.exe"]
    chats = [chatgpt(node("a", None, "user", "Hi"), id=name) for name in ids]
    assert client.import_sessions(saved(tmp_path, chats)).new_sessions == len(ids)
    keys = [info.key or "" for info in client.sessions() if info.key != "mine"]
    assert all(key.startswith("chatgpt-") and key.isprintable() for key in keys)
    assert all(len(key) < 120 for key in keys)


def test_a_zip_bomb_is_refused(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("conversations.json", "w") as stream,
    ):
        for _ in range(140):
            stream.write(b" " * (1 << 20))
    with pytest.raises(ArchiveError, match="zip bomb"):
        client.import_sessions(path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.json", b"", "in none of the formats"),
        ("a.json", b"hello", "in none of the formats"),
        ("a.json", b'[{"a": 1}]', "neither 'mapping'"),
        ("a.json", b"\xff\xfe[\0", "UTF-16"),
        ("a.zip", b"PK\x05\x06" + bytes(18), "no conversations"),
        ("a.db", b"SQLite format 3\0" + bytes(200), "could not be read as llm's logs"),
    ],
)
def test_a_file_of_no_known_format_is_refused(
    client: Client, tmp_path: Path, name: str, content: bytes, match: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match=match):
        client.import_sessions(path)
    assert client.sessions() == []


def test_a_foreign_database_is_refused_and_its_views_are_not_read(
    client: Client, tmp_path: Path
) -> None:
    views = "CREATE VIEW responses AS SELECT 'r' AS id, 'Hi' AS prompt, 'Ho' AS response;"
    with pytest.raises(ArchiveError, match=r"not llm's logs\.db"):
        client.import_sessions(logged(tmp_path / "a.db", views))


def test_logs_with_damaged_rows_are_imported_without_them(client: Client, tmp_path: Path) -> None:
    bad = """
    INSERT INTO threads VALUES ('01c', 'Lost', 'gone', NULL, NULL), ('01d', 'a', 'x1', '01e', NULL),
        ('01e', 'b', 'x1', '01d', NULL), ('01f', 'c', 'x3', NULL, NULL);
    INSERT INTO messages VALUES ('x1', 'x2', 'user', NULL), ('x2', 'x1', 'user', NULL),
        ('x3', NULL, 'user', NULL);
    INSERT INTO parts (message_hash, position, type, text) VALUES
        ('x1', 0, 'text', 'a'), ('x3', 0, 'text', CAST(x'ff' AS TEXT));
    """
    path = logged(tmp_path / "logs.db", OLD_SCHEMA, OLD_ROWS, NEW_SCHEMA, NEW_ROWS, bad)
    result = client.import_sessions(path)
    assert (result.sessions, result.skipped) == (1, 3)
    assert "'gone' is missing" in result.problems[0]
    assert "in a cycle" in result.problems[1]
    assert "lone surrogate" in result.problems[2]


def test_logs_with_values_of_other_types_are_imported_without_them(
    client: Client, tmp_path: Path
) -> None:
    bad = """
    INSERT INTO responses (id, prompt, conversation_id) VALUES
        (x'00', 'Hi', '01x'), ('r5', 'Ho', '01x'), ('r6', 'Ho', CAST(x'ff' AS TEXT)),
        ('r7', 'Ho', '01y'), ('r8', 'Ho', '01z'), ('r9', 'Ho', '01z');
    INSERT INTO fragments VALUES (2, 'h', x'00', NULL, NULL), (3, 'h', 'A', NULL, NULL);
    INSERT INTO prompt_fragments VALUES ('r7', 2, 0), ('r8', 3, 'x'), ('r8', 3, 1);
    INSERT INTO threads VALUES ('01t', 'Wide', 'w', NULL, NULL), ('01u', 'List', 'l', NULL, NULL);
    INSERT INTO messages VALUES ('w', NULL, 'user', NULL), ('l', NULL, 'user', NULL);
    INSERT INTO parts (message_hash, position, type, payload) VALUES
        ('w', 'x', 'text', '{"text_ref": [{"fragment": 99999999999999999999}]}'), ('w', 1, 'x', ''),
        ('l', 0, 'attachment', '{"attachment": {"id": []}}');
    """
    path = logged(tmp_path / "logs.db", OLD_SCHEMA, OLD_ROWS, NEW_SCHEMA, NEW_ROWS, bad)
    result = client.import_sessions(path)
    assert [problem.partition(":")[0] for problem in result.problems] == [
        "thread '01t'",
        "thread '01u'",
        "conversation '01y'",
        "conversation '\\udcff'",
    ]
    assert (result.sessions, result.skipped) == (3, 4)
    assert client.import_sessions(path).new_messages == 0


def test_logs_without_a_column_are_imported(client: Client, tmp_path: Path) -> None:
    columns = "ALTER TABLE responses DROP COLUMN system; ALTER TABLE parts DROP COLUMN position;"
    path = logged(tmp_path / "logs.db", OLD_SCHEMA, OLD_ROWS, NEW_SCHEMA, NEW_ROWS, columns)
    assert (client.import_sessions(path).sessions, client.import_sessions(path).skipped) == (1, 0)


def test_imports_beside_each_other_bring_in_all_that_both_have(
    client: Client, tmp_path: Path
) -> None:
    turns = [turn(str(n), "human", f"Message {n}") for n in range(6)]
    old, new = (
        saved(tmp_path, [claude(*turns[:length])], name) for name, length in ((("a", 3), ("b", 6)))
    )
    pending = [old]

    def import_meanwhile(_done: int, _total: int) -> None:
        if pending:
            with sennit.open(tmp_path / "store.db") as other:
                other.import_sessions(pending.pop())

    result = client.import_sessions(new, import_meanwhile)
    assert (result.sessions, result.new_sessions, result.problems) == (1, 0, ())
    assert result.new_messages == 3
    assert histories(client) == {"main": [f"Message {n}" for n in range(6)]}


def test_an_import_beside_a_user_who_goes_on_leaves_their_branch_alone(
    client: Client, tmp_path: Path
) -> None:
    turns = [turn(str(n), "human", f"Message {n}") for n in range(4)]
    client.import_sessions(saved(tmp_path, [claude(*turns[:2])], "a"))
    pending = ["Mine"]

    def go_on(_done: int, _total: int) -> None:
        if pending:
            only(client).add_message("user", pending.pop())

    result = client.import_sessions(saved(tmp_path, [claude(*turns)], "b"), go_on)
    assert (result.new_messages, result.new_branches, result.problems) == (2, 1, ())
    first, whole = ["Message 0", "Message 1"], [f"Message {n}" for n in range(4)]
    assert histories(client) == {"main": [*first, "Mine"], "main_fork_1": whole}


def test_the_format_can_be_named_and_typos_get_the_nearest(client: Client, tmp_path: Path) -> None:
    path = saved(tmp_path, [chatgpt(*knots())])
    with pytest.raises(ValidationError, match=r"Did you mean 'chatgpt'"):
        client.import_sessions(path, format="chatgtp")  # type: ignore[arg-type]
    assert client.import_sessions(path, format="claude").problems  # nothing of it is like that
    with pytest.raises(ArchiveError, match="not a SQLite file"):
        client.import_sessions(path, format="llm")
    assert client.import_sessions(path, format="chatgpt").new_sessions == 1


# Big files


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_entries_are_the_same_however_the_file_is_read(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    odd = 'a "quoted" \\ [text] {with} \\" \u00e9\U0001f9f6'
    chats = [
        chatgpt(node("a", None, "user", f"{odd}{number}"), id=str(number)) for number in range(3)
    ]
    path = saved(tmp_path, "\ufeff" + json.dumps(chats, ensure_ascii=chunk % 2 == 0))
    monkeypatch.setattr(files, "_CHUNK_BYTES", chunk)
    assert client.import_sessions(path).sessions == 3
    found = [texts(client.session(info.id)) for info in client.sessions()]
    assert sorted(found) == [[f"{odd}{number}"] for number in range(3)]


def test_memory_does_not_grow_with_the_file(client: Client, tmp_path: Path) -> None:
    chats = (
        json.dumps(chatgpt(node("a", None, "user", "Hi", padding="x" * 1_000_000), id=str(number)))
        for number in range(40)
    )
    path = tmp_path / "conversations.json"
    with path.open("w") as stream:
        stream.write("[")
        for number, chat in enumerate(chats):
            stream.write("," * bool(number) + chat)
        stream.write("]")
    seen: list[tuple[int, int]] = []
    client.import_sessions(saved(tmp_path, [chatgpt(*knots())], "small.json"))  # warms up
    tracemalloc.start()
    client.import_sessions(path, lambda done, total: seen.append((done, total)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {path.stat().st_size}
    assert seen[-1][0] >= seen[-1][1] - 2


# The command


def test_the_command_counts_names_what_it_skipped_and_ends_with_1(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "a.db")]
    path = saved(tmp_path, [chatgpt(*knots()), looped()])
    done = CliRunner().invoke(app, ["import", str(path), *store])
    assert done.exit_code == 1
    assert done.stdout == "1 session: 1 new session, 3 new branches, 10 new messages\n"
    assert done.stderr.splitlines() == [
        "skipped: conversations.json, conversation 2: Its messages name each other as parents in "
        "a cycle.",
        "1 conversation could not be read.",
    ]
    good = CliRunner().invoke(app, ["import", str(saved(tmp_path, [chatgpt(*knots())])), *store])
    assert (good.exit_code, good.stdout) == (0, "1 session: nothing new\n")
    typo = CliRunner().invoke(app, ["import", str(path), "--format", "claud", *store])
    assert "Did you mean 'claude'?" in typo.stderr


def test_a_chat_that_names_a_blob_is_not_imported(client: Client, tmp_path: Path) -> None:
    reference = client.session("mine").put_blob(b"a secret" * 200, "image/png").reference
    picture = {"type": "image_url", "image_url": {"url": reference}}
    chats = [
        [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "I see."}],
        [{"role": "user", "content": reference}, {"role": "assistant", "content": "A text."}],
    ]
    lines = "\n".join(json.dumps({"messages": messages}) for messages in chats)
    result = client.import_sessions(saved(tmp_path, lines, "a.jsonl"))
    assert (result.new_sessions, result.skipped) == (1, 1)
    assert "names a blob" in result.problems[0]

"""The virtual file system: one tree, confined, with every version kept."""

from __future__ import annotations

import json

import pytest

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Client,
    ExistsError,
    InstructionContent,
    Message,
    NotFoundError,
    TextPart,
    ToolPart,
    ValidationError,
    clock,
)
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from tests.memory.remembering import TALK, client, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

NOTE = "viking://user/notes/knots.md"


def names(client: Client, uri: str) -> list[str]:
    return [one.name + "/" * one.is_folder for one in client.fs.ls(uri)]


def test_the_tree_is_there_from_the_start(client: Client) -> None:
    assert client.fs.tree() == "\n".join(
        [
            "viking://",
            "├── session/",
            "├── user/",
            "│   └── memories/",
            "│       ├── entities/",
            "│       ├── events/",
            "│       └── preferences/",
            "├── agent/",
            "│   ├── memories/",
            "│   │   ├── cases/",
            "│   │   └── patterns/",
            "│   └── skills/",
            "└── resources/",
        ]
    )


def test_what_is_written_is_read_and_listed(client: Client) -> None:
    entry = client.fs.write(NOTE, "A bowline does not slip.\n")
    assert client.fs.read(NOTE) == "A bowline does not slip.\n"
    assert (entry.size, entry.version, entry.is_folder) == (25, 1, False)
    assert client.fs.stat(NOTE) == entry
    assert names(client, "viking://user") == ["memories/", "notes/"]
    assert names(client, "viking://user/notes") == ["knots.md"]
    assert client.fs.ls(NOTE) == [entry]
    assert client.fs.abstract(NOTE) == "A bowline does not slip."


def test_writing_again_makes_a_version_and_the_same_again_none(client: Client) -> None:
    for text in ("one", "two", "two"):
        client.fs.write(NOTE, text)
    assert [one.text for one in client.memory.history(NOTE)] == ["one", "two"]
    assert client.fs.stat(NOTE).version == 2


def test_files_and_folders_do_not_stand_in_each_others_place(client: Client) -> None:
    client.fs.write(NOTE, "x")
    for uri in (
        f"{NOTE}/deeper.md",
        "viking://user/notes",
        "viking://user",
        "viking://user/memories",
    ):
        with pytest.raises(ExistsError):
            client.fs.write(uri, "x")
    with pytest.raises(ExistsError):
        client.fs.mkdir(NOTE)
    with pytest.raises(ExistsError):
        client.fs.mkdir(f"{NOTE}/deeper")


def test_a_folder_can_be_made_moved_and_removed(client: Client) -> None:
    for _ in range(2):
        client.fs.mkdir("viking://resources/manuals/old")
    assert names(client, "viking://resources/manuals") == ["old/"]
    assert client.fs.ls("viking://resources/manuals/old") == []
    client.fs.write("viking://resources/manuals/old/a.md", "a")
    client.fs.mv("viking://resources/manuals/old", "viking://resources/attic")
    assert client.fs.read("viking://resources/attic/a.md") == "a"
    with pytest.raises(ExistsError, match="recursive"):
        client.fs.rm("viking://resources/attic")
    assert client.fs.rm("viking://resources/attic", recursive=True) == 1
    assert client.fs.ls("viking://resources") == []


def test_a_moved_file_keeps_its_history_also_to_another_scope(client: Client) -> None:
    for text in ("one", "two"):
        client.fs.write(NOTE, text)
    for target in ("viking://user/b.md", "viking://resources/c.md"):
        client.fs.mv(NOTE if target.endswith("b.md") else "viking://user/b.md", target)
        assert [one.text for one in client.memory.history(target)] == ["one", "two"]
    assert not client.fs.exists(NOTE)
    assert names(client, "viking://user") == ["memories/"]


def test_a_move_overwrites_nothing_and_goes_not_into_itself(client: Client) -> None:
    client.fs.write(NOTE, "x")
    client.fs.write("viking://user/other.md", "y")
    with pytest.raises(ExistsError):
        client.fs.mv(NOTE, "viking://user/other.md")
    with pytest.raises(ValidationError, match="inside"):
        client.fs.mv("viking://user/notes", "viking://user/notes/deeper")
    with pytest.raises(ValidationError, match="built-in folder"):
        client.fs.mv("viking://user/memories", "viking://user/mine")
    with pytest.raises(NotFoundError):
        client.fs.mv("viking://user/nothing", "viking://user/x")


def test_only_what_was_the_profile_moves_to_its_place(client: Client) -> None:
    profile = "viking://user/memories/profile.md"
    client.fs.write(NOTE, "I keep bees.")
    with pytest.raises(ValidationError, match="one fact per line"):
        client.fs.mv(NOTE, profile)
    talk(client.session("chat"), "My name is Ada.")
    client.session("chat").commit()
    client.fs.mv(profile, "viking://user/aside.md")
    client.fs.mv("viking://user/aside.md", profile)
    talk(client.session("chat"), "I live in Lisbon.")
    client.session("chat").commit()
    assert client.fs.read(profile).splitlines()[2:] == ["- My name is Ada.", "- I live in Lisbon."]


def test_what_is_not_there_is_not_found(client: Client) -> None:
    for ask in (
        client.fs.read,
        client.fs.stat,
        client.fs.ls,
        client.fs.rm,
        client.fs.abstract,
    ):
        for uri in ("viking://user/x.md", "viking://session/nobody", "viking://session/nobody/x"):
            if ask == client.fs.rm and "session" in uri:
                continue
            with pytest.raises(NotFoundError, match="no file or folder at"):
                ask(uri)


def test_whoever_reads_a_folder_is_told_that_it_is_one(client: Client) -> None:
    talk(client.session("chat"), "one")
    for folder in ("viking://user/memories", "viking://session/chat", "viking://session"):
        with pytest.raises(NotFoundError, match="is a folder"):
            client.fs.read(folder)


def test_sessions_are_read_here_and_changed_in_the_session(client: Client) -> None:
    talk(client.session("chat"), "one")
    uri = "viking://session/chat/messages.jsonl"
    for change in (
        lambda: client.fs.write(uri, "x"),
        lambda: client.fs.rm(uri),
        lambda: client.fs.mkdir("viking://session/new"),
        lambda: client.fs.mv(uri, "viking://user/x.jsonl"),
        lambda: client.fs.mv("viking://user/memories/events", "viking://session/x"),
    ):
        with pytest.raises(ValidationError):
            change()


def test_a_session_is_a_folder_of_views(client: Client) -> None:
    session = client.session("chat")
    talk(session, *TALK)
    session.commit()
    session.add_message("user", "What is a bowline?")
    assert names(client, "viking://session") == ["chat/"]
    assert names(client, "viking://session/chat") == [
        "messages.jsonl", ".abstract.md", ".overview.md", "history/", "tools/"
    ]  # fmt: skip
    archive = "viking://session/chat/history/archive_001"
    assert names(client, archive) == [
        "messages.jsonl", ".abstract.md", ".overview.md", "memory_diff.json", ".done"
    ]  # fmt: skip
    (line,) = client.fs.read("viking://session/chat/messages.jsonl").splitlines()
    assert json.loads(line)["parts"] == [{"type": "text", "text": "What is a bowline?"}]
    assert len(client.fs.read(f"{archive}/messages.jsonl").splitlines()) == 8
    abstract = client.fs.read(f"{archive}/.abstract.md")
    assert abstract.strip()
    assert len(abstract.strip().splitlines()) == 1
    assert len(abstract) <= 256
    assert client.fs.read(f"{archive}/.overview.md").startswith("# Session Summary")
    assert client.fs.overview(archive).startswith("# Session Summary")
    assert "bowline" in client.fs.abstract("viking://session/chat")
    diff = json.loads(client.fs.read(f"{archive}/memory_diff.json"))
    assert {one["did"] for one in diff["memories"]} == {"created"}
    done = json.loads(client.fs.read(f"{archive}/.done"))
    assert done["status"] == "committed"


def test_a_session_without_a_key_or_with_a_strange_one_goes_by_its_id(client: Client) -> None:
    session = client.session("a/b: c")
    talk(session, "one")
    assert names(client, "viking://session") == [f"{session.id}/"]
    assert client.fs.read(f"viking://session/{session.id}/messages.jsonl")


def test_tool_calls_have_folders(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "tie it")
    session.add_message(
        "assistant",
        [
            TextPart("Sure."),
            ToolPart("tie", {"knot": "bowline"}, output={"tied": True}, tool_id="call_1"),
            ToolPart("tie", {"knot": "slip"}, error="too hard", tool_id="../../etc"),
            ToolPart("tie", {"knot": "reef"}),
        ],
    )
    first, *others = names(client, "viking://session/chat/tools")
    assert first == "call_1/"
    assert len(others) == 2
    assert all(".." not in name for name in others)
    tool = json.loads(client.fs.read("viking://session/chat/tools/call_1/tool.json"))
    assert tool["name"] == "tie"
    assert tool["input"] == {"knot": "bowline"}
    assert tool["output"] == {"tied": True}
    assert len(client.fs.grep("too hard", "viking://session/chat/tools")) == 1


def test_messages_added_by_themselves_are_lines_too(client: Client) -> None:
    session = client.session("chat")
    main = session.default_branch
    call = Message(ActionRequestContent("tie", {"n": 1}, call_id="c1"))
    for message in (
        Message(InstructionContent(instruction="tie it")),
        call,
        Message(ActionResponseContent("c1", result="tied")),
        Message(AssistantResponseContent("Done.")),
    ):
        session.add_message(message, branches=main)
    lines = client.fs.read("viking://session/chat/messages.jsonl").splitlines()
    said = [(one["role"], one["parts"]) for one in map(json.loads, lines)]
    tool = {"type": "tool", "name": "tie", "input": {"n": 1}, "output": "tied", "tool_id": "c1"}
    assert [role for role, _ in said] == ["user", "assistant", "assistant"]
    assert [tool] in [parts for _, parts in said]
    assert json.loads(lines[0])["id"].startswith("msg_")


def test_glob_finds_by_names_and_over_folders(client: Client) -> None:
    for path in ("user/a.md", "user/notes/b.md", "user/notes/deep/c.md", "resources/d.txt"):
        client.fs.write(f"viking://{path}", "x")
    assert client.fs.glob("viking://user/*.md") == ["viking://user/a.md"]
    everything = ["viking://user/a.md", "viking://user/notes/b.md", "viking://user/notes/deep/c.md"]
    assert sorted(client.fs.glob("viking://user/**/*.md")) == everything
    assert client.fs.glob("*.md", "viking://user/notes") == ["viking://user/notes/b.md"]
    assert client.fs.glob("viking://**/d.*") == ["viking://resources/d.txt"]
    assert client.fs.glob("viking://user/a.md") == ["viking://user/a.md"]
    assert client.fs.glob("viking://user/nowhere/*") == []
    with pytest.raises(ValidationError):
        client.fs.glob("../*")


def test_grep_finds_lines_in_files_and_sessions(client: Client) -> None:
    client.fs.write(NOTE, "one\nA Bowline\nthree")
    talk(client.session("chat"), "tell me of the bowline")
    (found,) = client.fs.grep("bowline", "viking://user", ignore_case=True)
    assert (found.uri, found.number, found.line) == (NOTE, 2, "A Bowline")
    assert client.fs.grep("Bowline", NOTE) == [found]
    uris = {match.uri for match in client.fs.grep("[Bb]owline")}
    assert {NOTE, "viking://session/chat/messages.jsonl"} <= uris
    with pytest.raises(ValidationError, match="regular expression"):
        client.fs.grep("(")


def test_a_folder_says_what_is_in_it_unless_it_was_told(client: Client) -> None:
    client.fs.write(NOTE, "A bowline does not slip.")
    assert client.fs.abstract("viking://user/notes") == "- knots.md: A bowline does not slip."
    client.fs.write("viking://user/notes/.abstract.md", "All about knots.")
    assert client.fs.abstract("viking://user/notes") == "All about knots."
    assert "bowline" in client.fs.overview("viking://user/notes")


def test_too_much_text_and_none_at_all_are_refused(client: Client) -> None:
    with pytest.raises(ValidationError, match="at most"):
        client.fs.write(NOTE, "x" * ((1 << 20) + 1))
    with pytest.raises(TypeError):
        client.fs.write(NOTE, b"x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match="NUL"):
        client.fs.write(NOTE, "a\0b")


def test_everyone_has_files_of_their_own(store: Store) -> None:
    ada, bob = (Client(store, user=name, agent="helper") for name in ("ada", "bob"))
    other = Client(store, tenant="other", user="ada", agent="helper")
    scopes = ("user", "agent", "resources")
    for scope in scopes:
        ada.fs.write(f"viking://{scope}/secret.md", f"of ada's {scope}")
    for stranger in (bob, other):
        assert not any(stranger.fs.exists(f"viking://{scope}/secret.md") for scope in scopes)
        for scope in scopes:
            stranger.fs.write(f"viking://{scope}/secret.md", "of a stranger")
            stranger.fs.rm(f"viking://{scope}", recursive=True)
    for scope in scopes:
        assert ada.fs.read(f"viking://{scope}/secret.md") == f"of ada's {scope}"


def test_a_person_edits_the_profile_line_by_line() -> None:
    client = Client(MemoryStore())
    talk(client.session("chat"), "My name is Ada.", "I live in Lisbon.")
    client.session("chat").commit()
    uri = "viking://user/memories/profile.md"
    end_of_millisecond = clock.now_us() // 1000 * 10**6 + 999_000
    with clock.wall_clock_from(lambda: end_of_millisecond):  # messages have times in milliseconds
        edited = client.fs.read(uri).replace("Lisbon", "Porto") + "- I have two cats.\n"
        client.fs.write(uri, edited)
        talk(client.session("next"), "I moved to Berlin.")
        client.session("next").commit()
    profile = client.fs.read(uri)
    assert "- I have two cats." in profile
    assert "~~I live in Porto.~~" in profile
    assert "Lisbon" not in profile
    assert len(client.memory.history(uri)) == 3


def test_many_stars_in_a_row_say_what_one_says_and_take_no_longer(client: Client) -> None:
    client.fs.write(NOTE, "A bowline does not slip.\n")
    stars = "/".join(["**"] * 200)
    assert client.fs.glob(f"viking://user/{stars}/knots.md") == [NOTE]
    assert client.fs.glob(f"viking://user/{stars}/none.md") == []

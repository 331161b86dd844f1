"""Memories on a real disk: exported to be read and edited, imported without trust."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sennit import ArchiveError, Client, ExistsError
from sennit.memory.files.filesystem import FileSystem
from sennit.stores.in_memory.store import MemoryStore
from tests.memory.remembering import TALK, client, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

PROFILE = "viking://user/memories/profile.md"


@pytest.fixture
def filled(client: Client) -> Client:
    """A client that remembers something."""
    talk(client.session("chat"), *TALK)
    client.session("chat").commit()
    client.fs.write("viking://resources/guide.md", "How to tie a bowline.\n")
    client.fs.write("viking://agent/skills/tie", "---\nname: tie\n---\nTie it.\n")
    return client


def everything(fs: FileSystem) -> dict[str, str]:
    scopes = ("user", "agent", "resources")
    return {
        one.uri: fs.read(one.uri)
        for scope in scopes
        for one in fs.walk(f"viking://{scope}")
        if not one.is_folder
    }


def test_an_exported_folder_is_the_tree(filled: Client, tmp_path: Path) -> None:
    count = filled.fs.export(tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert count == len(files) > 8
    said = (tmp_path / "out/user/memories/profile.md").read_text()
    assert said.startswith(f'---\nuri: "{PROFILE}"\ncategory: "profile"\nversion: 1\n')
    assert said.endswith(filled.fs.read(PROFILE))
    assert "evidence: [" in said
    assert (tmp_path / "out/session/chat/history/archive_001/messages.jsonl").exists()
    assert (tmp_path / "out/agent/memories/patterns").is_dir()
    with pytest.raises(ExistsError):
        filled.fs.export(tmp_path / "out")


@pytest.mark.parametrize(
    "uri", [PROFILE, "viking://session/chat/history/archive_001/messages.jsonl"]
)
def test_a_file_is_exported_alone(filled: Client, tmp_path: Path, uri: str) -> None:
    assert filled.fs.export(tmp_path / "out", uri) == 1
    [file] = (tmp_path / "out").iterdir()
    assert file.name == uri.rpartition("/")[2]
    assert file.read_text().endswith(filled.fs.read(uri))


def test_an_unchanged_folder_changes_nothing(filled: Client, tmp_path: Path) -> None:
    filled.fs.export(tmp_path / "out")
    before = everything(filled.fs)
    for _ in range(2):
        result = filled.fs.import_folder(tmp_path / "out")
        assert (result.created, result.updated) == (0, 0)
        assert result.unchanged == len(before)
        assert result.skipped > 0
    assert everything(filled.fs) == before
    assert filled.fs.stat(PROFILE).version == 1


def test_lines_of_another_system_stay_as_they_are(filled: Client, tmp_path: Path) -> None:
    filled.fs.write("viking://resources/notes.txt", "one\r\ntwo\r\n")
    filled.fs.export(tmp_path / "out", "viking://resources")
    assert filled.fs.import_folder(tmp_path / "out", "viking://resources").updated == 0
    assert filled.fs.read("viking://resources/notes.txt") == "one\r\ntwo\r\n"


def test_edited_markdown_becomes_a_new_version(filled: Client, tmp_path: Path) -> None:
    filled.fs.export(tmp_path / "out", "viking://user/memories")
    path = tmp_path / "out/profile.md"
    path.write_text(path.read_text().replace("Lisbon", "Porto") + "- I have two cats.\n")
    (tmp_path / "out/preferences/new.md").write_text("I like rope.\n")
    result = filled.fs.import_folder(tmp_path / "out", "viking://user/memories")
    assert (result.created, result.updated) == (1, 1)
    versions = filled.memory.history(PROFILE)
    assert [one.did for one in versions] == ["created", "imported"]
    assert "Lisbon" in versions[0].text
    assert "Porto" in versions[1].text
    assert versions[1].commit_id is None
    new = filled.memory.get("viking://user/memories/preferences/new.md")
    assert (new.text, new.category) == ("I like rope.\n", "preferences")


def test_only_the_times_of_a_front_matter_are_taken(filled: Client, tmp_path: Path) -> None:
    filled.fs.export(tmp_path / "out", "viking://user")
    uri = next(one.uri for one in filled.memory.all("preferences"))
    path = tmp_path / "out" / uri.removeprefix("viking://user/")
    lines = path.read_text().splitlines()
    edited = ["valid_to: 2030-05-01" if line.startswith("valid_to") else line for line in lines]
    edited = [
        'uri: "viking://resources/stolen.md"' if line.startswith("uri") else line for line in edited
    ]
    edited = ["active_count: 99" if line.startswith("active") else line for line in edited]
    edited = ["evidence: []" if line.startswith("evidence") else line for line in edited]
    path.write_text("\n".join(edited) + "\n")
    before = filled.memory.get(uri)
    filled.fs.import_folder(tmp_path / "out", "viking://user")
    after = filled.memory.get(uri)
    assert after.valid_to is not None
    assert after.valid_to.isoformat() == "2030-05-01T00:00:00+00:00"
    assert (after.text, after.evidence, after.active_count) == (before.text, before.evidence, 0)
    assert not filled.fs.exists("viking://resources/stolen.md")


def test_a_front_matter_of_others_is_text(filled: Client, tmp_path: Path) -> None:
    filled.fs.export(tmp_path / "out", "viking://agent")
    said = "---\nname: tie\n---\nTie it.\n"
    assert (tmp_path / "out/skills/tie").read_text() == said
    filled.fs.rm("viking://agent/skills/tie")
    filled.fs.import_folder(tmp_path / "out", "viking://agent")
    assert filled.fs.read("viking://agent/skills/tie") == said


def test_another_store_takes_in_what_was_exported(filled: Client, tmp_path: Path) -> None:
    filled.fs.export(tmp_path / "out")
    other = Client(MemoryStore())
    result = other.fs.import_folder(tmp_path / "out")
    assert everything(other.fs) == everything(filled.fs)
    assert result.created == len(everything(other.fs))


def refused(client: Client, folder: Path, uri: str = "viking://user") -> None:
    before = everything(client.fs)
    with pytest.raises(ArchiveError):
        client.fs.import_folder(folder, uri)
    assert everything(client.fs) == before


def test_links_and_strange_files_are_refused(filled: Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    for number, make in enumerate(
        (
            lambda folder: (folder / "a.md").symlink_to(secret),
            lambda folder: (folder / "deep").symlink_to(tmp_path),
            lambda folder: os.mkfifo(folder / "pipe"),
        )
    ):
        folder = tmp_path / f"in{number}"
        folder.mkdir()
        (folder / "fine.md").write_text("fine")
        make(folder)
        refused(filled, folder)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "in0")
    refused(filled, link)
    refused(filled, secret)


@pytest.mark.parametrize("name", ["a:b.md", "con.md", "%2e%2e", "x .md ", "a\nb", "#a.md", "..."])
def test_names_that_are_no_addresses_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text("x")
    (tmp_path / "in" / "fine.md").write_text("x")
    refused(Client(MemoryStore()), tmp_path / "in")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a\0b", b"x" * (3 << 20)])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.md").write_bytes(content)
    refused(Client(MemoryStore()), tmp_path / "in")


def test_a_wrong_date_and_an_unknown_scope_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.md").write_text('---\nuri: "x"\nvalid_to: soon\n---\ntext')
    client = Client(MemoryStore())
    refused(client, tmp_path / "in")
    refused(client, tmp_path / "in", "viking://")


def test_two_files_of_one_address_are_refused(tmp_path: Path) -> None:
    """Some systems write an accent beside its letter, others with it; an address has one way."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("caf\u00e9.md", "cafe\u0301.md"):
        (folder / name).write_text("tea")
    if len(list(folder.iterdir())) == 1:
        pytest.skip("this file system has one way, too")
    client = Client(MemoryStore())
    with pytest.raises(ArchiveError, match="would both be"):
        client.fs.import_folder(folder, "viking://resources")
    assert client.fs.ls("viking://resources") == []

"""Sessions on the move take their commits along; backups take everything."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import ArchiveError, Client, ExistsError
from sennit.stores.in_memory.store import MemoryStore
from tests.memory.remembering import TALK, client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

GUIDE = "viking://resources/guide.md"


def begun(client: Client) -> None:
    client.fs.write(GUIDE, "How to tie a bowline.")
    session = client.session("chat")
    talk(session, *TALK)
    session.used(contexts=[GUIDE])
    session.commit()
    talk(session, "And now?")
    session.used(contexts=[GUIDE])


def test_an_imported_session_has_its_archives_and_what_is_current(
    client: Client, tmp_path: Path
) -> None:
    begun(client)
    client.export(tmp_path / "a.zip")
    other = Client(MemoryStore(), user="bob")
    for _ in range(2):
        other.import_sessions(tmp_path / "a.zip")
        assert len(other.session("chat").current()) == 2
        for name in ("messages.jsonl", ".abstract.md", ".overview.md"):
            uri = f"viking://session/chat/history/archive_001/{name}"
            assert other.fs.read(uri) == client.fs.read(uri)
    other.fs.write(GUIDE, "Another guide.")
    assert other.session("chat").commit()["archive"] == "archive_002"
    assert other.fs.stat(GUIDE).active_count == 1
    assert other.doctor() == []


def test_what_was_committed_since_is_taken_in_too(client: Client, tmp_path: Path) -> None:
    begun(client)
    client.export(tmp_path / "a.zip")
    client.session("chat").commit()
    client.export(tmp_path / "b.zip")
    other = Client(MemoryStore(), user="bob")
    for name in ("a.zip", "b.zip", "a.zip"):
        other.import_sessions(tmp_path / name)
    assert other.session("chat").current() == []
    assert len(other.fs.ls("viking://session/chat/history")) == 2


def test_a_counted_use_that_was_erased_does_not_come_back_to_be_counted_again(
    client: Client, tmp_path: Path
) -> None:
    begun(client)
    client.export(tmp_path / "a.zip")
    client.forget(uri=GUIDE)
    session = client.session("chat").id
    assert client._store.commits(client._owner, session).uses == []
    client.import_sessions(tmp_path / "a.zip")
    (back,) = client._store.commits(client._owner, session).uses
    client.fs.write(GUIDE, "How to tie a sheet bend.")
    client.session("chat").commit()
    assert back.commit is None
    assert client.fs.stat(GUIDE).active_count == 1


def test_another_commit_under_the_same_number_is_refused(client: Client, tmp_path: Path) -> None:
    session = client.session("chat")
    talk(session, *TALK)
    client.export(tmp_path / "a.zip")
    other = Client(MemoryStore(), user="bob")
    other.import_sessions(tmp_path / "a.zip")
    for one in (client, other):
        one.session("chat").commit()
    client.export(tmp_path / "b.zip")
    with pytest.raises(ExistsError, match="differs from the stored one"):
        other.import_sessions(tmp_path / "b.zip")


def test_an_unfinished_commit_is_finished_where_it_is_imported(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        talk(client.session("chat"), "My name is Ada.")
        result = client.session("chat").commit()
        client.export(tmp_path / "a")
    forge(tmp_path / "a", lambda line: line.update(state="open", abstract="", overview=""))
    other = Client(MemoryStore())
    other.import_sessions(tmp_path / "a")
    (done,) = other.finish_commits()
    assert (done.status, done.task_id) == ("committed", result.task_id)
    assert "Ada" in "".join(memories(other).values())


def forge(folder: Path, change: Callable[[dict[str, Any]], Any], kind: str = "commit") -> None:
    """Change the lines of one kind in an archive, and let its manifest agree."""
    (path,) = (folder / "sessions").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["kind"] == kind:
            change(line)
    written = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    path.write_bytes(written)
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = sha256(written).hexdigest()
    manifest["files"][0].update(sha256=digest, bytes=len(written), lines=len(lines))
    (folder / "manifest.json").write_text(json.dumps(manifest))


WRONG: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("commit", lambda line: line.update(number=2)),
    ("commit", lambda line: line.update(state="failed")),
    ("commit", lambda line: line["entries"].append(line["id"])),
    ("commit", lambda line: line["entries"].append(line["entries"][0])),
    ("commit", lambda line: line.update(overview="a\0b")),
    ("commit", lambda line: line.update(diff=[])),
    ("commit", lambda line: line.update(created=10**30)),
    ("use", lambda line: line.update(commit=7)),
    ("use", lambda line: line.update(used={"uri": 7})),
    ("use", lambda line: line.update(used=[])),
    ("use", lambda line: line.update(id="x")),
]


@pytest.mark.parametrize(("kind", "change"), WRONG)
def test_a_forged_commit_is_refused(
    tmp_path: Path, kind: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    client = Client(MemoryStore())
    begun(client)
    client.export(tmp_path / "a")
    forge(tmp_path / "a", change, kind)
    other = Client(MemoryStore())
    with pytest.raises(ArchiveError):
        other.import_sessions(tmp_path / "a")
    assert other.sessions() == []


def test_a_backup_remembers_everything(client: Client, tmp_path: Path) -> None:
    begun(client)
    talk(client.session("next"), "I moved to Berlin.")
    client.session("next").commit()
    client.backup(tmp_path / "copy.db")
    with sennit.open(tmp_path / "copy.db", user="ada", agent="helper") as copy:
        assert memories(copy) == memories(client)
        for memory in client.memory.all():
            assert copy.memory.history(memory.uri) == client.memory.history(memory.uri)
        assert copy.fs.stat(GUIDE) == client.fs.stat(GUIDE)
        assert copy.fs.read("viking://session/chat/history/archive_001/.done") == client.fs.read(
            "viking://session/chat/history/archive_001/.done"
        )
        assert copy._store.commits(copy._owner, copy.session("chat").id) == client._store.commits(
            client._owner, client.session("chat").id
        )
        assert copy.doctor() == []


def test_an_archive_says_nothing_of_memories(client: Client, tmp_path: Path) -> None:
    begun(client)
    client.export(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        text = "".join(packed.read(name).decode() for name in packed.namelist())
    assert "profile.md" not in text

"""Files of a store on the disk: who may read them, and what happens when they are taken away."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit import StoreError, settings
from sennit.stores.sqlite.store import SQLiteStore
from tests.stores.corrupted_stores import filled


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let new files have all the rights that they are created with."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    """The rights of everything below a folder."""
    return {str(path.relative_to(folder)): mode(path) for path in sorted(folder.rglob("*"))}


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_may_read_a_store_and_what_is_beside_it(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        filled(client)
        assert modes(tmp_path) == dict.fromkeys(
            ("sennit.db", "sennit.db-shm", "sennit.db-wal"), 0o600
        )


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_may_read_what_is_exported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o700)
    with sennit.open(tmp_path / "sennit.db") as client, sennit.open(":memory:") as other:
        session = filled(client)
        session.add_message("assistant", "A bowline.")
        client.fs.write("viking://resources/knots/bowline.md", "Around the tree.")
        filled(other)
        client.backup(out / "copy.db")
        other.backup(out / "other.db")
        client.export(out / "a.zip")
        client.export(out / "folder")
        client.fs.export(out / "memories")
        client.export_training(out / "a.jsonl")
    found = modes(tmp_path)
    assert {name: found[name] for name in found if found[name] not in (0o600, 0o700)} == {}
    assert mode(out / "copy.db") == mode(out / "other.db") == mode(out / "a.zip") == 0o600
    assert any(path.name.endswith("bowline.md") for path in (out / "memories").rglob("*"))


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_may_enter_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.delenv("SENNIT_URL", raising=False)
    sennit.open().close()
    assert settings.data_folder().is_relative_to(tmp_path)
    assert mode(settings.data_folder()) == 0o700
    assert mode(settings.data_folder() / "sennit.db") == 0o600


def test_rights_that_are_there_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    sennit.open(path).close()
    path.chmod(0o640)
    with sennit.open(path) as client:
        filled(client)
        assert mode(path) == mode(tmp_path / "sennit.db-wal") == 0o640


def test_a_mistyped_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no folder .* Create it first"):
        sennit.open(tmp_path / "hoem" / "ada" / "sennit.db")
    assert list(tmp_path.iterdir()) == []


def take_away(path: Path) -> None:
    path.unlink()


def put_another_there(path: Path) -> None:
    other = path.with_name("other.db")
    SQLiteStore(other).close()
    other.replace(path)


@pytest.mark.parametrize("change", [take_away, put_another_there])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path, change: object) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        session.add_message("user", "one")
        assert callable(change)
        change(path)
        for use in (
            lambda: session.add_message("user", "two"),
            lambda: client.session("new").add_message("user", "three"),
            lambda: client.fs.write("viking://resources/a.md", "four"),
            client.sessions,
        ):
            with pytest.raises(StoreError, match="deleted or replaced while it was open"):
                use()


def test_a_restored_backup_is_not_overwritten_by_the_old_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "sennit.db", tmp_path / "copy.db"
    client = sennit.open(path)
    session = client.session("chat")
    session.add_message("user", "kept")
    client.backup(copy)
    session.add_message("user", "after the backup")
    shutil.copy(copy, tmp_path / "fresh.db")
    (tmp_path / "fresh.db").replace(path)
    with pytest.raises(StoreError, match="replaced"):
        session.add_message("user", "lost")
    client.close()
    for beside in ("sennit.db-wal", "sennit.db-shm"):
        (tmp_path / beside).unlink(missing_ok=True)
    with sennit.open(path) as restored:
        said = [one.content.words for one in restored.session("chat").default_branch.messages]
        assert said == ["kept"]
        assert restored.doctor() == []


LOOK = """
import sys, sennit
with sennit.open(sys.argv[1], user="ann") as client:
    print(len(client.session("chat").messages))
"""


def another_program_sees(path: Path) -> int:
    """How many messages of a chat another program finds, which then closes the store."""
    asked = [sys.executable, "-c", LOOK, str(path)]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def test_two_clients_of_a_program_lose_nothing_when_another_program_closes_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path, user="ann") as ann, sennit.open(path, user="ben") as ben:
        for client, text in ((ann, "one"), (ben, "one"), (ann, "two")):
            client.session("chat").add_message("user", text)
            another_program_sees(path)
        assert another_program_sees(path) == 2
        assert ben.doctor() == []


def test_nothing_is_acknowledged_into_a_log_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path, user="ann") as client:
        session = client.session("chat")
        session.add_message("user", "one")
        shutil.copy(path, tmp_path / "copy.db")  # ends SQLite's locks in this process
        assert another_program_sees(path) == 1
        with pytest.raises(StoreError, match="or its log, was deleted or replaced"):
            session.add_message("user", "two")
    with sennit.open(path, user="ann") as client:
        client.session("chat").add_message("user", "three")
    assert another_program_sees(path) == 2

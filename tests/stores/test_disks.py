"""A disk that is full, read-only or damaged: a clear error, nothing lost, and on we go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sennit
from sennit import StoreError
from tests.torture import full_disk


@pytest.mark.parametrize(("kind", "how"), full_disk.ways())
def test_a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(
    kind: str, how: str, record_property: Callable[[str, object], None]
) -> None:
    told = full_disk.run(kind, how)
    full, freed = told["full"], told["freed"]
    record_property(
        "counted",
        [
            f"full disk of {kind}, by {how}",
            {"acknowledged": full["acknowledged"], "lost": freed["lost"]},
        ],
    )
    assert full["acknowledged"] > 20
    assert full["kept"], "What was refused was half done."
    assert full["readable"]
    for said in (full["said"], *full["refused"].values()):
        assert "no space left on its disk; free some" in said or "not full" in said
    assert freed == {"goes on": True, "same": True, "found": 5, "findings": [], "lost": 0}
    if kind == "sqlite" and how != "limit":
        # Which of the two it is depends on whether the journal had been emptied before.
        opened = "cannot be opened; check the folder and its permissions" in told["forbidden"]
        assert opened or "cannot be written to; check its permissions" in told["forbidden"]


def test_a_damaged_file_is_a_clear_error_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sennit.db"
    with sennit.open(path) as client:
        session = client.session("chat")
        for number in range(50):
            session.add_message("user", f"{number} " + "x" * 1000)
    sound = path.read_bytes()
    first = 4096  # the first page says what the file is; all after it are gone
    path.write_bytes(sound[:first] + b"\xff" * (len(sound) - first))
    with pytest.raises(StoreError, match="is damaged; restore a backup"):
        sennit.open(path).session("chat")
    assert path.read_bytes()[first:] == b"\xff" * (len(sound) - first)


_BACKUP_WITHOUT_ROOM = """
import resource, signal, sys
import sennit

with sennit.open(sys.argv[1]) as client:
    client.session("long").add_message("user", "word " * 200_000)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    try:
        client.backup(sys.argv[2])
    except sennit.StoreError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of file sizes")
def test_a_backup_that_finds_no_room_leaves_no_file_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    said = subprocess.run(
        [sys.executable, "-c", _BACKUP_WITHOUT_ROOM, str(tmp_path / "s.db"), str(out / "copy.db")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "copy.db" in said
    assert list(out.iterdir()) == []


_PICTURE_WITHOUT_ROOM = """
import resource, signal, sys
import sennit
from sennit import ImagePart, TextPart

picture = ImagePart(b"\\x89PNG\\r\\n\\x1a\\n" + bytes(range(256)) * 40_000)
with sennit.open(sys.argv[1]) as client:
    session = client.session("chat")
    session.add_message("user", "before")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, resource.RLIM_INFINITY))
    try:
        session.add_message("user", [TextPart("look"), picture])
    except sennit.StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    client._store.collect_blobs(2**62)
    print(len(session.messages), client._store.blob_bytes(client._owner), client.doctor())
    session.add_message("user", [TextPart("look"), picture])
    session.refresh()
    [url] = session.default_branch.messages[-1].content.attachment_urls
    print(len(session.read_blob(url)), client.doctor())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for the size of files")
def test_a_picture_that_does_not_fit_on_the_disk_leaves_nothing_and_can_be_sent_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _PICTURE_WITHOUT_ROOM, str(tmp_path / "sennit.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said, left, again = done.stdout.splitlines()
    assert "no space left on its disk" in said or "not full" in said
    assert left == "1 0 []"
    assert again == "10240008 []"

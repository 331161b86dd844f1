"""Labels last as long as their messages, in every store, and move with them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import sennit
from sennit import AssistantResponseContent, Client, InstructionContent, Message
from sennit.errors import ArchiveError


def judged(client: Client) -> Message:
    session = client.session("rope")
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Name a knot")), branches=main)
    answer = Message(AssistantResponseContent(assistant_response="A bowline."))
    session.add_message(answer, branches=main)
    session.label(answer, 0.25, by="ann")
    session.label(answer, thumb="up", by="bob")
    return answer


def scores(client: Client) -> dict[str, float]:
    [example] = client.session("rope", create=False).to_examples()
    return {label.by: label.score for label in example.labels}


def test_labels_are_there_when_a_store_is_opened_again(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        judged(client)
    with sennit.open(tmp_path / "a.db") as client:
        assert scores(client) == {"ann": 0.25, "bob": 1.0}


def test_labels_are_read_of_one_message_or_all_by_one_judge_or_all(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        answer = judged(client)
        session = client.session("rope")
        question = session.get_branch("main")[0]
        session.label(question, 3, by="ann")
        assert [(one.by, one.score) for one in session.labels(answer)] == [
            ("ann", 0.25),
            ("bob", 1),
        ]
        assert [one.score for one in session.labels(by="ann")] == [0.25, 3]
        session.unlabel(answer, by="bob")
        assert len(session.labels()) == 2


def test_what_another_process_thinks_is_seen_at_once(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as one, sennit.open(tmp_path / "a.db") as other:
        answer = judged(one)
        other.session("rope").label(answer, 0.5, by="ann")
        assert scores(one)["ann"] == 0.5


def test_labels_are_erased_with_their_message(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        answer = judged(client)
        client.session("rope").remove_message(answer)
        assert client._store.labels(client._owner, client.session("rope").id) == []
        assert client.doctor() == []


@pytest.mark.parametrize("name", ["archive.zip", "archive"])
def test_an_archive_takes_labels_along_and_importing_twice_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        judged(client)
        client.export(tmp_path / name)
    with sennit.open(tmp_path / "b.db") as client:
        client.import_sessions(tmp_path / name)
        assert scores(client) == {"ann": 0.25, "bob": 1.0}
        [example] = client.session("rope").to_examples()
        client.session("rope").label(example.answer[-1], 0.75, by="ann")
        client.import_sessions(tmp_path / name)
        assert scores(client) == {"ann": 0.75, "bob": 1.0}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"message": "00000000-0000-7000-8000-000000000000"}, "no message"),
        ({"judge": ""}, "length"),
        ({"judge": "a\u0000b"}, "NUL"),
        ({"score": "high"}, "float"),
    ],
)
def test_a_label_that_is_not_sound_is_refused_with_its_archive(
    tmp_path: Path, changed: dict[str, object], told: str
) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        judged(client)
        client.export(tmp_path / "archive")
    rewrite(tmp_path / "archive", lambda line: {**line, **changed})
    with sennit.open(tmp_path / "b.db") as client:
        with pytest.raises(ArchiveError, match=told):
            client.import_sessions(tmp_path / "archive")
        assert client.sessions() == []


def rewrite(folder: Path, change: Callable[[dict], dict]) -> None:
    """Change the label lines of an archive, and make its checksums true again."""
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_text())
    [file] = manifest["files"]
    path = folder / file["name"]
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    said = [change(line) if line["kind"] == "label" else line for line in lines]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in said)
    path.write_bytes(data)
    file["bytes"], file["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_backup_holds_labels(tmp_path: Path) -> None:
    with sennit.open(":memory:") as client:
        judged(client)
        client.backup(tmp_path / "copy.db")
    with sennit.open(tmp_path / "copy.db") as client:
        assert scores(client) == {"ann": 0.25, "bob": 1.0}

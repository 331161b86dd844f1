"""Files and recordings as parts of messages, by address and with their bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    ActionResponseContent,
    AudioPart,
    FilePart,
    ImagePart,
    InstructionContent,
    Message,
    TextPart,
    ToolPart,
    ValidationError,
    to_model_messages,
)
from sennit.learning.export import ExportOptions
from sennit.messages import MessageGroup, media
from sennit.messages.blob_reference import without_bytes
from sennit.messages.media import label
from sennit.messages.openai_chat import accepted_chat, from_chat
from sennit.services.models.usage import count_chars
from sennit.testing import ScriptedModel

pytest_plugins = ("tests.durable",)

PDF = b"%PDF-1.7\n" + bytes(90)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
ZIP = b"PK\x03\x04" + bytes(60)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(40)
RECORDINGS = {
    "audio/wav": WAV,
    "audio/mpeg": b"ID3\x04" + bytes(40),
    "audio/flac": b"fLaC" + bytes(40),
    "audio/ogg": b"OggS" + bytes(40),
    "audio/mp4": b"\0\0\0\x20ftypM4A " + bytes(40),
    "audio/aac": b"\xff\xf1\x50" + bytes(40),
    "audio/webm": b"\x1a\x45\xdf\xa3" + bytes(40),
}
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FILES = {
    "report.pdf": (PDF, "application/pdf"),
    "notes.txt": (b"caf\xc3\xa9", "text/plain"),
    "notes.md": (b"# Notes", "text/markdown"),
    "table.csv": (b"a,b\n1,2\n", "text/csv"),
    "data.json": (b"{}", "application/json"),
    "page.HTML": (b"<p>Hi</p>", "text/html"),
    "letter.docx": (ZIP, DOCX),
    "sheet.xlsx": (ZIP, XLSX),
    "program.rs": (b"fn main() {}", "text/plain"),
    "core.dump": (b"\x7fELF\0\xff", "application/octet-stream"),
    "noname": (PDF, "application/pdf"),
}


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_its_name_and_the_media_type_of_its_ending(name: str, tmp_path: Path) -> None:
    data, kind = FILES[name]
    (tmp_path / name).write_bytes(data)
    part = FilePart(tmp_path / name)
    assert (part.name, part.media_type, part.url) == (name, kind, data_url(kind, data))
    assert FilePart(data, name) == part
    assert FilePart(data_url(kind, data), name) == part
    assert FilePart(data_url("", data), name) == part
    assert FilePart(data, name, "application/octet-stream").media_type in (
        kind,
        "application/octet-stream",
    )


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_recording_has_the_media_type_of_its_bytes(kind: str, tmp_path: Path) -> None:
    data = RECORDINGS[kind]
    (tmp_path / "sound").write_bytes(data)
    for source in (data, tmp_path / "sound", data_url(kind, data), data_url("audio/x-wav", data)):
        part = AudioPart(source)
        assert (part.media_type, part.url) == (kind, data_url(kind, data))
    assert AudioPart(f"https://example.com/a.{part.format}").media_type == kind


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (b"<html>", "report.pdf", None),
        (ZIP, "report.pdf", None),
        (ZIP, None, "application/pdf"),
        (PDF, "letter.docx", None),
        (PDF, "knot.png", None),
        (b"no picture", None, "image/png"),
        (b"\xff\xfe\0", "notes.txt", None),
        (b"\0", "table.csv", None),
        (b"no sound", "call.wav", None),
        (PDF, None, "pdf"),
        (b"", "empty.txt", None),
    ],
    ids=repr,
)
def test_a_file_that_is_not_what_it_is_said_to_be_is_refused(
    data: bytes, name: str | None, kind: str | None
) -> None:
    with pytest.raises(ValidationError):
        FilePart(data, name, kind)
    with pytest.raises(ValidationError):
        FilePart(data_url(kind or "", data), name)


@pytest.mark.parametrize(
    "source",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "data:application/pdf,%PDF",
        "data:application/pdf;base64,JVBE Rg==",
        "data:application/pdf;base64,JVBERi0",
        "https://user:secret@example.com/a.pdf",
        Path("/nowhere/at/all.pdf"),
        Path("/"),
        5,
        None,
    ],
    ids=repr,
)
def test_what_is_no_file_is_refused(source: Any) -> None:
    for make in (FilePart, AudioPart, lambda value: InstructionContent(files=[value])):
        with pytest.raises(ValidationError) as refused:
            make(source)
        assert "secret" not in str(refused.value)


def test_a_recording_by_address_needs_a_media_type_that_models_hear() -> None:
    assert AudioPart("https://example.com/call", "audio/x-m4a").media_type == "audio/mp4"
    for kind in (None, "application/pdf", "audio/midi"):
        with pytest.raises(ValidationError, match="one of audio/wav"):
            AudioPart("https://example.com/call", kind)


def test_the_name_of_a_file_has_no_folders_and_no_control_characters() -> None:
    assert FilePart(PDF, "../../etc/a\n.pdf").name == "a.pdf"
    assert FilePart(PDF, "C:\\Users\\me\\b.pdf").name == "b.pdf"
    assert FilePart("https://example.com/a/b%20c.pdf?d=e/f.png").name == "b c.pdf"
    assert FilePart("https://example.com").name is None
    assert FilePart("https://example.com/x?a.pdf").media_type == "application/octet-stream"


def test_files_beyond_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(media, "MAX_FILE_BYTES", 50)
    monkeypatch.setattr(media, "MAX_AUDIO_BYTES", 50)
    (tmp_path / "a").write_bytes(PDF)
    (tmp_path / "b").write_bytes(WAV)
    for source in (PDF, tmp_path / "a", data_url("application/pdf", PDF)):
        with pytest.raises(ValidationError, match="got 99 bytes"):
            FilePart(source)
    for source in (WAV, tmp_path / "b", data_url("audio/wav", WAV)):
        with pytest.raises(ValidationError, match="got 56 bytes"):
            AudioPart(source)


def test_files_come_back_from_every_store_and_reach_the_model(address: str) -> None:
    model = ScriptedModel(["Seen.", "Heard."])
    parts = [TextPart("Compare."), ImagePart(PNG), FilePart(PDF, "a.pdf"), AudioPart(WAV)]
    with sennit.open(address) as client:
        chat = client.session("files").conversation(model=model)
        assert chat.say(["Compare.", ImagePart(PNG), FilePart(PDF, "a.pdf"), AudioPart(WAV)])
    with sennit.open(address) as client:
        session = client.session("files")
        assert session.default_branch.messages[0].parts == parts
        session.conversation(model=model).say("And again?")
        assert client.search_messages("Compare")
        assert client.search_messages(base64.b64encode(PDF).decode()[:16]) == []
        assert client.doctor() == []
    for request in model.requests:
        assert request.messages[0]["content"] == [
            {"type": "text", "text": "Compare."},
            {
                "type": "image_url",
                "image_url": {"url": data_url("image/png", PNG), "detail": "auto"},
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)},
            },
            {
                "type": "input_audio",
                "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"},
            },
        ]


def test_a_message_may_be_one_file_or_several_texts_and_files() -> None:
    session = sennit.Session()
    chat = session.conversation(model=ScriptedModel(["1", "2"]))
    chat.say(FilePart(PDF, "a.pdf"))
    chat.say([FilePart(PDF, "b.pdf"), "What is it?"])
    texts = [message.rendered_text for message in session.default_branch.messages]
    assert texts == ["", "1", "", "Instruction: What is it?", "2"]
    with pytest.raises(ValidationError, match="neither a text nor a part"):
        chat.say([Message(InstructionContent("x")), FilePart(PDF)])  # type: ignore[list-item]
    assert len(session.default_branch) == 5


def test_files_of_a_tool_result_come_back_as_parts() -> None:
    session = sennit.Session()
    call = ToolPart("draw", {}, "Done.", tool_id="c1", files=(ImagePart(PNG), FilePart(PDF)))
    group = session.add_message("assistant", [call])
    assert MessageGroup.of(session.default_branch.messages) == group
    assert MessageGroup.from_json(group.to_json()) == group
    result = group.messages[1]
    assert Message.from_json(result.to_json()).content == result.content
    assert "image/png, 48 bytes" in result.rendered_text
    assert "base64" not in result.rendered_text
    assert [block["type"] for block in to_model_messages(group.messages)[1]["content"]] == [
        "text",
        "image_url",
        "file",
    ]


def test_a_picture_of_a_user_is_passed_as_an_image() -> None:
    with pytest.raises(ValidationError, match="pass it in images"):
        InstructionContent(files=[ImagePart(PNG)])  # type: ignore[list-item]


def test_chat_messages_with_files_are_converted_both_ways() -> None:
    chat = {
        "role": "user",
        "content": [
            {"type": "text", "text": "Read."},
            {
                "type": "file",
                "file": {"file_data": data_url("application/pdf", PDF), "filename": "a.pdf"},
            },
            {
                "type": "input_audio",
                "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"},
            },
        ],
    }
    group = from_chat(chat)
    assert group.parts == (TextPart("Read."), FilePart(PDF, "a.pdf"), AudioPart(WAV))
    assert to_model_messages(group.messages) == [chat]
    with pytest.raises(ValidationError, match="file_data"):
        from_chat({"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]})


def test_exported_chats_have_files_only_as_the_chat_api_takes_them() -> None:
    session = sennit.Session()
    session.add_message("user", ["Read.", FilePart("https://example.com/a.pdf")])
    session.add_message("assistant", [ToolPart("draw", {}, "Done.", files=(ImagePart(PNG),))])
    question, _, result = accepted_chat(to_model_messages(session.default_branch.messages))
    assert question["content"][1] == {
        "type": "text",
        "text": "[a.pdf: https://example.com/a.pdf]",
    }
    assert result["content"] == ("Done.\n[image/png, 48 bytes]")


def test_training_files_have_the_bytes_of_files(tmp_path: Path) -> None:
    pdf, wav = PDF + bytes(2_000), WAV + bytes(2_000)
    model = ScriptedModel(["A knot."])
    with sennit.open(tmp_path / "s.db") as client:
        chat = client.session("files").conversation(model=model)
        chat.say(["Read.", FilePart(pdf, "a.pdf"), AudioPart(wav)])
        (row,) = client.training_lines("files", ExportOptions(format="openai"))
        (text, file, audio) = json.loads(row)["messages"][0]["content"]
        assert text["text"] == "Read."
        assert file["file"] == {
            "filename": "a.pdf",
            "file_data": data_url("application/pdf", pdf),
        }
        assert audio["input_audio"] == {"data": base64.b64encode(wav).decode(), "format": "wav"}
        assert list(client.training_lines("files", ExportOptions(format="tools"))) == []


def test_estimates_count_files_by_what_models_read() -> None:
    def chars(part: FilePart | AudioPart) -> int:
        return count_chars(to_model_messages([Message(InstructionContent(files=[part]))]))  # type: ignore[list-item]

    assert chars(FilePart(PDF + bytes(1_500_000))) < 120_000
    assert 9_000 < chars(FilePart(b"word " * 2_000, "a.txt")) < 11_000
    assert 15_000 < chars(AudioPart(WAV + bytes(8_000_000))) < 20_000


def test_a_content_lists_the_addresses_of_its_files_and_returns_a_copy_with_others() -> None:
    url = data_url("application/pdf", PDF + bytes(2_000))
    question = InstructionContent(images=[data_url("image/png", PNG)], files=[FilePart(url)])  # type: ignore[list-item]
    result = ActionResponseContent(files=[FilePart(url, "a.pdf")])  # type: ignore[list-item]
    assert question.attachment_urls == [data_url("image/png", PNG), url]
    assert question.with_attachment_urls(without_bytes).attachment_urls[1] == without_bytes(url)
    stored = result.with_attachment_urls(without_bytes)
    assert stored.attachment_urls == [without_bytes(url)]
    assert "[a.pdf: application/pdf, 2,099 bytes]" in stored.rendered_text
    (part,) = Message(stored).parts
    assert isinstance(part, ToolPart)
    assert part.files == (FilePart(without_bytes(url), "a.pdf"),)
    assert stored.with_attachment_urls(lambda _: url) == result
    assert InstructionContent("x").with_attachment_urls(without_bytes).attachment_urls == ()


def test_people_see_the_name_the_type_and_the_size() -> None:
    assert label(FilePart(PDF, "a.pdf")) == "[a.pdf: application/pdf, 99 bytes]"
    assert label(AudioPart(WAV)) == "[audio/wav, 56 bytes]"
    assert label(AudioPart("https://example.com/a.mp3")) == "[https://example.com/a.mp3]"


def test_a_path_in_a_stored_message_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    for url in (str(path), path.as_uri()):
        stored = Message(InstructionContent(files=[FilePart(PDF)])).to_json()  # type: ignore[list-item]
        record = json.loads(stored)
        record["content"]["files"][0]["url"] = url
        with pytest.raises(ValidationError):
            Message.from_json(json.dumps(record))


def test_a_tool_result_without_text_has_its_files() -> None:
    content = ActionResponseContent(request_id="c1", files=[FilePart(PDF)])  # type: ignore[list-item]
    assert content.success
    assert content.result is sennit.Unset

"""Files, recordings and pictures of tools, as the official clients of OpenAI send them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from openai import BadRequestError, UnprocessableEntityError

from sennit import AudioPart, FilePart, ImagePart, iModel
from sennit.messages.media import part_of_block
from sennit.testing import ToolCall
from tests.http_server import serving
from tests.openai_client import Chat, client, served
from tests.services.wire_server import running

PDF = b"%PDF-1.7\n" + bytes(2_000)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(2_000)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(2_000)
ADDRESS = "https://example.com/report.pdf"
TOOL = {
    "type": "function",
    "name": "draw",
    "description": "",
    "strict": False,
    "parameters": {"type": "object", "properties": {}},
}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64(data)}"


def respond(chat: Chat, *items: Any, **more: Any) -> Any:
    return chat.openai.responses.create(model="sage", input=list(items), **more)


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": "Read."}, *content]}


def seen(chat: Chat, number: int = -1) -> list[Any]:
    """The files in the first message that the model was shown."""
    return [part_of_block(block) for block in chat.asked(number)[0]["content"][1:]]


PDF_ITEM = {
    "type": "input_file",
    "filename": "report.pdf",
    "file_data": url("application/pdf", PDF),
}


def test_a_file_reaches_the_model_and_is_read_back() -> None:
    with served("A knot.") as chat:
        response = respond(chat, user(PDF_ITEM, {"type": "input_file", "file_url": ADDRESS}))
        assert seen(chat) == [FilePart(PDF, "report.pdf"), FilePart(ADDRESS)]
        (item,) = chat.openai.responses.input_items.list(response.id).data
        _, file, address = item.content
        assert (file.type, file.filename, file.file_data) == (
            "input_file",
            "report.pdf",
            PDF_ITEM["file_data"],
        )
        assert (address.type, address.file_url) == ("input_file", ADDRESS)


def test_a_history_with_a_file_is_stored_once_whichever_way_it_comes_back() -> None:
    with served("A knot.", "Yes.", "Sure.") as chat:
        first = respond(chat, user(PDF_ITEM))
        (item,) = chat.openai.responses.input_items.list(first.id).data
        said = {"role": "assistant", "content": "A knot."}
        respond(chat, item.model_dump(exclude_none=True), said, {"role": "user", "content": "?"})
        chat.ask(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Read."},
                    {"type": "file", "file": {"file_data": PDF_ITEM["file_data"]}},
                ],
            },
            said,
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "Sure?"},
        )
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 6


def test_another_file_is_another_conversation() -> None:
    with served("A knot.", "A bend.") as chat:
        for data in (PDF, PDF + b"2"):
            file = {**PDF_ITEM, "file_data": url("application/pdf", data)}
            respond(chat, user(file), {"role": "assistant", "content": "So?"}, user())
        assert len(chat.sessions()) == 2


def test_files_and_recordings_reach_the_model_of_a_chat_completion() -> None:
    with served("Heard.") as chat:
        chat.ask(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Read."},
                    {
                        "type": "file",
                        "file": {
                            "filename": "report.pdf",
                            "file_data": url("application/pdf", PDF),
                        },
                    },
                    {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}},
                ],
            }
        )
        assert seen(chat) == [FilePart(PDF, "report.pdf"), AudioPart(WAV)]


def test_a_recording_of_a_response_reaches_the_model_and_is_read_back() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}}
    with served("Heard.") as chat:
        response = respond(chat, user(audio))
        assert seen(chat) == [AudioPart(WAV)]
        (item,) = chat.openai.responses.input_items.list(response.id).data
        assert item.content[1].model_dump(exclude_none=True) == audio


def test_files_in_the_output_of_a_call_belong_to_its_result() -> None:
    output = {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [
            {"type": "input_text", "text": "Drawn."},
            {"type": "input_image", "image_url": url("image/png", PNG), "detail": "low"},
            PDF_ITEM,
        ],
    }
    with served([ToolCall("draw", {}, "call_1")], "Nice.") as chat:
        first = respond(chat, user(), tools=[TOOL])
        second = respond(chat, output, tools=[TOOL], previous_response_id=first.id)
        assert second.output_text == "Nice."
        shown = chat.asked()[-1]
        assert shown["role"] == "tool"
        assert shown["content"][0] == {"type": "text", "text": "Drawn."}
        assert [part_of_block(block) for block in shown["content"][1:]] == [
            ImagePart(PNG, "low"),
            FilePart(PDF, "report.pdf"),
        ]
        (item,) = chat.openai.responses.input_items.list(second.id, limit=1).data
        assert item.type == "function_call_output"
        assert [part.type for part in item.output] == ["input_text", "input_image", "input_file"]
        assert item.output[1].image_url == url("image/png", PNG)


@pytest.mark.parametrize(
    "file",
    [
        {"file_id": "file-1"},
        {},
        {"file_data": "%"},
        {"filename": "a.pdf", "file_data": b64(b"no PDF")},
        {"file_data": url("application/pdf", b"PK\x03\x04" + bytes(50))},
        {"file_url": "file:///etc/passwd"},
        {"file_url": "/etc/passwd"},
    ],
    ids=repr,
)
def test_a_file_that_is_none_is_refused_and_nothing_is_stored(file: dict[str, Any]) -> None:
    with served("So.") as chat:
        with pytest.raises(BadRequestError) as refused:
            respond(chat, user({"type": "input_file", **file}))
        assert refused.value.param == "input[0]"
        assert chat.sessions() == []


def test_a_file_that_the_model_cannot_read_is_refused_before_it_is_asked() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}}
    with running() as wire:
        model = iModel("anthropic:claude-wire", base_url=wire.url, api_key="key-of-the-test")
        with (
            serving(models=[model]) as server,
            client(server) as openai,
            pytest.raises(UnprocessableEntityError, match="does not read 'audio/wav'"),
        ):
            openai.chat.completions.create(
                model="anthropic:claude-wire", messages=[{"role": "user", "content": [audio]}]
            )
        assert wire.asked == []


def test_a_recording_that_is_none_is_refused() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": b64(b"no sound"), "format": "wav"}}
    with served("So.") as chat:
        with pytest.raises(BadRequestError, match="audio/wav"):
            chat.ask({"role": "user", "content": [audio]})
        assert chat.sessions() == []

"""Files in requests: in the form of each provider, refused or described where it takes none."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    AudioPart,
    FilePart,
    ImagePart,
    InstructionContent,
    Message,
    SennitError,
    Session,
    ValidationError,
    iModel,
)
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.services.models.providers.model import PROVIDERS, ProviderModel, connect
from sennit.services.models.request import model_request
from tests.services.asking import asked
from tests.services.conftest import KEY
from tests.services.provider_replies import Responses
from tests.services.wire_server import WireServer, answer, anthropic_message, completion

pytestmark = pytest.mark.usefixtures("google_sdk")

PDF = b"%PDF-1.7\n" + bytes(20)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(20)
FLAC = b"fLaC" + bytes(20)
DOCX = b"PK\x03\x04" + bytes(20)
ADDRESS = "https://example.com/a/report.pdf"
_RESPONSES = Responses("openai-responses:gpt-5", "/responses")
REPLIES: dict[str, Any] = {
    "openai": answer(completion("so")),
    "anthropic": answer(anthropic_message({"type": "text", "text": "so"})),
    "google": answer(
        {"candidates": [{"content": {"parts": [{"text": "so"}]}, "finishReason": "STOP"}]}
    ),
    "openai-responses": _RESPONSES.whole([_RESPONSES.text("so")]),
}
MODELS = {
    "openai": "wire-model",
    "anthropic": "claude-wire",
    "google": "gemini-3-pro-preview",
    "openai-responses": "gpt-5",
}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64(data)}"


def model_of(provider: str, server: WireServer) -> ProviderModel:
    return connect(f"{provider}:{MODELS[provider]}", base_url=server.url, api_key=KEY)


def sent(provider: str, server: WireServer, *contents: Any) -> Any:
    """The messages in the request about a conversation."""
    server.says(REPLIES[provider])
    chat = to_model_messages([Message(content) for content in contents])
    model = model_of(provider, server)
    params: dict[str, Any] = {"prompt_cache": False} if provider == "anthropic" else {}
    assert asked(model, model_request(chat, **params)).text == "so"
    body = server.body
    return body.get("messages") or body.get("contents") or body["input"]


def question(*files: Any, images: Any = None) -> InstructionContent:
    return InstructionContent.create("Read.", files=files or None, images=images)


def test_a_pdf_reaches_openai_s_chat_api_with_its_name(server: WireServer) -> None:
    (message,) = sent("openai", server, question(FilePart(PDF, "report.pdf")))
    assert message["content"] == [
        {"type": "text", "text": "Read."},
        {
            "type": "file",
            "file": {"filename": "report.pdf", "file_data": url("application/pdf", PDF)},
        },
    ]


def test_a_recording_reaches_openai_s_chat_api(server: WireServer) -> None:
    (message,) = sent("openai", server, question(AudioPart(WAV)))
    assert message["content"][1] == {
        "type": "input_audio",
        "input_audio": {"data": b64(WAV), "format": "wav"},
    }


def test_files_reach_openai_s_responses(server: WireServer) -> None:
    (message,) = sent(
        "openai-responses",
        server,
        question(FilePart(PDF, "a.pdf"), FilePart(DOCX, "b.docx"), FilePart(ADDRESS), images=[PNG]),
    )
    _, image, pdf, docx, address = message["content"]
    assert image["type"] == "input_image"
    assert (pdf["type"], pdf["filename"]) == ("input_file", "a.pdf")
    assert pdf["file_data"] == url("application/pdf", PDF)
    assert docx["filename"] == "b.docx"
    assert docx["file_data"].startswith("data:application/vnd.openxmlformats")
    assert address == {"type": "input_file", "file_url": ADDRESS}


def test_a_pdf_reaches_anthropic_as_a_document(server: WireServer) -> None:
    pdf, address = FilePart(PDF, "report.pdf"), FilePart(ADDRESS)
    (message,) = sent("anthropic", server, question(pdf, address))
    assert message["content"][1:] == [
        {
            "type": "document",
            "title": "report.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
        },
        {"type": "document", "source": {"type": "url", "url": ADDRESS}},
    ]


def test_files_reach_google_below_their_names(server: WireServer) -> None:
    (content,) = sent("google", server, question(FilePart(PDF, "report.pdf"), AudioPart(FLAC)))
    _, name, pdf, recording = content["parts"]
    assert name == {"text": "report.pdf:"}
    assert pdf["inlineData"]["mime_type"] == "application/pdf"
    assert recording["inlineData"]["mime_type"] == "audio/flac"


@pytest.mark.parametrize("provider", REPLIES)
def test_a_text_file_reaches_every_provider_as_text(server: WireServer, provider: str) -> None:
    (message,) = sent(provider, server, question(FilePart(b"a,b\n1,2", "t.csv")))
    assert "t.csv\\na,b\\n1,2" in repr(message)


def history(file: Any) -> list[Any]:
    """A conversation in which a tool returns a file."""
    return [
        InstructionContent("Draw."),
        ActionRequestContent("draw", {}, "call_1"),
        ActionResponseContent("call_1", "Done.", files=[file]),
    ]


def test_a_picture_of_a_tool_reaches_anthropic_inside_the_result(server: WireServer) -> None:
    result = sent("anthropic", server, *history(ImagePart(PNG)))[-1]["content"][0]
    assert result["type"] == "tool_result"
    assert result["content"] == [
        {"type": "text", "text": "Done."},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)},
        },
    ]


def test_a_pdf_of_a_tool_reaches_anthropic_inside_the_result(server: WireServer) -> None:
    result = sent("anthropic", server, *history(FilePart(PDF, "plan.pdf")))[-1]["content"][0]
    assert [block["type"] for block in result["content"]] == ["text", "document"]
    assert result["content"][1]["title"] == "plan.pdf"


def test_files_of_a_tool_reach_openai_s_responses_inside_the_output(server: WireServer) -> None:
    for file, kind in ((ImagePart(PNG), "input_image"), (FilePart(PDF, "p.pdf"), "input_file")):
        output = sent("openai-responses", server, *history(file))[-1]
        assert output["type"] == "function_call_output"
        assert [part["type"] for part in output["output"]] == ["input_text", kind]


def test_a_picture_of_a_tool_follows_its_result_at_openai_s_chat_api(server: WireServer) -> None:
    _, _, result, following = sent("openai", server, *history(ImagePart(PNG)))
    assert result["role"] == "tool"
    assert "Done." in result["content"]
    assert following["role"] == "user"
    images = [block for block in following["content"] if block["type"] == "image_url"]
    assert images[0]["image_url"]["url"] == url("image/png", PNG)


def test_a_picture_of_a_tool_reaches_google(server: WireServer) -> None:
    response = sent("google", server, *history(ImagePart(PNG)))[-1]["parts"][0]["functionResponse"]
    assert response["response"] == {"return_value": "Done."}
    (picture,) = response["parts"]
    assert picture["inline_data"]["mime_type"] == "image/png"


UNREAD = [
    ("anthropic", AudioPart(WAV)),
    ("anthropic", FilePart(DOCX, "b.docx")),
    ("anthropic", FilePart("https://example.com/a.docx")),
    ("openai-responses", AudioPart(WAV)),
    ("openai", AudioPart(FLAC)),
    ("openai", FilePart(ADDRESS)),
    ("openai", AudioPart("https://example.com/a.mp3")),
    ("google", FilePart(ADDRESS)),
    ("openai", FilePart(b"\0\1\2", "core")),
]


@pytest.mark.parametrize(("provider", "file"), UNREAD, ids=repr)
def test_what_a_model_cannot_read_is_refused_before_the_request(
    server: WireServer, provider: str, file: Any
) -> None:
    chat = to_model_messages([Message(question(file))])
    with pytest.raises(ValidationError, match=r"does not (read|accept)"):
        asked(model_of(provider, server), model_request(chat))
    assert server.asked == []


@pytest.mark.parametrize(("provider", "file"), UNREAD, ids=repr)
def test_what_a_model_cannot_read_is_described_in_earlier_messages(
    server: WireServer, provider: str, file: Any
) -> None:
    messages = sent(
        provider,
        server,
        question(file),
        AssistantResponseContent("Read."),
        *history(file),
    )
    assert str(messages).count("this model cannot read it") == 2
    assert "base64" not in str(messages)


def test_a_conversation_goes_on_after_a_file_that_was_refused(server: WireServer) -> None:
    model = iModel("anthropic:claude-wire", base_url=server.url, api_key=KEY)
    server.says(REPLIES["anthropic"])
    chat = Session().conversation(model=model)
    refused = chat.say(["Listen.", AudioPart(WAV)])
    assert "does not read 'audio/wav'" in str(refused.error)
    assert server.asked == []
    assert chat.say("Never mind.").text == "so"
    assert "this model cannot read it" in str(server.body["messages"])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_provider_fetches_a_file_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, server: WireServer, provider: str
) -> None:
    from pydantic_ai import _ssrf

    async def never(url: str, **_: Any) -> Any:
        raise AssertionError(url)

    monkeypatch.setattr(_ssrf, "safe_download", never)
    try:
        model = connect(f"{provider}:openai/gpt-4o", base_url=server.url, api_key=KEY)
    except ValidationError:
        model = connect(f"{provider}:openai/gpt-4o", api_key=KEY)
    server.says(answer({"error": {"message": "no"}}, status=400))
    for file in (FilePart(ADDRESS), FilePart("https://example.com/a.txt")):
        chat = to_model_messages([Message(question(file))])
        with pytest.raises(SennitError):  # refused here, or by the server
            asked(model, model_request(chat))

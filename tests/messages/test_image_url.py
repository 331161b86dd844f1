"""Images by their URL and by their bytes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import ImagePart, InstructionContent, Message, TextPart, ValidationError
from sennit.messages import image_url as images
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.services.models.usage import count_chars
from sennit.testing import ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
JPEG = b"\xff\xd8\xff\xe0" + bytes(40)
GIF = b"GIF89a" + bytes(40)
WEBP = b"RIFF\x2a\0\0\0WEBPVP8 " + bytes(40)
KINDS = {"png": PNG, "jpeg": JPEG, "gif": GIF, "webp": WEBP}


def data_url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_may_be_bytes_a_file_or_a_data_url(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]
    path = tmp_path / "picture"
    path.write_bytes(data)
    for image in (data, path, data_url(kind, data)):
        assert ImagePart(image).url == data_url(kind, data)
        content = InstructionContent(instruction="Look.", images=[image])  # type: ignore[list-item]
        assert content.images == [data_url(kind, data)]


def test_the_type_of_an_image_is_that_of_its_bytes() -> None:
    assert ImagePart(data_url("png", JPEG)).url == data_url("jpeg", JPEG)


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"<svg/>",
        PNG[:7],
        "data:image/png;base64,",
        "data:image/png;base64,AAAA",
        "data:image/png,x",
        "data:text/html;base64,PGI+",
        "data:image/png;base64,iVBORw0KGgo",
        "data:image/png;base64,iVBO Rw0KGgo=",
        "file:///etc/passwd",
        Path("/etc/passwd"),
        Path("/nowhere/at/all.png"),
        Path("/"),
    ],
    ids=repr,
)
def test_what_is_no_image_is_refused(image: Any) -> None:
    with pytest.raises(ValidationError):
        ImagePart(image)
    with pytest.raises(ValidationError):
        InstructionContent(images=[image])


def test_a_path_in_a_text_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(PNG)
    for text in (str(path), path.as_uri()):
        with pytest.raises(ValidationError, match="scheme"):
            ImagePart(text)
        with pytest.raises(ValidationError, match="scheme"):
            Message({"images": [text]})


def test_an_image_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", 30)
    path = tmp_path / "picture"
    path.write_bytes(PNG)
    for image in (PNG, path, data_url("png", PNG)):
        with pytest.raises(ValidationError, match="scale it down"):
            ImagePart(image)


def test_an_image_reaches_the_model_and_comes_back_from_the_store(tmp_path: Path) -> None:
    model = ScriptedModel(["A knot.", "Yes."])
    with sennit.open(tmp_path / "s.db") as client:
        session = client.session("pictures")
        session.add_message("user", [TextPart("What is this?"), ImagePart(PNG)])
        assert session.conversation(model=model).run().text == "A knot."
    with sennit.open(tmp_path / "s.db") as client:
        session = client.session("pictures")
        session.conversation(model=model).say("Sure?")
        assert client.search_messages("iVBORw0KGgoAAAAA") == []
        assert client.search_messages("this")
        assert client.doctor() == []
    for request in model.requests:
        (picture,) = [
            block for block in request.messages[0]["content"] if block["type"] == "image_url"
        ]
        assert picture["image_url"]["url"] == data_url("png", PNG)


def test_people_see_the_type_and_the_size_and_estimates_count_a_picture() -> None:
    picture = Message(InstructionContent(images=[data_url("png", PNG + bytes(300_000))]))
    assert len(picture.rendered_text) < 200
    assert count_chars(to_model_messages([picture])) < 10_000
    assert images.without_data(data_url("gif", GIF)) == "[image/gif, 46 bytes]"

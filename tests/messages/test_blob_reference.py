"""References to blobs in the place of `data:` URLs."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import pytest

from sennit.errors import ValidationError
from sennit.messages.blob_reference import MIN_BLOB_BYTES, BlobReference, blob_in, without_bytes
from sennit.messages.content import InstructionContent
from sennit.messages.render import blocks_text

PNG = b"\x89PNG\r\n\x1a\n" + bytes(MIN_BLOB_BYTES)
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


def test_a_data_url_becomes_a_reference_and_comes_back_byte_for_byte() -> None:
    blob = blob_in(URL)
    assert blob is not None
    reference, data = blob
    assert data == PNG
    assert str(reference) == (
        f"sennit-blob:sha256:{sha256(PNG).hexdigest()}?type=image/png&size={len(PNG)}"
    )
    assert BlobReference.of(str(reference)) == reference
    assert reference.data_url(data) == URL


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.png",
        "data:image/png;base64,iVBORw0KGgo=",
        URL + "A",
        URL[:-4] + "AB==",
        "data:text/plain;charset=utf-8;base64," + "QUFB" * 1000,
        f"data:image/png;base64,{'*' * 4000}",
    ],
    ids=["address", "small", "cut", "loose bits", "parameters", "no base64"],
)
def test_what_would_not_come_back_exactly_stays_as_it_is(url: str) -> None:
    assert without_bytes(url) == url


@pytest.mark.parametrize(
    "text",
    [
        "sennit-blob:sha256:",
        f"sennit-blob:sha256:{'a' * 63}",
        f"sennit-blob:sha256:{'A' * 64}",
        f"sennit-blob:sha256:{'a' * 64}?type=image/png",
        f"sennit-blob:sha256:{'a' * 64}?type=image/png&size=1 ",
        f" sennit-blob:sha256:{'a' * 64}",
    ],
)
def test_a_malformed_reference_is_no_image(text: str) -> None:
    assert BlobReference.of(text) is None
    with pytest.raises(ValidationError):
        InstructionContent(images=[text])


def test_a_reference_to_another_type_is_no_image() -> None:
    with pytest.raises(ValidationError, match="is no image"):
        InstructionContent(images=[f"sennit-blob:sha256:{'a' * 64}?type=text/html&size=5"])


def test_people_see_the_type_and_size_of_an_image_and_not_its_bytes() -> None:
    content = InstructionContent(instruction="look", images=[URL, "https://example.com/a.png"])
    stored = content.with_attachment_urls(without_bytes)
    assert content.attachment_urls == [URL, "https://example.com/a.png"]
    assert stored.attachment_urls == [without_bytes(URL), "https://example.com/a.png"]
    assert "[image/png, 1,032 bytes]" in blocks_text(content.rendered)
    assert blocks_text(stored.rendered) == blocks_text(content.rendered)


def test_a_content_without_attachments_has_none() -> None:
    content = InstructionContent(instruction=f"sennit-blob:sha256:{'a' * 64}")
    assert content.attachment_urls == ()
    assert content.with_attachment_urls(lambda _: "changed") is content

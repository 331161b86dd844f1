"""Files in requests: in the form of pydantic-ai, and only where the model takes them.

By one rule: what the user has just sent must be read, so a request with a file that the model does
not take is refused. In earlier messages and in results of tools a text takes its place, so that a
history can be continued with any model. Texts are always sent as text, below the name of the file.
Nothing is fetched on this machine, except for images where `fetch_images` allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sennit.errors import MissingExtraError, ValidationError, short_repr
from sennit.messages.image_url import is_data_url
from sennit.messages.media import (
    FilePart,
    MediaPart,
    part_bytes,
    part_of_block,
    text_of,
)
from sennit.messages.render import block_text

try:
    from pydantic_ai import messages as layer
except ImportError as error:
    raise MissingExtraError.of("Asking a provider's model", "models") from error


@dataclass(frozen=True, slots=True)
class FileInput:
    """The files that a model takes."""

    provider: str
    """The provider's name in pydantic-ai."""
    profile: Mapping[str, Any]
    """The features of the model, by pydantic-ai."""
    is_own_server: bool = False
    """Whether the server is not the provider's own, so that nothing is known of its models."""
    fetch_images: bool = False
    """Whether images may be fetched on this machine for a provider that takes no address."""

    def refusal(self, item: layer.UserContent) -> str | None:
        """Return the reason why the model cannot be sent something; None if it can."""
        match item:
            case layer.ImageUrl() if self.provider == "google" and not self.fetch_images:
                return (
                    "this provider does not accept image URLs, so the image would be fetched from "
                    "this machine; allow that with fetch_images=True, or use another provider."
                )
            case layer.AudioUrl() | layer.DocumentUrl() if not self._takes_address(item):
                return "this provider does not accept the address of such a file; send its bytes."
            case layer.BinaryContent() if not self._takes_bytes(item):
                way_out = "its transcript" if item.is_audio else "a text or a PDF of it"
                return f"this model does not read {item.media_type!r}; send {way_out}."
            case _:
                return None

    def _takes_address(self, item: layer.AudioUrl | layer.DocumentUrl) -> bool:
        if isinstance(item, layer.AudioUrl):
            return False
        if self.provider == "anthropic":
            return item.media_type == "application/pdf"
        if self.provider == "openai-responses":
            return True
        takes = self.profile.get("openai_chat_supports_file_urls", False)
        return bool(takes) and item.media_type in self._document_types

    def _takes_bytes(self, item: layer.BinaryContent) -> bool:
        profile = self.profile
        if item.is_image:
            return profile.get("supports_image_input", True)
        if item.is_audio:
            if self.provider in ("anthropic", "openai-responses"):
                return False
            if self.provider == "google":
                return profile.get("supports_audio_file_input", True)
            takes = self.is_own_server or profile.get("supports_audio_file_input", True)
            return takes and item.media_type in ("audio/wav", "audio/mpeg")
        return profile.get("supports_document_input", True) and (
            item.media_type in self._document_types
        )

    @property
    def _document_types(self) -> Iterable[str]:
        return self.profile.get("supported_document_media_types", ())


def layer_content(
    content: Any, accepted: FileInput | None, *, newest: bool = False
) -> list[layer.UserContent]:
    """Translate blocks; raises ValidationError if the model cannot read one of the newest."""
    blocks = cast("Sequence[Mapping[str, Any]]", content or ())
    return [item for block in blocks for item in _layer_block(block, accepted, newest=newest)]


def _layer_block(
    block: Mapping[str, Any], accepted: FileInput | None, *, newest: bool
) -> Iterator[layer.UserContent]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield text
            return
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            item, name = _image(url, more.get("detail")), None
        case _:
            part = part_of_block(block)
            if part is None:
                raise ValidationError(
                    f"A content block must be of type 'text', 'image_url', 'file' or "
                    f"'input_audio', got {short_repr(block)}."
                )
            item, name = _file(part), part.name if isinstance(part, FilePart) else None
    reason = None if accepted is None else accepted.refusal(item)
    if reason is None:
        if name is not None and not isinstance(item, str) and _loses_names(accepted):
            yield f"{name}:"
        yield item
    elif newest:
        raise ValidationError(reason)
    else:
        yield f"{block_text(dict(block))} was left out: this model cannot read it."


def _loses_names(accepted: FileInput | None) -> bool:
    """Return whether requests to a provider have no field for the name of a file."""
    return accepted is not None and accepted.provider == "google"


def _image(url: str, detail: Any) -> layer.UserContent:
    if not url.startswith("data:"):
        return layer.ImageUrl(url, vendor_metadata={"detail": detail} if detail else None)
    try:
        return layer.BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ValidationError(f"An image is not a base64 data URL: {short_repr(url)}.") from error


def _file(part: MediaPart) -> layer.UserContent:
    kind, name = part.media_type, part.name if isinstance(part, FilePart) else None
    if not is_data_url(part.url):
        if kind.startswith("image/"):
            return layer.ImageUrl(part.url, media_type=kind)
        if kind.startswith("audio/"):
            return layer.AudioUrl(part.url, media_type=kind)
        return layer.DocumentUrl(part.url, media_type=kind, identifier=name)
    text = text_of(part)
    if text is not None:
        return text
    return layer.BinaryContent(part_bytes(part), media_type=kind, identifier=name)

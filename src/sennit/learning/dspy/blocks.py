"""Images and other content blocks that DSPy embeds in text.

An image is stored with a turn as the text that DSPy sends for it, from which DSPy builds a content
block again. For people, search and training exports the block is replaced by its type, such as
"[image]", and images with a URL become images of the instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sennit.errors import ValidationError
from sennit.learning.dspy.dspy_imports import BLOCK_END, BLOCK_START
from sennit.messages.content import InstructionContent

_BLOCK_PATTERN = re.compile(f"{re.escape(BLOCK_START)}(.*?){re.escape(BLOCK_END)}", re.DOTALL)


def without_blocks(value: Any) -> Any:
    """Return plain data with each block replaced by its text, or its type, such as "[image]"."""
    if isinstance(value, str):
        return _BLOCK_PATTERN.sub(_describe_match, value) if BLOCK_START in value else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: without_blocks(item) for name, item in fields.items()}
    if isinstance(value, list):
        return [without_blocks(item) for item in cast("list[Any]", value)]
    return value


def image_urls(value: Any) -> list[str]:
    """Return the URLs of the images in plain data, in order, without embedded (data:) images."""
    return [url for text in _texts(value) for url in _urls_in_text(text)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)


def _urls_in_text(text: str) -> Iterator[str]:
    for match in _BLOCK_PATTERN.finditer(text) if BLOCK_START in text else ():
        for block in _parse_blocks(match) or ():
            image = block.get("image_url")
            url = cast("dict[str, Any]", image).get("url") if isinstance(image, dict) else None
            if isinstance(url, str) and _is_image_url(url):
                yield url


def _is_image_url(url: str) -> bool:
    try:
        InstructionContent(images=[url])
    except ValidationError:
        return False
    return True


def _describe_match(match: re.Match[str]) -> str:
    blocks = _parse_blocks(match)
    if blocks is None:
        return match[0]  # ordinary text with the same markers
    return " ".join(_describe_block(block) for block in blocks)


def _describe_block(block: dict[str, Any]) -> str:
    kind = str(block.get("type", "block"))
    if kind == "text":
        return str(block.get("text", ""))
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


def _parse_blocks(match: re.Match[str]) -> list[dict[str, Any]] | None:
    try:
        blocks = json.loads(match[1])
    except ValueError:
        return None
    if not isinstance(blocks, list) or not all(
        isinstance(block, dict) for block in cast("list[Any]", blocks)
    ):
        return None
    return cast("list[dict[str, Any]]", blocks)

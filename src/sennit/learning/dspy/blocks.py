"""Images and other content blocks that DSPy embeds in text.

An image is kept with a turn as the text that DSPy sends for it, and DSPy makes a content block of
it again. For everybody else (readers, search, training files) the text names the block, and images
with an address are images of the instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sennit.errors import ValidationError
from sennit.learning.dspy.dspy_imports import BLOCK_END, BLOCK_START
from sennit.messages.content import InstructionContent

_BLOCKS = re.compile(f"{re.escape(BLOCK_START)}(.*?){re.escape(BLOCK_END)}", re.DOTALL)


def without_blocks(value: Any) -> Any:
    """Return plain data in which blocks are named, such as "[image]", or say their text."""
    if isinstance(value, str):
        return _BLOCKS.sub(_named, value) if BLOCK_START in value else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: without_blocks(one) for name, one in fields.items()}
    if isinstance(value, list):
        return [without_blocks(one) for one in cast("list[Any]", value)]
    return value


def images_in(value: Any) -> list[str]:
    """The addresses of the images in plain data, in order; those in the text itself have none."""
    return [url for text in _texts(value) for url in _addresses(text)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _texts(one)


def _addresses(text: str) -> Iterator[str]:
    for found in _BLOCKS.finditer(text) if BLOCK_START in text else ():
        for block in _read(found) or ():
            image = block.get("image_url")
            url = cast("dict[str, Any]", image).get("url") if isinstance(image, dict) else None
            if isinstance(url, str) and _is_address(url):
                yield url


def _is_address(url: str) -> bool:
    try:
        InstructionContent(images=[url])
    except ValidationError:
        return False
    return True


def _named(found: re.Match[str]) -> str:
    blocks = _read(found)
    if blocks is None:
        return found[0]  # someone wrote the marks
    return " ".join(_name(block) for block in blocks)


def _name(block: dict[str, Any]) -> str:
    kind = str(block.get("type", "block"))
    if kind == "text":
        return str(block.get("text", ""))
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


def _read(found: re.Match[str]) -> list[dict[str, Any]] | None:
    try:
        blocks = json.loads(found[1])
    except ValueError:
        return None
    if not isinstance(blocks, list) or not all(
        isinstance(one, dict) for one in cast("list[Any]", blocks)
    ):
        return None
    return cast("list[dict[str, Any]]", blocks)

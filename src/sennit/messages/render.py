"""Rendering of contents as text: labelled sections, YAML, TypeScript schemas.

The text is for models and people, not for a YAML parser: strings are never quoted or escaped, and
only multi-line strings get a block indicator (`|`). Nothing here is parsed back; see `codec`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sennit.messages.image_url import without_data
from sennit.messages.media import label, part_of_block, part_of_record
from sennit.messages.output_schema import is_model, model_name, model_schema
from sennit.messages.unset import Unset

if TYPE_CHECKING:
    from sennit.messages.content import (
        ActionRequestContent,
        ActionResponseContent,
        InstructionContent,
    )
    from sennit.messages.output_schema import Model
    from sennit.messages.typescript import ToolSchema

FORMAT_WORDS = (
    "MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT",
    "Example structure:",
    "Return ONLY valid JSON",
)
"""Phrases of the response format section; an answer that contains them echoes the prompt."""
_RESPONSE_FORMAT = """ResponseFormat:
  **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
  Example structure:
  ```json
  {example}
  ```

  Return ONLY valid JSON without markdown code blocks."""


def instruction_text(content: InstructionContent) -> str:
    """Render the sections of an instruction, separated by blank lines."""
    sections = [instruction_section(content.instruction)] if content.instruction else []
    if content.context:
        lines = ["Context:"]
        _items(content.context, "  ", lines)
        sections.append(_strip_trailing_newlines("\n".join(lines)))
    if content.tool_schemas is not Unset and content.tool_schemas:
        sections.append("\n".join(["Tools:", *_tools(content.tool_schemas)]))
    if content.response_model is not Unset:
        sections.append(_output_types(content.response_model))
        sections.append(_response_format(content.response_model))
    return "\n\n".join(sections)


def text_with_results(content: InstructionContent, results: list[str]) -> str:
    """Render an earlier instruction with tool results after its context."""
    lines = ["Context:"]
    if content.context:
        _items(content.context, "  ", lines)
    _items(results, "  ", lines)
    context = _strip_trailing_newlines("\n".join(lines))
    return (
        f"{instruction_section(content.instruction)}\n\n{context}"
        if content.instruction
        else context
    )


def instruction_section(instruction: str) -> str:
    """Render the section with the instruction itself."""
    section = f"Instruction: {instruction}"
    return section.rstrip("\n") if section[-1] == "\n" else section


def _strip_trailing_newlines(section: str) -> str:
    return section.rstrip("\n") if section[-1] == "\n" else section


def action_request_text(content: ActionRequestContent) -> str:
    """Render `function:` and `arguments:` as YAML."""
    lines: list[str] = []
    _field("function", content.function or "", "", lines)
    _field("arguments", content.arguments or {}, "", lines)
    return _strip_trailing_newlines("\n".join(lines))


def fields_text(fields: dict[str, Any]) -> str:
    """Render fields as YAML."""
    return _yaml(fields) if fields else ""


def blocks_text(rendered: str | list[dict[str, Any]]) -> str:
    """Return a rendered content as text; of blocks, the texts and a line for each file."""
    if isinstance(rendered, str):
        return rendered
    return "\n".join(map(block_text, rendered))


def block_text(block: dict[str, Any]) -> str:
    """Return a content block as text: of an image the URL, of a file its name, type and size."""
    if block.get("type") in ("file", "input_audio"):
        part = part_of_block(block)
        return str(block) if part is None else label(part)
    image = block.get("image_url")
    if not image:
        return str(block.get("text") or "")
    return str({**image, "url": without_data(image["url"])})


def action_response_text(content: ActionResponseContent) -> str:
    """Render `success:`, request_id if set, the result or the error, and files, as YAML."""
    lines = ["success: true" if content.error is Unset else "success: false"]
    if content.request_id is not Unset:
        _field("request_id", content.request_id, "", lines)
    if content.error is not Unset:
        _field("error", content.error, "", lines)
    elif content.result is not Unset:
        _field("result", content.result, "", lines)
    if content.files:
        _field("files", [label(part_of_record(file)) for file in content.files], "", lines)
    return _strip_trailing_newlines("\n".join(lines))


def context_item(item: Any) -> str:
    """Render one item of a `Context:` section, with its dash."""
    lines: list[str] = []
    _items([item], "  ", lines)
    return "\n".join(lines)


# `typescript` is slow to import, so it is imported only if there are schemas.


def _tools(schemas: Iterable[Any]) -> Iterable[str]:
    from sennit.messages.typescript import typescript

    for schema in schemas:
        tool = _tool(schema)
        yield f"  {tool.name}:"
        if tool.description:
            yield f"    # {' '.join(tool.description.split())}"
        yield _indented(typescript(tool.parameters, tool.name), "    ")


def _tool(schema: Any) -> ToolSchema:
    from sennit.messages.typescript import tool_schema

    if is_model(schema):
        return tool_schema(model_schema(schema), model_name(schema))
    return tool_schema(schema)


def _output_types(model: Model) -> str:
    from sennit.messages.typescript import typescript

    types = typescript(model_schema(model), model_name(model))
    return f"Output Types:\n{_indented(types, '  ')}"


def _response_format(model: Model) -> str:
    from sennit.messages.typescript import example

    return _RESPONSE_FORMAT.replace("{example}", example(model_schema(model)))


def _indented(text: str, margin: str) -> str:
    if "\n\n" in text or not text or text[0] == "\n" or text[-1] == "\n":
        return "\n".join(margin + line if line else line for line in text.split("\n"))
    return margin + text.replace("\n", f"\n{margin}")


# Contents have exact dicts, lists and strings (see `plain`), so `type(...) is` suffices, which is
# fast: this runs for every tool result of every prompt.


def _yaml(fields: dict[str, Any]) -> str:
    lines: list[str] = []
    _fields(fields, "", lines)
    return _strip_trailing_newlines("\n".join(lines))


def _fields(fields: dict[str, Any], margin: str, lines: list[str]) -> None:
    """Append the lines of a mapping."""
    for name, value in fields.items():
        key = name if name and "\n" not in name else json.dumps(name, ensure_ascii=False)
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if (kind is str and value and "\n" not in value) or kind is int or kind is float:
            lines.append(f"{margin}{key}: {value}")
        else:
            _field(key, value, margin, lines)


def _field(key: str, value: Any, margin: str, lines: list[str]) -> None:
    """Append a key and its value; containers and multi-line text go below the key."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict and value:
        lines.append(f"{margin}{key}:")
        _fields(value, f"{margin}  ", lines)
    elif kind is list and value:
        lines.append(f"{margin}{key}:")
        _items(value, f"{margin}  ", lines)
    elif kind is str and "\n" in value:
        lines.append(f"{margin}{key}: |")
        lines.append(_indented(value, f"{margin}  "))
    else:
        lines.append(f"{margin}{key}: {_scalar(value)}")


def _items(items: list[Any], margin: str, lines: list[str]) -> None:
    """Append the lines of a list; multi-line items are indented under their dash."""
    for item in items:
        kind = type(item)  # pyright: ignore[reportUnknownVariableType]
        first = len(lines)
        if kind is dict and item:
            _fields(item, f"{margin}  ", lines)
        elif kind is list and item:
            _items(item, f"{margin}  ", lines)
        else:
            first_line, newline, rest = (item if kind is str and item else _scalar(item)).partition(
                "\n"
            )
            lines.append(f"{margin}- {first_line}" if first_line else f"{margin}-")
            if newline:
                lines.append(_indented(rest, f"{margin}  "))
            continue
        # Put the dash on the first line.
        lines[first] = f"{margin}- {lines[first][len(margin) + 2 :]}"


def _scalar(value: Any) -> str:
    """Render a value that fits on its key's line."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    return '""' if value == "" else str(value)  # an empty list or dict prints as [] or {}

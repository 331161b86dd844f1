"""Types of a program's fields, to restore values that were stored as plain data.

A turn read from a store or a file holds plain data: the fields of a model, the value of an enum,
the text of a date. Metrics and examples expect the types of the program's signatures, so values are
converted back to these. Images and other block types stay the text that DSPy sends: constructed
from a text, they would read the file of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from sennit.learning.dspy.dspy_imports import BlockType

_JSON_TYPES = (str, int, float, bool, list, dict, Any)


class FieldTypes:
    """The types of fields by name; a name used with several types has none."""

    def __init__(self, program: Any) -> None:
        annotations: dict[str, Any] = {}
        ambiguous = set[str]()
        for predictor in program.predictors():
            for name, field in predictor.signature.fields.items():
                if annotations.setdefault(name, field.annotation) != field.annotation:
                    ambiguous.add(name)
        self._types = {
            name: annotation
            for name, annotation in annotations.items()
            if name not in ambiguous
            and annotation not in _JSON_TYPES
            and not _contains_block_type(annotation, set())
        }
        self._adapters: dict[str, TypeAdapter[Any] | None] = {}

    def restore(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values, each converted to the type of its field where possible."""
        return {name: self._restore_value(name, value) for name, value in values.items()}

    def _restore_value(self, name: str, value: Any) -> Any:
        adapter = self._adapter(name)
        if adapter is None:
            return value
        if _is_valid(adapter, value):
            return value
        try:
            return adapter.validate_python(value)
        except Exception:  # custom validators may raise anything
            return value

    def _adapter(self, name: str) -> TypeAdapter[Any] | None:
        if name not in self._adapters:
            adapter = None
            if name in self._types:
                try:
                    adapter = TypeAdapter(self._types[name])
                except PydanticUserError:  # a type that pydantic does not support
                    adapter = None
            self._adapters[name] = adapter
        return self._adapters[name]


def _is_valid(adapter: TypeAdapter[Any], value: Any) -> bool:
    """Return whether a value has the type already, without conversion."""
    try:
        adapter.validate_python(value, strict=True)
    except Exception:  # custom validators may raise anything
        return False
    return True


def _contains_block_type(annotation: Any, seen: set[int]) -> bool:
    """Return whether a type is, or contains, one that DSPy sends as a content block."""
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BlockType):
        return True
    nested = list(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        nested += [field.annotation for field in annotation.model_fields.values()]
    return any(_contains_block_type(inner, seen) for inner in nested)

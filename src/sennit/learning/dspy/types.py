"""Types of a program's fields, to restore values that were stored as plain data.

A turn that is read from a store or a file holds plain data: the fields of a model, the value of an
enum, the text of a date. A metric was written for what the program returned, and so were examples
for its signatures; both get values of the types that the signatures name. Images and the like are
left as the text that DSPy sends: made of a text, they would read the file of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from sennit.learning.dspy.dspy_imports import BlockType

_PLAIN = (str, int, float, bool, list, dict, Any)


class FieldTypes:
    """The types of fields, by name; a name that means several types has none."""

    def __init__(self, program: Any) -> None:
        found: dict[str, Any] = {}
        unclear = set[str]()
        for predictor in program.predictors():
            for name, field in predictor.signature.fields.items():
                if found.setdefault(name, field.annotation) != field.annotation:
                    unclear.add(name)
        self._types = {
            name: one
            for name, one in found.items()
            if name not in unclear and one not in _PLAIN and not _holds_blocks(one, set())
        }
        self._adapters: dict[str, TypeAdapter[Any] | None] = {}

    def restored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, each of the type of its field if it can be read as one."""
        return {name: self._restored(name, value) for name, value in values.items()}

    def _restored(self, name: str, value: Any) -> Any:
        adapter = self._adapter(name)
        if adapter is None:
            return value
        if _fits(adapter, value):
            return value
        try:
            return adapter.validate_python(value)
        except Exception:  # validators of a program's own may raise anything
            return value

    def _adapter(self, name: str) -> TypeAdapter[Any] | None:
        if name not in self._adapters:
            made = None
            if name in self._types:
                try:
                    made = TypeAdapter(self._types[name])
                except PydanticUserError:  # a type that pydantic does not know
                    made = None
            self._adapters[name] = made
        return self._adapters[name]


def _fits(adapter: TypeAdapter[Any], value: Any) -> bool:
    """Tell whether a value is of a type as it is."""
    try:
        adapter.validate_python(value, strict=True)
    except Exception:  # validators of a program's own may raise anything
        return False
    return True


def _holds_blocks(annotation: Any, seen: set[int]) -> bool:
    """Tell whether a type is, or holds, one that DSPy sends as a block of its own."""
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BlockType):
        return True
    inside = list(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        inside += [field.annotation for field in annotation.model_fields.values()]
    return any(_holds_blocks(one, seen) for one in inside)

"""Output and tool schemas: a pydantic class at run time, a name and a JSON schema at rest.

A stored message must be readable without the program that wrote it, and reading must never import
or run anything. So a class is stored as its name and JSON schema and restored as a `ModelSchema`,
which renders to the same text; a caller who has the class may pass it to restore the class itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.json_values import plain_dict, validate_text

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """A response model or tool schema without its class."""

    name: str
    """The name of the schema, which a capability grants."""
    schema: dict[str, Any]
    """The JSON schema."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", validate_text(self.name, "schema name"))
        object.__setattr__(self, "schema", plain_dict(self.schema, "schema"))

    def __hash__(self) -> int:
        return hash(self.name)


if TYPE_CHECKING:
    Model: TypeAlias = type[BaseModel] | ModelSchema

_schemas: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()


def is_model(value: Any) -> bool:
    """Return whether `value` is a pydantic model class or a ModelSchema."""
    # Checked by attribute, to avoid importing pydantic.
    return isinstance(value, ModelSchema) or (
        isinstance(value, type) and hasattr(value, "model_json_schema")
    )


def as_model(value: Any, name: str) -> Model:
    """Return a pydantic class, ModelSchema or JSON schema as a model; or InvalidTypeError.

    The error is raised too for a class without a JSON schema, which could not be rendered.
    """
    if is_model(value):
        try:
            model_schema(value)
        except Exception as error:  # of pydantic, or of code in the class
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InvalidTypeError(
                f"{name} needs a JSON schema, which {model_name(value)} lacks: {reason}"
            ) from error
        return value
    if isinstance(value, Mapping):
        schema = cast("Mapping[str, Any]", value)
        return ModelSchema(str(schema.get("title") or "Output"), dict(schema))
    raise InvalidTypeError(
        f"{name} must be a pydantic model class or a JSON schema, got {short_repr(value)}."
    )


def model_name(model: Model) -> str:
    """Return the name of a model: that of the class or of the schema."""
    return model.name if isinstance(model, ModelSchema) else model.__name__


def model_schema(model: Model) -> dict[str, Any]:
    """Return the JSON schema of a model, cached per class."""
    if isinstance(model, ModelSchema):
        return model.schema
    schema = _schemas.get(model)
    if schema is None:
        schema = _schemas[model] = plain_dict(model.model_json_schema(), model.__name__)
    return schema

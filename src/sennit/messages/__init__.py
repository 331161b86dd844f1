"""Messages: contents, parts, encoding and rendering."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.messages.output_schema import ModelSchema

__all__ = ["ModelSchema"]

__getattr__ = lazy_exports(
    __name__,
    {
        "output_schema": "ModelSchema",
    },
)

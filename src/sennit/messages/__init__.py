"""Messages: contents, parts, encoding and rendering."""

from sennit.messages.output_schema import ModelSchema

__all__ = ["ModelSchema"]

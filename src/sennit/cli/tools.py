"""Tools from the command line: a function in a file or a module of the user's own."""

from __future__ import annotations

from sennit.cli.functions import function_named
from sennit.services.tools import Tool


def tool_named(place: str) -> Tool:
    """The tool at "FILE.py:FUNCTION" or "MODULE:FUNCTION"; raises as `function_named`."""
    found = function_named(place, "tool", Tool)
    return found if isinstance(found, Tool) else Tool(found)

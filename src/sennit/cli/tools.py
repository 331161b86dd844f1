"""Tools from the command line: a function in a file or a module of the user's own."""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from sennit.errors import NotFoundError, ValidationError
from sennit.services.tools import Tool


def tool_named(place: str) -> Tool:
    """The tool at "FILE.py:FUNCTION" or "MODULE:FUNCTION".

    Importing runs the code there. Raises ValidationError or NotFoundError.
    """
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise ValidationError(f"A tool is FILE.py:FUNCTION or MODULE:FUNCTION, got {place!r}.")
    try:
        module = _file(Path(where)) if where.endswith(".py") else import_module(where)
    except Exception as error:  # the user's own code may do anything
        told = f"Tool {place!r} could not be loaded: {type(error).__name__}: {error}"
        raise NotFoundError(told) from error
    found = getattr(module, name, None)
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise NotFoundError(f"There is no function {name!r} in {where!r}.")
    return Tool(found)


def _file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

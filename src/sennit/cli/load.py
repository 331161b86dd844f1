"""Functions loaded from a file or module named on the command line.

Loading one runs the code there; nothing stored ever names one.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from os.path import expanduser
from pathlib import Path
from types import ModuleType
from typing import Any

from sennit.errors import NotFoundError, ValidationError


def function_named(place: str, what: str, *others: type) -> Any:
    """Return the callable, or one of `others`, named by "FILE.py:FUNCTION" or "MODULE:FUNCTION".

    `what` it is to be is told in errors. Raises ValidationError or NotFoundError.
    """
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise ValidationError(f"A {what} is FILE.py:FUNCTION or MODULE:FUNCTION, got {place!r}.")
    found = getattr(module_named(where, f"{what} {place!r}"), name, None)
    if not callable(found) and not isinstance(found, others):
        raise NotFoundError(f"There is no function {name!r} in {where!r}.")
    return found


def module_named(where: str, what: str) -> ModuleType:
    """A module by its name, or a file; `what` needs it is told in errors. Raises NotFoundError."""
    try:
        return _file(Path(expanduser(where))) if where.endswith(".py") else import_module(where)
    except Exception as error:  # the user's own code may do anything
        told = f"The {what} could not be loaded: {type(error).__name__}: {error}"
        raise NotFoundError(told) from error


def _file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Functions loaded from a file or module named on the command line.

Loading executes the file; names from the store are never loaded.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from os.path import expanduser
from pathlib import Path
from types import ModuleType
from typing import Any

from sennit.errors import NotFoundError, ValidationError


def load_function(spec: str, kind: str, *others: type) -> Any:
    """Return the callable, or one of `others`, named by "FILE.py:FUNCTION" or "MODULE:FUNCTION".

    `kind` is used in error messages. Raise ValidationError or NotFoundError.
    """
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise ValidationError(f"A {kind} is FILE.py:FUNCTION or MODULE:FUNCTION, got {spec!r}.")
    function = getattr(load_module(source, f"{kind} {spec!r}"), name, None)
    if not callable(function) and not isinstance(function, others):
        raise NotFoundError(f"There is no function {name!r} in {source!r}.")
    return function


def load_module(source: str, purpose: str) -> ModuleType:
    """Import a module by name or file; raise NotFoundError, which names `purpose`."""
    try:
        return (
            _load_file(Path(expanduser(source)))
            if source.endswith(".py")
            else import_module(source)
        )
    except Exception as error:  # the user's own code may do anything
        message = f"The {purpose} could not be loaded: {type(error).__name__}: {error}"
        raise NotFoundError(message) from error


def _load_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

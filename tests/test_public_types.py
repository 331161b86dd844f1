"""Signatures of the public API: no parameter takes just anything, and checkers need not guess."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, get_overloads

import pytest

import sennit
from sennit.turns.stream import RunStream

MODULES = (
    "sennit",
    "sennit.containers",
    "sennit.events",
    "sennit.learning",
    "sennit.learning.dspy",
    "sennit.memory",
    "sennit.messages",
    "sennit.operations",
    "sennit.server",
    "sennit.services",
    "sennit.testing",
    "sennit.turns",
)
RETURNED = (RunStream, type(sennit.open(":memory:").fs))
"""Classes that public calls return, and that no module exports."""
OF_DSPY = {"Session.__call__", "Session.forward", "Session.aforward", "Session.load"}
"""Methods of dspy.Module; a call takes the inputs that the signature of the program names."""
_TAKES_ANYTHING = re.compile(r"\*\*\w+: Any\b|Iterable\[Any\]|Sequence\[Any\]|\*\w+: Any\b")


def functions() -> Iterator[tuple[str, FunctionType]]:
    """Yield the public functions, methods and property getters, each once."""
    seen: set[int] = set()
    exported = [
        getattr(module, name) for module in map(import_module, MODULES) for name in module.__all__
    ]
    for public in (*exported, *RETURNED):
        members = vars(public).items() if inspect.isclass(public) else [("", public)]
        for name, member in members:
            function: Any = getattr(member, "fget", None) or getattr(member, "__func__", member)
            is_private = name.startswith("_") and name not in ("__init__", "__call__")
            if isinstance(function, FunctionType) and not is_private and id(function) not in seen:
                seen.add(id(function))
                yield function.__qualname__, function


def test_no_public_parameter_takes_any_values_at_all() -> None:
    checked = dict(functions())
    assert len(checked) > 300
    loose = [
        f"{name}{signature}"
        for name, function in checked.items()
        for signature in map(inspect.signature, get_overloads(function) or [function])
        if name not in OF_DSPY and _TAKES_ANYTHING.search(str(signature).replace("'", ""))
    ]
    assert loose == []


@pytest.mark.slow
def test_type_checkers_need_not_infer_the_types_of_the_public_api() -> None:
    scripts = Path(sys.executable).parent
    checker = shutil.which("basedpyright", path=str(scripts))
    assert checker is not None
    ran = subprocess.run(
        [checker, "--verifytypes", "sennit", "--ignoreexternal", "--outputjson"],
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},  # finds sennit
        capture_output=True,
        text=True,
        timeout=600,
        check=False,  # it fails unless every symbol is known
    )
    report = json.loads(ran.stdout)["typeCompleteness"]
    assert report["completenessScore"] >= 0.95
    vague = {
        symbol["name"]
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    }
    public = (
        *("sennit.api.client", "sennit.api.session", "sennit.sessions.session", "sennit.events"),
        *("sennit.memory.memory", "sennit.turns.conversation", "sennit.turns.result"),
        *("sennit.services.tools.tool", "sennit.services.registry", "sennit.operations"),
    )
    assert [name for name in sorted(vague) if name.startswith(public)] == []

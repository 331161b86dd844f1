"""What `sennit` offers, name by name, and that importing it costs nothing one did not ask for."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import sennit
from sennit import errors

PROMISED = {
    *{"Session", "Branch", "Message", "MessageContent", "MessageRole", "SenderRecipient"},
    *{"SystemContent", "InstructionContent", "AssistantResponseContent"},
    *{"ActionRequestContent", "ActionResponseContent", "OpaqueContent"},
    *{"TextPart", "ContextPart", "ToolPart", "ImagePart", "FilePart", "AudioPart", "Client"},
    "iModel",
    *{
        "prepare_messages_for_chat",
        "to_model_messages",
        "Unset",
        "models_pull",
        "conversation",
    },
    *{"ServiceRegistry", "Tool"},
    *{"OperationRegistry", "Operation", "IPU"},
    *{"ConversationSession", "Return"},
    *{"SessionOptions", "StreamingOptions"},
    *{"SpecialTurn", "PersistenceStrategy", "InteractionFilter"},
    *{"ConversationObserver", "GreetingSpecialTurn", "Request"},
    *{
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.SennitError)
    },
}


def test_the_public_names_are_exactly_the_promised_ones() -> None:
    assert set(sennit.__all__) == PROMISED


def test_each_public_name_stands_once() -> None:
    assert len(sennit.__all__) == len(set(sennit.__all__))  # ruff keeps them sorted


def test_every_public_name_exists() -> None:
    assert [name for name in sennit.__all__ if not hasattr(sennit, name)] == []


def test_a_star_import_gives_the_public_names_and_no_more() -> None:
    given: dict[str, object] = {}
    exec("from sennit import *", given)
    assert given.keys() - {"__builtins__"} == PROMISED


def test_a_star_import_hides_no_builtin_and_open_has_its_place_all_the_same() -> None:
    assert PROMISED & set(dir(builtins)) == set()
    with sennit.open(":memory:") as client:
        assert isinstance(client, sennit.Client)


def test_the_package_says_that_it_is_typed() -> None:
    assert files("sennit").joinpath("py.typed").is_file()


def test_importing_sennit_loads_no_optional_package(tmp_path: Path) -> None:
    # Stand-ins make the test fail for a guarded import too, which would succeed where installed.
    optional = _optional_modules()
    for name in optional:
        (tmp_path / f"{name}.py").touch()
    code = f"import sennit, sys; print(sorted(sys.modules.keys() & set({sorted(optional)!r})))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[]\n"


def _optional_modules() -> set[str]:
    """The modules of the extras, as pyproject.toml names them."""
    project = tomllib.loads(Path(__file__, "../../pyproject.toml").resolve().read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    packages = {re.split(r"[^\w.-]", name)[0] for name in extras} - {"sennit"}
    assert {"psycopg", "starlette", "dspy"} <= packages
    return {package.removesuffix("-slim").replace("-", "_") for package in packages}

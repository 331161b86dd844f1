"""Without an extra, whatever needs it says which one, in words of ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import sennit
from tests.cli.terminals import environment

ROOT = Path(__file__).parent.parent
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["optional-dependencies"]
COMBINED = {"all", "chat"}
"""Extras that consist of others."""
SILENT = {"telemetry"}
"""Extras without which everything works and nothing is said."""
DATABASE = "postgresql://ada:secret@127.0.0.1:9/none"


@cache
def installed() -> dict[str, set[str]]:
    """The top-level names that can be imported, each with the distributions it belongs to.

    Only asked for by tests that run: to read the metadata of all distributions takes long.
    """
    return {name: set(map(_plain, owners)) for name, owners in packages_distributions().items()}


def packages(extra: str) -> frozenset[str]:
    """The top-level names that the requirements of an extra install."""
    wanted = {_plain(re.match(r"[\w.-]+", one)[0]) for one in EXTRAS[extra]}  # type: ignore[index]
    return frozenset(name for name, owners in installed().items() if wanted & owners)


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


# What only comes along with an extra.
MORE = frozenset({"numpy", "httpx2", "genai_prices", "openai", "h11", "click", "langgraph"})


def without(
    missing: frozenset[str] | set[str], *program: str, folder: Path, lines: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.without", ",".join(missing), *program],
        input=lines,
        cwd=ROOT,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


WALK = """
import importlib, json, pkgutil, sennit
raw, told = {}, {}
for module in pkgutil.walk_packages(sennit.__path__, "sennit.", onerror=lambda name: None):
    if module.name.startswith(("sennit.cli.", "sennit.__main__")):
        continue
    try:
        importlib.import_module(module.name)
    except sennit.MissingExtraError as error:
        told[module.name] = str(error)
    except BaseException as error:
        raw[module.name] = repr(error)
print(json.dumps([raw, told]))
"""


def test_every_module_imports_without_extras_or_names_the_one_it_needs(tmp_path: Path) -> None:
    every = {name for extra in EXTRAS.keys() - COMBINED for name in packages(extra)}
    done = without(every | MORE, "-c", WALK, folder=tmp_path)
    raw, told = json.loads(done.stdout)
    assert raw == {}
    named = {
        name: re.findall(r"run: pip install 'sennit\[([\w-]+)\]'", text)
        for name, text in told.items()
    }
    assert {name: extras for name, extras in named.items() if len(extras) != 1} == {}
    assert {one for extras in named.values() for one in extras} <= EXTRAS.keys()
    assert named["sennit.adapters.pydantic_ai"] == ["pydantic-ai"]
    assert named["sennit.server.app"] == ["server"]


PYTHON = {
    "models": "asyncio.run(sennit.iModel('openai:gpt-5', api_key='x').invoke('Hi'))",
    "local": "asyncio.run(sennit.iModel('local').invoke('Hi'))",
    "postgres": f"sennit.open('{DATABASE}')",
    "embed": "from sennit.memory import MiniLM; MiniLM().embed(['Hi'])",
    "mcp": "from sennit.services import MCPServer; asyncio.run(MCPServer('true').connect())",
    "server": "from sennit.server import create_app",
    "dspy": "import sennit.learning.dspy",
    "pdf": "from sennit.memory.files.documents import read_document; read_document('a', b'%PDF-')",
    "export": "export('x.parquet')",
    "mlflow": "from sennit.learning.dspy.mlflow import MlflowRun; MlflowRun('rope')",
    "openai-agents": "import sennit.adapters.openai_agents",
    "langgraph": "import sennit.adapters.langgraph",
    "langchain": "import sennit.adapters.langchain",
    "pydantic-ai": "import sennit.adapters.pydantic_ai",
}
CALL = """
import asyncio, sennit
from sennit.learning.export import ExportOptions
def export(name):
    with sennit.open({store!r}) as client:
        client.session("a").add_message("user", "Hi")
        client.export_training({folder!r} + "/" + name, ExportOptions(format="openai"))
try:
    {code}
except sennit.MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


def test_every_extra_is_tried() -> None:
    assert PYTHON.keys() | {"cli"} | COMBINED | SILENT == EXTRAS.keys()


@pytest.mark.parametrize("extra", PYTHON)
def test_a_call_that_needs_an_extra_names_it(extra: str, tmp_path: Path) -> None:
    code = CALL.format(code=PYTHON[extra], folder=str(tmp_path), store=str(tmp_path / "a.db"))
    done = without(packages(extra), "-c", code, folder=tmp_path)
    assert done.stdout.strip().endswith(f"run: pip install 'sennit[{extra}]'"), done.stderr
    assert re.match(r".+ needs an optional package; ", done.stdout)


PROGRAM = [
    ("models", ["chat", "--model", "openai:gpt-5"]),
    ("models", ["serve", "--model", "openai:gpt-5"]),
    ("models", ["commit", "a", "--model", "openai:gpt-5"]),
    ("models", ["mcp", "--model", "openai:gpt-5"]),
    ("local", ["chat"]),
    ("local", ["serve", "--model", "local"]),
    ("mcp", ["mcp"]),
    ("mcp", ["chat", "--mcp", "true"]),
    ("server", ["serve"]),
    ("export", ["export", "/dev/shm/none.parquet", "--format", "openai"]),
]


@pytest.mark.parametrize(("extra", "command"), PROGRAM)
def test_a_command_that_needs_an_extra_is_one_line_and_exit_code_2(
    extra: str, command: list[str], tmp_path: Path
) -> None:
    store = tmp_path / "a.db"
    with sennit.open(store) as client:
        client.session("a").add_message("user", "Hi")
    program = ["-m", "sennit", *command, "--store", str(store)]
    ended(without(packages(extra), *program, folder=tmp_path, lines="Hi\n"), extra)


def ended(done: subprocess.CompletedProcess[str], extra: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().endswith(
        f"needs an optional package; run: pip install 'sennit[{extra}]'"
    )


def test_without_the_command_line_the_program_says_so(tmp_path: Path) -> None:
    ended(without(packages("cli"), "-m", "sennit", "ls", folder=tmp_path), "cli")


COMMANDS = """
import json, typer.main
from typer.testing import CliRunner
from sennit.cli.app import app
def commands(group, path):
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, [*path, name])
        else:
            yield [*path, name], one
ended = {}
for path, command in commands(typer.main.get_command(app), []):
    if any("--store" in one.opts for one in command.params):
        takes = [one for one in command.params if one.param_type_name == "argument"]
        given = ["/dev/null" for one in takes if one.required or path == ["memory", "forget"]]
        done = CliRunner().invoke(app, [*path, *given, "--store", %r])
        ended[" ".join(path)] = done.exit_code, done.output[-200:]
print(json.dumps(ended))
"""


def test_every_command_on_a_postgresql_store_names_the_extra(tmp_path: Path) -> None:
    done = without(packages("postgres"), "-c", COMMANDS % DATABASE, folder=tmp_path)
    commands = json.loads(done.stdout.splitlines()[-1])
    assert {"ls", "worker", "doctor", "chat", "fs ls"} <= commands.keys()
    told = "The PostgreSQL store needs an optional package; run: pip install 'sennit[postgres]'"
    code, report = commands.pop("doctor")  # which reports whatever it finds
    assert code == 1
    assert told in report
    assert {name: end for name, end in commands.items() if end[0] != 2 or told not in end[1]} == {}


@pytest.mark.parametrize(
    ("package", "command"), [("prompt_toolkit", "ls"), ("rich", "ls"), ("wcwidth", "chat")]
)
def test_ctrl_c_while_the_program_is_loaded_is_quiet(
    tmp_path: Path, package: str, command: str
) -> None:
    done = without({f"SIGINT:{package}"}, "-m", "sennit", command, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")

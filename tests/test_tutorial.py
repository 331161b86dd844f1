"""The tutorial, followed as a reader would: files saved, commands pasted, outputs compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_docs import ROOT, TUTORIAL, blocks

BIN = Path(sys.executable).parent
_SAVE = re.compile(r"`(\w+\.py)`[^`]*:$")


@pytest.mark.timeout(180)
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    printed, commands = "", 0
    for language, text, before in blocks(TUTORIAL):
        if language == "python":
            name = _SAVE.search(_paragraph_before(text))
            assert name is not None, f"the tutorial does not say where to save\n{text}"
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
        elif language == "sh" and ("pip install" in text or "make setup" in text):
            _check_installation(text)
        elif language == "sh" and "sennit serve" in text:
            with _served(text, tmp_path) as url:
                assert b"<title>" in _get(url)
                assert b'"ada"' in _get(f"{url}/api/sessions")
        elif language == "sh":
            printed = _bash(text, tmp_path)
            commands += 1
        else:
            assert (language, before) == ("text", "prints")
            assert printed == text
    assert commands >= 7


def _paragraph_before(block: str) -> str:
    page = TUTORIAL.read_text(encoding="utf-8")
    text = page[: page.index(f"```python\n{block}")].rstrip()
    return " ".join(text.rsplit("\n\n", 1)[-1].split())


def _environment(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SENNIT_")},
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
    }


def _bash(commands: str, folder: Path) -> str:
    ran = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        check=False,  # a command that was killed is part of the tutorial
        text=True,
        timeout=90,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout


def _check_installation(commands: str) -> None:
    """Check what tests cannot run: the extras and targets that are named must exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [
        extra for one in re.findall(r"sennit\[([\w,]+)\]", commands) for extra in one.split(",")
    ]
    assert set(extras) <= project["optional-dependencies"].keys()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", commands, re.MULTILINE)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert extras or targets


@contextmanager
def _served(command: str, folder: Path) -> Iterator[str]:
    """Run the command of the tutorial, on a free port, with the extras that it installs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "tests.without", "xllamacpp", "-m"]
    server = subprocess.Popen(
        [*program, *shlex.split(command), "--port", str(port)],
        cwd=folder,
        env={**_environment(folder), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if f":{port}" in line:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


@pytest.mark.slow  # a type checker without a cache reads all of Sennit
@pytest.mark.timeout(600)
def test_type_checkers_accept_the_programs_of_the_tutorial(tmp_path: Path) -> None:
    for language, text, _ in blocks(TUTORIAL):
        if language == "python":
            name = _SAVE.search(_paragraph_before(text))
            assert name is not None
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    for checker in (["mypy", "--strict", "."], ["basedpyright", "--pythonpath", sys.executable]):
        checked = subprocess.run(
            [BIN / checker[0], *checker[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr

"""The files for containers name only what is there: extras, commands, options, folders."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from sennit.cli.app import app

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def options_of(command: str) -> set[str]:
    found: Any = get_command(app)
    for name in command.split():
        found = found.commands[name]
    return {option for one in found.params for option in one.opts}


def test_the_image_installs_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"--extra (\w+)", DOCKERFILE))
    assert named
    assert named <= project["optional-dependencies"].keys()


def test_the_image_copies_files_that_there_are() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())


@pytest.mark.parametrize("service", ["server", "worker"])
def test_the_services_start_commands_with_options_that_there_are(service: str) -> None:
    command, *given = COMPOSE["services"][service]["command"]
    names = {one.partition("=")[0] for one in given}
    assert names <= options_of(command)


def test_the_image_serves_by_default() -> None:
    [given] = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    command, *options = yaml.safe_load(given)
    assert {one for one in options if one.startswith("--")} <= options_of(command)


def test_the_token_in_the_instructions_can_be_made_like_that() -> None:
    assert {"--user", "--tokens"} <= options_of("token create")

"""The files for containers name only what is there: extras, commands, options, folders."""

from __future__ import annotations

import inspect
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


SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_confined_and_limited(service: str) -> None:
    found = SERVICES[service]
    assert found["cap_drop"] == ["ALL"]
    assert "cap_add" not in found
    assert "no-new-privileges:true" in found["security_opt"]
    assert found["mem_limit"]
    assert found["pids_limit"]
    assert found["ulimits"]["nofile"]["hard"]


def test_keys_of_providers_are_in_the_server_alone() -> None:
    holders = {name for name, one in SERVICES.items() if "_API_KEY" in str(one["environment"])}
    assert holders == {"server"}
    assert not any(one.startswith("--model") for one in SERVICES["worker"]["command"])


def test_images_are_named_by_an_exact_version_or_digest() -> None:
    named = [*re.findall(r"^ARG \w+_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)]
    named += [
        one["image"].partition(":-")[2].rstrip("}") for one in SERVICES.values() if "image" in one
    ]
    assert len(named) == 3
    assert all(re.search(r"@sha256:[0-9a-f]{64}$|:\d+\.\d+\.\d+", one) for one in named), named
    assert all(
        one.startswith(("${", "uv")) for one in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    )


def test_the_cache_that_security_speaks_of_can_be_turned_off_like_that() -> None:
    import dspy
    from dspy.clients.cache import Cache

    taken = inspect.signature(dspy.configure_cache).parameters
    assert {"enable_disk_cache", "restrict_pickle"} <= taken.keys()
    assert {"enable_disk_cache", "restrict_pickle"} <= inspect.signature(Cache).parameters.keys()

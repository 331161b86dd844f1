"""`sennit serve` and `sennit token`, as programs."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from sennit.cli.app import app


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def sennit(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_a_token_is_made_listed_and_revoked() -> None:
    made = sennit("token", "create", "--user", "ada", "--scope", "read")
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert secret.startswith("snt_")
    [listed] = json.loads(sennit("token", "ls", "--json").stdout)
    assert (listed["user"], listed["scopes"]) == ("ada", ["read"])
    assert listed["id"] in secret
    assert "hash" not in listed
    line = sennit("token", "ls").stdout
    assert "default/ada  read" in line
    assert secret[-24:] not in line
    assert sennit("token", "revoke", listed["id"]).exit_code == 0
    again = sennit("token", "revoke", listed["id"])
    assert again.exit_code == 1
    assert "sennit token ls" in again.stderr


def test_a_token_may_not_erase_or_share_unless_that_was_asked_for() -> None:
    for options in ((), ("--scope", "admin")):
        assert sennit("token", "create", "--user", "ada", *options).exit_code == 0
    usual, admin = json.loads(sennit("token", "ls", "--json").stdout)
    assert (usual["scopes"], admin["scopes"]) == (["read", "write", "run"], ["admin"])


def test_a_scope_there_is_not_makes_no_token() -> None:
    refused = sennit("token", "create", "--scope", "everything")
    assert refused.exit_code == 1
    assert "read, write, run, admin" in refused.stderr
    assert json.loads(sennit("token", "ls", "--json").stdout) == []


def test_no_token_is_made_for_an_empty_name() -> None:
    refused = sennit("token", "create", "--user", "")
    assert refused.exit_code == 1
    assert "user must not be empty" in refused.stderr
    assert json.loads(sennit("token", "ls", "--json").stdout) == []


def test_a_server_for_others_without_tokens_is_refused() -> None:
    refused = sennit("serve", "--host", "0.0.0.0", "--model", "openai:x")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("sennit: ")
    assert "sennit token create" in refused.stderr


def test_a_store_that_cannot_be_opened_is_told_in_a_line(tmp_path: Path) -> None:
    taken = tmp_path / "a folder"
    taken.mkdir()
    refused = sennit("serve", "--port", "0", "--model", "openai:x", "--store", str(taken))
    assert refused.exit_code == 1
    assert "a folder" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_that_is_taken_is_told_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = sennit("serve", "--port", port, "--model", "openai:x")
    assert refused.exit_code == 1
    assert "choose another with --port" in refused.stderr


def test_a_server_starts_answers_and_ends(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    options = ["--port", "0", "--store", str(store), "--model", "openai:x", "--tool", "time"]
    command = [sys.executable, "-m", "sennit", "serve", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found is not None, line + process.stderr.read()
            told = httpx.get(f"{found[0]}/api/health", trust_env=False, verify=False)
            assert told.json()["status"] == "ok"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 130, -signal.SIGINT)
        finally:
            if process.poll() is None:
                process.kill()

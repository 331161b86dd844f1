"""`sennit serve` and `sennit token`, as programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx


def sennit(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sennit", *arguments],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(folder)},
    )


def test_a_token_is_made_listed_and_revoked(tmp_path: Path) -> None:
    made = sennit("token", "create", "--user", "ada", "--scope", "read", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("snt_")
    [listed] = json.loads(sennit("token", "ls", "--json", folder=tmp_path).stdout)
    assert (listed["user"], listed["scopes"]) == ("ada", ["read"])
    assert listed["id"] in secret
    assert "hash" not in listed
    gone = sennit("token", "revoke", listed["id"], folder=tmp_path)
    assert gone.returncode == 0
    again = sennit("token", "revoke", listed["id"], folder=tmp_path)
    assert again.returncode == 1
    assert "sennit token ls" in again.stderr


def test_a_server_for_others_without_tokens_is_refused(tmp_path: Path) -> None:
    refused = sennit("serve", "--host", "0.0.0.0", "--model", "openai:x", folder=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("sennit: ")
    assert "sennit token create" in refused.stderr


def test_a_server_starts_answers_and_ends(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    options = ["--port", "0", "--store", str(store), "--model", "openai:x", "--tool", "time"]
    command = [sys.executable, "-m", "sennit", "serve", *options]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
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

"""The layer contract notices when it is broken; that it holds is a part of `make check`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_an_import_that_points_up_and_a_folder_nobody_placed_are_noticed(tmp_path: Path) -> None:
    house = tmp_path / "src/sennit"
    shutil.copytree(ROOT / "src/sennit", house, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (house / "messages/unset.py").open("a") as module:
        module.write("\nimport sennit.sessions.session\n")
    (house / "attic").mkdir()
    (house / "attic/__init__.py").touch()
    script = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = subprocess.run(
        [sys.executable, "-c", script, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": ""},
        capture_output=True,
        check=False,
        text=True,
    )
    assert result.returncode == 1
    assert "sennit.messages.unset -> sennit.sessions.session" in result.stdout
    assert "attic" in result.stdout

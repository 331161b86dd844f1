"""The layer contract: it holds, and it notices when it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    script = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", script, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": ""},
        capture_output=True,
        check=False,
        text=True,
    )


def copy_of_the_house(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_point_down_only(tmp_path: Path) -> None:
    result = lint(copy_of_the_house(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_import_that_points_up_is_noticed(tmp_path: Path) -> None:
    house = copy_of_the_house(tmp_path)
    module = house / "src/sennit/messages/unset.py"
    module.write_text(module.read_text() + "\nimport sennit.sessions.session\n")
    result = lint(house)
    assert result.returncode == 1
    assert "sennit.messages.unset -> sennit.sessions.session" in result.stdout


def test_a_folder_nobody_placed_is_noticed(tmp_path: Path) -> None:
    house = copy_of_the_house(tmp_path)
    folder = house / "src/sennit/attic"
    folder.mkdir()
    (folder / "__init__.py").touch()
    result = lint(house)
    assert result.returncode == 1
    assert "attic" in result.stdout

"""The distributions of a release, checked: `make release`.

Builds a wheel and an sdist in `dist/`, checks their metadata with twine, installs each into a clean
environment of every supported Python on this machine, runs `scripts/smoke.py` there, and writes the
release notes from CHANGELOG.md. Nothing is uploaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PYTHONS = os.environ.get("SENNIT_RELEASE_PYTHONS", "3.11 3.12 3.13 3.14").split()
UV = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".uv/bin/uv")
TWINE = os.environ.get("TWINE", "twine")


def main() -> None:
    """Build, check, and print what was checked."""
    version = tomllib.loads(_read("pyproject.toml"))["project"]["version"]
    notes = release_notes(_read("CHANGELOG.md"), version)
    shutil.rmtree(DIST, ignore_errors=True)
    _run(UV, "build", "--quiet", "--out-dir", str(DIST))
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    _run(*TWINE.split(), "check", "--strict", str(wheel), str(sdist))
    checked: list[str] = []
    for python in PYTHONS:
        if (interpreter := find_python(python)) is None:
            print(f"Python {python} is not installed here; not checked.")
            continue
        for distribution in (wheel, sdist):
            smoke_test(interpreter, distribution, version)
        checked.append(python)
    if not checked:
        sys.exit(f"None of Python {', '.join(PYTHONS)} is installed here; install one.")
    (DIST / "release-notes.md").write_text(notes, encoding="utf-8")
    print(f"{wheel.name} and {sdist.name} work on Python {', '.join(checked)}.")
    print(f"Upload them with: twine upload {DIST.name}/*.whl {DIST.name}/*.tar.gz")


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version in CHANGELOG.md; exits if there is none."""
    heading = re.compile(rf"^## (?:Unreleased: )?\[?{re.escape(version)}\]?.*$", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section for {version}; add one.")
    section = changelog[found.end() :].partition("\n## ")[0].strip()
    return f"# Sennit {version}\n\n{section}\n"


def find_python(version: str) -> str | None:
    """Return the interpreter of a Python version on this machine, None if there is none."""
    found = subprocess.run(
        [UV, "python", "find", "--no-python-downloads", version],
        capture_output=True,
        text=True,
        check=False,
        cwd="/" if os.name == "posix" else None,  # not the environment of this folder
    )
    if found.returncode == 0:
        return found.stdout.strip()
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    others = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    return str(others[-1]) if others else None


def smoke_test(interpreter: str, distribution: Path, version: str) -> None:
    """Install a distribution into a clean environment and run the smoke test in it."""
    with TemporaryDirectory() as folder:
        _run(UV, "venv", "--quiet", "--python", interpreter, f"{folder}/env")
        programs = Path(folder, "env", "Scripts" if os.name == "nt" else "bin")
        python = str(programs / "python")
        _run(UV, "pip", "install", "--quiet", "--python", python, str(distribution))
        printed = _run(python, "-I", str(ROOT / "scripts/smoke.py"), folder, cwd=folder)
        if "pip install 'sennit[server]'" not in printed:
            sys.exit(f"A missing extra is not named: {printed!r}")
        with_cli = f"sennit[cli] @ {distribution.as_uri()}"
        _run(UV, "pip", "install", "--quiet", "--python", python, with_cli)
        printed = _run(str(programs / "sennit"), "--version")
        if printed.strip() != f"sennit {version}":
            sys.exit(f"`sennit --version` printed {printed!r}, expected sennit {version}.")


def _run(*command: str, cwd: str | Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    main()

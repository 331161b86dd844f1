"""The Chromium that the studio is tested in, and what is told of it at the end of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
ARTIFACTS = Path(__file__).parents[1] / ".artifacts" / "studio"

MISSING = (
    "the studio was NOT tested in a browser: no Chromium on PATH "
    "(Debian: apt-get install chromium; elsewhere: install Chromium or Chrome)"
)


def lines() -> list[str]:
    """What to know about the tests of the studio."""
    if CHROMIUM is None:
        return [MISSING]
    return [f"screenshots of the studio: {ARTIFACTS}"] if ARTIFACTS.exists() else []

"""The example of pointing OpenAI's client at the server runs as it is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "server" / "openai_client.py"


def test_the_example_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == (
        "The bowline.\nIt holds, and comes undone.\nThe sheet bend joins two ropes.\n"
    )

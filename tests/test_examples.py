"""Every example runs as it is, and prints what is expected."""

from __future__ import annotations

import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))

PRINTED = {
    "langchain_history": "2 3\n['The bowline.']\n",
    "langgraph_checkpointer": "You have said 2 things.\n",
    "openai_agents_session": (
        "[{'role': 'user', 'content': 'Name a knot.'}, "
        "{'role': 'assistant', 'content': 'The sheet bend.'}]\n"
        "main (2 messages)\n└─ other (2 messages, forked after 1)\n"
    ),
    "pydantic_ai_store": (
        "['other', 'knots']\n"
        "pydantic-ai log (7 messages)\n"
        "knots (2 messages)\n└─ other (4 messages, forked after 2)\n"
    ),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_and_prints_what_is_expected(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(example), run_name="__main__")
    assert printed.getvalue() == PRINTED[example.stem]

"""A short program that an installed Sennit must run: a store, a tool call, memory, an archive.

python smoke.py FOLDER     with any Python that has sennit installed, and nothing else
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import sennit
from sennit.testing import ScriptedModel, ToolCall


def tie(knot: str) -> str:
    """Tie a knot."""
    return f"tied a {knot}"


def main(folder: Path) -> None:
    """Run it in an empty folder."""
    store = folder / "smoke.db"
    with sennit.open(store) as client:
        session = client.session("ada")
        model = ScriptedModel([[ToolCall("tie", {"knot": "bowline"})], "Done."])
        chat = session.conversation(model=model, tools=[tie])
        assert chat.say("Tie a bowline. I live in London.").text == "Done."
        session.fork("main", name="other")
        session.commit()
        client.export(folder / "smoke.zip")
    with sennit.open(store) as client:
        assert len(client.session("ada").branches) == 2
        assert client.find("London")
        assert not client.doctor()
    with sennit.open(folder / "copy.db") as client:
        assert client.import_sessions(folder / "smoke.zip").new_sessions == 1
    print(missing_extra())


def missing_extra() -> str:
    """Return the error of a module whose extra is not installed."""
    try:
        importlib.import_module("sennit.server.app")
    except sennit.MissingExtraError as error:
        return str(error)
    return "The server is installed here."


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`sennit models`: list and download local models."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from sennit.api.local_models import models_list, models_pull
from sennit.cli.help import CommandGroup
from sennit.cli.targets import JsonOption
from sennit.cli.text import emit, note, progress_bar

app = CommandGroup(help="List and download local models.")


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the downloaded models, and those that can be pulled by name."""
    models = models_list()
    rows = [
        {"model": model.model, "name": model.name, "path": model.path, "bytes": model.size}
        for model in models
    ]
    lines = (
        f"{model.model:<28} {model.size / 1e6:>8,.0f} MB  "
        f"{model.path or f'not downloaded; run sennit models pull {model.name}'}"
        for model in models
    )
    emit(as_json, rows, lines)
    if not as_json:
        note(
            "Use one with sennit chat --model MODEL. Models of providers are named provider:model, "
            "such as openai:gpt-5 or ollama:llama3.2."
        )


@app.command("pull")
def pull(
    model: Annotated[
        str,
        typer.Argument(metavar="NAME|URL", help="A name from the list, or the URL of a GGUF file."),
    ] = "smollm2-135m",
    sha256: Annotated[
        str | None, typer.Option(metavar="HASH", help="SHA-256 of the file; required with a URL.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model, unless it is already there."""
    columns = DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with progress_bar(model.rpartition("/")[2], *columns) as progress:
        path = models_pull(model, sha256=sha256, progress=progress)
    emit(as_json, {"path": path}, [str(path)])

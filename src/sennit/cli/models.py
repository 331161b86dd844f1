"""`sennit models`: list and download local models."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from sennit.api.local_models import models_list, models_pull
from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption

app = typer.Typer(
    no_args_is_help=True, help="List and download local models.", rich_markup_mode=None
)

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    DownloadColumn(),
    TransferSpeedColumn(),
    TimeRemainingColumn(),
)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the downloaded models, and those that can be pulled by name."""
    models = models_list()
    if as_json:
        print_json(
            [
                {
                    "model": model.model,
                    "name": model.name,
                    "path": str(model.path) if model.path else None,
                    "bytes": model.size,
                }
                for model in models
            ]
        )
        return
    for model in models:
        where = (
            str(model.path)
            if model.path
            else f"not downloaded; run sennit models pull {model.name}"
        )
        typer.echo(f"{model.model:<28} {model.size / 1e6:>8,.0f} MB  {where}")
    typer.echo(
        "Use one with sennit chat --model MODEL. Models of providers are named provider:model, "
        "such as openai:gpt-5 or ollama:llama3.2.",
        err=True,
    )


@app.command("pull")
def pull(
    model: Annotated[
        str,
        typer.Argument(metavar="NAME|URL", help="A name from the list, or the URL of a GGUF file."),
    ] = "smollm2-135m",
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the file; required with a URL.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model, unless it is already there."""
    console = Console(stderr=True)
    bar = Progress(*_COLUMNS, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(model.rpartition("/")[2], total=None)

    def report(done: int, total: int | None) -> None:
        bar.start()  # not before: pip and uv show bars of their own
        bar.update(task, completed=done, total=total)

    try:
        path = models_pull(model, sha256=sha256, progress=report)
    finally:
        bar.stop()
    if as_json:
        print_json({"path": str(path)})
    else:
        typer.echo(str(path))

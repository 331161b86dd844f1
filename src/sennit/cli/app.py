"""The program: which commands there are, and how errors end.

An error that is ours is one line and exit code 1; a wrong option is 2, an interrupt 130, and a
reader that went away ends it quietly, as it would end any other program.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sennit.cli import doctor, files, memory, models, moving, scoring, sessions, token
from sennit.cli.chat import chat
from sennit.cli.find import find
from sennit.cli.serve import serve
from sennit.cli.words import clean
from sennit.errors import SennitError

INTERRUPTED = 130
BROKEN_PIPE = 141


class _Program(TyperGroup):
    """Where every command's errors come by."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; its errors become a line and an exit code."""
        try:
            return super().invoke(ctx)
        except SennitError as error:
            typer.echo(f"sennit: {clean(str(error))}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Python flushes once more when it ends, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None


app = typer.Typer(
    cls=_Program,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(chat)
app.command()(serve)
app.command("ls")(sessions.ls)
app.command("show")(sessions.show)
app.command("tree")(sessions.tree)
app.command("export")(moving.export)
app.command("import")(moving.import_)
app.command("score")(scoring.score)
app.command("find")(find)
app.command("commit")(memory.commit)
app.command("doctor")(doctor.doctor)
app.add_typer(memory.app, name="memory")
app.add_typer(files.app, name="fs")
app.add_typer(models.app, name="models")
app.add_typer(token.app, name="token")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sennit {version('sennit')}")
        raise typer.Exit


@app.callback()
def program(
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """Conversations with language models that branch and last."""

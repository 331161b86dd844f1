"""The `sennit` program: its commands, and how errors end it.

Exit codes: 1 for a SennitError, which is printed in one line; 2 for a wrong option or a package
that is not installed; 130 for an interrupt; 141, without a message, for a broken pipe.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from sennit.cli import (
    INTERRUPTED,
    USAGE_ERROR,
    branches,
    doctor,
    export,
    fs,
    label,
    maintenance,
    memory,
    models,
    resume,
    serve,
    sessions,
    token,
)
from sennit.cli.chat import chat
from sennit.cli.help import CommandGroup, PlainGroup
from sennit.cli.text import clean
from sennit.cli.worker import worker
from sennit.errors import MissingExtraError, SennitError

BROKEN_PIPE = 141


class _Program(PlainGroup):
    """The click group that turns exceptions of commands into exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; print its error in one line and exit with its code."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # while a failure can still be reported
        except SennitError as error:
            typer.echo(f"sennit: {clean(str(error))}", err=True)
            raise typer.Exit(USAGE_ERROR if isinstance(error, MissingExtraError) else 1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:  # such as a full disk or a read-only folder
            reason = error.strerror or str(error)
            where = "" if error.filename is None else f": {str(error.filename)[:200]!r}"
            typer.echo(f"sennit: {clean(reason)}{where}", err=True)
            _drop_output()
            raise typer.Exit(1) from None


def _drop_output() -> None:
    """Redirect stdout to the null device if it is broken: Python flushes it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = CommandGroup(cls=_Program, pretty_exceptions_enable=False)
# In the order of the help page: chat, read, branch, memory, export, serve, maintain.
app.command()(chat)
app.command("ls")(sessions.ls)
app.command("show")(sessions.show)
app.command("tree")(sessions.tree)
app.command("title")(sessions.title)
app.command("fork")(branches.fork)
app.command("rename")(branches.rename)
app.command("diff")(branches.diff)
app.command("resume")(resume.resume)
app.command("approve")(resume.approve)
app.command("deny")(resume.deny)
app.command("find")(sessions.find)
app.command("commit")(memory.commit)
app.add_typer(memory.app, name="memory")
app.add_typer(fs.app, name="fs")
app.command("export")(export.export)
app.command("import")(export.import_)
app.command("backup")(maintenance.backup)
app.command("rm")(maintenance.rm)
app.command("purge")(maintenance.purge)
app.command("label")(label.label)
app.command("score")(label.score)
app.command("serve")(serve.serve)
app.command("worker")(worker)
app.add_typer(token.app, name="token")
app.command("mcp")(serve.mcp)
app.add_typer(models.app, name="models")
app.command("doctor")(doctor.doctor)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sennit {version('sennit')}")
        raise typer.Exit


@app.callback()
def program(
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Branching, durable conversations with language models.

    \b
    sennit chat                         chat with a model; the next start continues it
    sennit ls                           list your sessions
    sennit show chat                    print the messages of a session
    sennit fork chat --at 2 --name b    create a branch from the second message
    sennit tree chat                    draw the branches of a session
    sennit diff chat main b             compare two branches
    sennit commit chat                  extract long-term memories from a session
    sennit find "that knot"             search messages and memories
    sennit serve                        start the HTTP server and the web page

    Data is stored in a SQLite file in your data folder by default (on Linux
    ~/.local/share/sennit/sennit.db); use --store or SENNIT_URL for another store. Commands that
    only read accept --json. Run sennit COMMAND --help for details, and sennit --install-completion
    to install shell completion.
    """

"""Help pages of commands: the usage line, and a table of arguments and options.

The names of values are the metavars of the parameters (`--limit N`), and an optional argument is in
brackets. The pages look the same with every version of typer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_F = TypeVar("_F", bound=Callable[..., Any])
_REQUIRED = "[required]"


class PlainCommand(TyperCommand):
    """A click command whose help names values by their metavars."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the command."""
        return ["[OPTIONS]", *map(usage_name, _visible(self.get_params(ctx), "argument"))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        parameters = self.get_params(ctx)
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = [(name_of(item), help_of(item)) for item in _visible(parameters, kind)]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class PlainGroup(TyperGroup):
    """A click group whose help lists each command with the whole first line of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, (command.help or "").partition("\n\n")[0])
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandGroup(typer.Typer):
    """A group of commands with plain help pages."""

    def __init__(self, *, cls: type[PlainGroup] = PlainGroup, **options: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[_F], _F]:
        """Return a decorator that adds a function as a command."""
        return super().command(name, cls=PlainCommand, **options)


def usage_name(parameter: Any) -> str:
    """Return an argument for the usage line, in brackets if it is optional."""
    name = value_name(parameter)
    repeated = "..." if parameter.nargs != 1 else ""
    return f"{name}{repeated}" if parameter.required else f"[{name}]{repeated}"


def name_of(parameter: Any) -> str:
    """Return an argument, or the names of an option with its value."""
    if parameter.param_type_name == "argument":
        return value_name(parameter)
    names = " / ".join((*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {value_name(parameter)}"


def help_of(parameter: Any) -> str:
    """Return the help of a parameter, with its default value unless the help has one."""
    text = " ".join((parameter.help or "").split())
    if parameter.param_type_name == "argument":
        return f"{text}  {_REQUIRED}" if parameter.required else text
    default = default_of(parameter)
    return text if default is None else f"{text}  [default: {default}]"


def default_of(parameter: Any) -> str | None:
    """Return the default value of an option, or None if its help need not show it."""
    default = parameter.default
    has_value = parameter.param_type_name == "option" and not parameter.is_flag
    return str(default) if has_value and default not in (None, "", [], ()) else None


def value_name(parameter: Any) -> str:
    """Return the name of the value of an argument or an option."""
    return parameter.metavar or parameter.name.upper()


def _visible(parameters: list[Any], kind: str) -> list[Any]:
    return [item for item in parameters if item.param_type_name == kind and not item.hidden]

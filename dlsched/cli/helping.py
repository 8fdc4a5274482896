"""Commands about the program itself: help, version."""

from __future__ import annotations

import click

from dlsched import __version__
from dlsched.cli.output import print_text


@click.command("help", short_help="Show the help of a command, or of all.")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help(ctx: click.Context, names: tuple[str, ...]) -> None:  # noqa: A001
    """Show the help of a command, or the list of all commands.

    \b
    Examples:
      dlsched help
      dlsched help ps
      dlsched help trace generate
    """
    above = ctx.parent
    assert above is not None
    for name in names:
        if not isinstance(above.command, click.Group):
            raise click.UsageError(f"`{above.command_path}` has no commands of its own")
        command = above.command.resolve_command(above, [name])[1]
        assert command is not None
        above = click.Context(command, parent=above, info_name=name)
    print_text(above.get_help())


@click.command(short_help="Show the version.")
def version() -> None:
    """Show the version, as --version does.

    \b
    Example:
      dlsched version
    """
    print_text(f"dlsched, version {__version__}")

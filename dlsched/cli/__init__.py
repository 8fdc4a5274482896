"""The command line: `dlsched COMMAND`. stdout carries data, stderr everything else.

Owns the group of commands and the exit codes: 0, 1 failure, 2 usage or an invalid file, 3 daemon
or engine not reachable. Each module here holds a group of commands; heavy imports happen inside
them, so that `dlsched run` carries no table drawing and no HTTP client.
"""

from __future__ import annotations

import errno
from typing import Any

import click

from dlsched import __version__
from dlsched.cli import (
    asking,
    daemon,
    doctor,
    jobs,
    policies,
    release,
    replaying,
    simulating,
    tracing,
)
from dlsched.cli.exits import FAILURE, INVALID, UNREACHABLE
from dlsched.cli.output import say
from dlsched.model.errors import (
    AlreadyRunning,
    DaemonUnavailable,
    DlschedError,
    EngineUnavailable,
    FileError,
    PolicyError,
)


class _Program(click.Group):
    """Ends every failure in one line (a wrong file: one a problem) and its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FileError as error:
            for problem in error.problems:
                say(str(problem))
            ctx.exit(INVALID)
        except PolicyError as error:
            say(f"error: {error}")
            ctx.exit(INVALID)
        except (DaemonUnavailable, EngineUnavailable, AlreadyRunning) as error:
            say(f"error: {error}")
            ctx.exit(UNREACHABLE)
        except DlschedError as error:
            say(f"error: {error}")
            ctx.exit(FAILURE)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            say(f"error: {error.filename or 'system'}: {error.strerror or error}")
            ctx.exit(FAILURE)


@click.group(
    cls=_Program,
    context_settings={
        "auto_envvar_prefix": "DLSCHED",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="dlsched")
def main() -> None:
    """Keep the latency and accuracy targets of deep-learning containers on one Docker host.

    \b
    Start the daemon:    dlsched run
    Add a job:           dlsched submit face-unlock.yaml
    See who is served:   dlsched ps
    Ask for the reason:  dlsched why face-unlock
    """


for _command in (
    daemon.run,
    jobs.check,
    jobs.schema,
    jobs.submit,
    asking.ps,
    asking.logs,
    asking.stop,
    asking.why,
    policies.policies,
    simulating.simulate,
    tracing.trace,
    replaying.replay,
    doctor.doctor,
    release.release,
):
    main.add_command(_command)

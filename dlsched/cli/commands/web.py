"""The command web: the live page, on a loopback port of the user's own."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli.commands import options
from dlsched.cli.output import print_text, say

if TYPE_CHECKING:
    from dlsched.api.web_proxy import WebServer


@click.command(short_help="Serve the live page, without an open port of the daemon.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Listen on this port of 127.0.0.1 (default: any free one).",
)
@options.asking
def web(port: int, config: Path | None, run_dir: Path | None) -> None:
    """Print the address of the live page, and serve it until Ctrl-C. It reads the daemon's status
    socket with your rights, and changes nothing.

    The address works once, in one browser. Other users of this host can connect to the port, but
    get nothing from it.

    \b
    Examples:
      dlsched web
      dlsched web --port 8000
      ssh -t -L 8000:127.0.0.1:8000 HOST dlsched web --port 8000
    """
    daemon = options.daemon(config, run_dir)
    daemon.about()  # one line in place of a page that stays empty
    from dlsched.api.sockets import open_tcp
    from dlsched.api.web_proxy import WebProxy, WebServer

    with open_tcp("127.0.0.1", port) as listening:
        port = listening.getsockname()[1]
        proxy = WebProxy(daemon.reading_path, port)
        print_text(proxy.address)
        say(f"elsewhere: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}, then open it there")
        say("the address works once; Ctrl-C ends the page")
        asyncio.run(_serve(WebServer(proxy, listening)))


async def _serve(server: WebServer) -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(one, server.end)
    await server.answer()

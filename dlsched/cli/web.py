"""The command web: the live page, on a loopback port of the user's own."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli import options
from dlsched.cli.output import print_text, say

if TYPE_CHECKING:
    from dlsched.api.web_proxy import WebServer


@click.command(short_help="Open the live page, without an open port of the daemon.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Listen on this port of 127.0.0.1 (default: any free one).",
)
@click.option("--no-open", is_flag=True, help="Only print the address.")
@options.asking
def web(port: int, no_open: bool, config: Path | None, run_dir: Path | None) -> None:
    """Print the address of the live page, open it in a browser if there is a display, and serve it
    until Ctrl-C. It reads the daemon's status socket with your rights, and changes nothing.

    The address works once, in one browser. Other users of this host can connect to the port, but
    get nothing from it.

    \b
    Examples:
      dlsched web
      dlsched web --no-open --port 8000
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
        with _opened(proxy.address, wanted=not no_open) as opened:
            if not opened:
                say(f"elsewhere: ssh -L {port}:127.0.0.1:{port} {_this_host()}, then open it there")
            say("it works once; Ctrl-C ends it")
            asyncio.run(_serve(WebServer(proxy, listening)))


async def _serve(server: WebServer) -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(one, server.end)
    await server.answer()


@contextmanager
def _opened(address: str, *, wanted: bool) -> Iterator[bool]:
    """Whether a browser was asked to open the address. It gets a file that leads there, for this
    user alone, as everybody may read the arguments of its process."""
    browser = _browser() if wanted else None
    if browser is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="dlsched-web-") as folder:  # mode 0700
        file = Path(folder) / "open.html"
        file.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        # In a thread, as a browser in the terminal ends only with its user.
        threading.Thread(target=browser.open, args=(file.as_uri(),), daemon=True).start()
        yield True


def _browser() -> webbrowser.BaseBrowser | None:
    """The user's browser; None: none on this display. Browsers are not for root."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not display or os.environ.get("SSH_CONNECTION") or os.geteuid() == 0:
        return None
    try:
        return webbrowser.get()
    except webbrowser.Error:
        return None


def _this_host() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user without a name
        return socket.gethostname()

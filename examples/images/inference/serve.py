"""HTTP server over one network, measured through the reporter's ASGI middleware.

Owns options, signals and the socket; what is served is in service.py. SIGTERM and SIGINT answer
what is under way (five seconds at most) and end with exit code 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import options


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model(parser)
    parser.add_argument(
        "--host",
        default=os.environ.get("HOST", "127.0.0.1"),
        help="address to listen on (environment: HOST; default 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=os.environ.get("PORT", "8080"),
        help="port to listen on (environment: PORT; default 8080)",
    )
    parser.add_argument(
        "--uds",
        default=os.environ.get("UDS"),
        metavar="PATH",
        help="listen on this unix socket instead (environment: UDS)",
    )
    parser.add_argument(
        "--queue",
        type=int,
        default=256,
        help="requests that may wait; more are refused with 503 (default 256)",
    )
    return parser.parse_args(arguments)


def main() -> None:
    chosen = parse()
    # Process 1 of a container gets no SIGTERM that it did not ask for, and under a small quota the
    # imports below take seconds: so ask first. Once uvicorn has shut down in order it raises the
    # signal again, and ends here too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))

    import classifier
    import digits
    import reporting
    import service
    import uvicorn

    predict = classifier.open_model(chosen.model, chosen.threads)
    app = service.build_app(predict, digits.load(), chosen.queue)
    uvicorn.run(
        reporting.LatencyMiddleware(app, path_prefix="/predict"),
        host=chosen.host,
        port=chosen.port,
        uds=chosen.uds,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()

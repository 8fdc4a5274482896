"""Prometheus' own client in multi-process mode: four processes count, one shows the page."""

import json
import os
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

WORKERS = 4


def serve(port: int) -> None:
    """One of several processes that accept from the same socket."""
    from prometheus_client import CollectorRegistry, Histogram, generate_latest, multiprocess

    took = Histogram("inference_duration_seconds", "How long a prediction takes", ["model"])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b"ok\n"
            if self.path == "/metrics":
                registry = CollectorRegistry()
                multiprocess.MultiProcessCollector(registry)
                content = generate_latest(registry)
            self._answer(content)

        def do_POST(self) -> None:
            with took.labels(model="tiny").time():
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(json.loads(body)["s"])
            self._answer(b"{}")

        def _answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", port), Handler)
    for _ in range(WORKERS - 1):
        if os.fork() == 0:
            break
    listening.serve_forever()


if len(sys.argv) > 1:
    serve(int(sys.argv[1]))
else:
    from load import PYTHON, drive, free_port, json_call, server, wait_for

    with tempfile.TemporaryDirectory() as folder:
        more = {"PROMETHEUS_MULTIPROC_DIR": folder}
        port = free_port()
        with server(PYTHON, __file__, str(port), **more) as process:
            wait_for(port, "/health", process)
            drive(port, json_call())

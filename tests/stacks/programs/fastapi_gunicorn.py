"""FastAPI under gunicorn with two workers: `multiprocess` or `in-turn` (each its own counts)."""

import sys
import tempfile

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()
COMMAND = (
    *(PYTHON, "-m", "gunicorn", "-w", "2", "-k", "uvicorn_worker.UvicornWorker"),
    *("-b", f"127.0.0.1:{PORT}", "--log-level", "warning", "fastapi_app:app"),
)

with tempfile.TemporaryDirectory() as folder:
    multiprocess = sys.argv[1] == "multiprocess"
    more = {"PROMETHEUS_MULTIPROC_DIR": folder} if multiprocess else {}
    with server(*COMMAND, **more) as process:
        wait_for(PORT, "/health", process)
        drive(PORT, json_call(), pages_each=None if multiprocess else 4)

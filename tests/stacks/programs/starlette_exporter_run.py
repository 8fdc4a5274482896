"""Starlette with starlette_exporter under uvicorn."""

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()

command = (PYTHON, "-m", "uvicorn", "--port", str(PORT), "--log-level", "warning")
with server(*command, "starlette_app:app") as process:
    wait_for(PORT, "/health", process)
    drive(PORT, json_call())

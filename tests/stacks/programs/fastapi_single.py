"""FastAPI with prometheus-fastapi-instrumentator under uvicorn, one process."""

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()

command = (PYTHON, "-m", "uvicorn", "--port", str(PORT), "--log-level", "warning")
with server(*command, "fastapi_app:app") as process:
    wait_for(PORT, "/health", process)
    drive(PORT, json_call())

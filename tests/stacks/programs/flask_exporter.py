"""Flask with prometheus_flask_exporter under gunicorn, one worker."""

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()

command = (PYTHON, "-m", "gunicorn", "-w", "1", "--threads", "4", "-b", f"127.0.0.1:{PORT}")
with server(*command, "--log-level", "warning", "flask_app:app") as process:
    wait_for(PORT, "/health", process)
    drive(PORT, json_call())

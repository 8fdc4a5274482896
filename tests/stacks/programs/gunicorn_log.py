"""gunicorn with two workers, whose access log has each request's duration. No metrics page."""

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()

with server(
    *(PYTHON, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{PORT}", "flask_app:app"),
    *("--access-logfile", "-", "--access-logformat", '%(h)s "%(r)s" %(s)s %(b)s %(D)s'),
) as process:
    wait_for(PORT, "/health", process)
    drive(PORT, json_call(), metrics=None)

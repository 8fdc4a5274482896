"""nginx before a service, with rt=$request_time in its log format. No metrics page."""

import shutil
import tempfile
from pathlib import Path

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT, INNER = free_port(), free_port()

CONFIG = """
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status '
                   '$body_bytes_sent "$http_referer" "$http_user_agent" rt=$request_time';
  access_log /dev/stdout timed;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{inner}; }}
  }}
}}
"""

nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
if nginx is None:
    raise SystemExit("no nginx: apt-get install nginx-light")
with tempfile.TemporaryDirectory() as folder:
    config = Path(folder, "nginx.conf")
    config.write_text(CONFIG.format(folder=folder, port=PORT, inner=INNER), encoding="utf-8")
    behind = (PYTHON, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{INNER}", "flask_app:app")
    with server(*behind, "--log-level", "warning") as process, server(nginx, "-c", str(config)):
        wait_for(INNER, "/health", process)
        wait_for(PORT, "/health")
        drive(PORT, json_call(), metrics=None)

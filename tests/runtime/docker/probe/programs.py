"""Programs that `dlsched probe` reads in containers of a real engine."""

from __future__ import annotations

SERVICE = """
import http.server, itertools, threading, time
asked = itertools.count(1)
begun = time.monotonic()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/metrics":
            self.send_response(404); self.end_headers(); return
        # 50 requests a second of 60 to 80 ms each.
        n = 1_000_000 + int(50 * (time.monotonic() - begun))
        label = 'handler="/predict",method="POST"'
        name = "http_request_duration_seconds"
        body = f'''# HELP {name} Latency
# TYPE {name} histogram
{name}_bucket{{{label},le="0.06"}} 0
{name}_bucket{{{label},le="0.08"}} {n}
{name}_bucket{{{label},le="+Inf"}} {n}
{name}_count{{{label}}} {n}
{name}_sum{{{label}}} {n * 0.07}
http_request_duration_highr_seconds_count {n}
'''.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 18999), Page).serve_forever()
"""

PRINTER = """
import time
for n in range(1000):
    print(f'[GIN] 2026/11/21 - 14:00:00 | 200 |  {1.5 + n % 2}s |  172.17.0.1 | POST "/api/chat"',
          flush=True)
    time.sleep(0.2 if n > 40 else 0)
"""

TRAINER = """
import time
for step in range(0, 3000, 250):
    print(f"step {step}: train loss {4 - step / 1000:.4f}, val loss {4.1 - step / 1000:.4f}",
          flush=True)
time.sleep(600)
"""

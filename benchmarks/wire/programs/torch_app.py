"""A small network in PyTorch behind the standard library's HTTP server: torch_app.py PORT

A request classifies four images, or as many as its path says, such as /64.
"""

import http.server
import json
import sys
import threading

import torch

torch.set_num_threads(1)
NETWORK = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(16 * 28 * 28, 10),
).eval()  # fmt: skip
ONE_AT_A_TIME = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        count = int(self.path[1:] or 4)
        with ONE_AT_A_TIME, torch.inference_mode():
            digits = NETWORK(torch.rand(count, 1, 32, 32)).argmax(dim=1).tolist()
        body = json.dumps(digits).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

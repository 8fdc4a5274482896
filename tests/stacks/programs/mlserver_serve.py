"""MLServer with one model of its own, asked by REST."""

import json
import tempfile
from pathlib import Path

from load import PYTHON, drive, free_port, server, wait_for

PORT, GRPC_PORT, METRICS_PORT = free_port(), free_port(), free_port()


def call(service_s: float) -> tuple[str, str, bytes]:
    given = {"name": "s", "shape": [1], "datatype": "FP64", "data": [service_s]}
    return "POST", "/v2/models/tiny/infer", json.dumps({"inputs": [given]}).encode()


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    model = {"name": "tiny", "implementation": "mlserver_model.Tiny"}
    settings = {
        "host": "127.0.0.1",
        "http_port": PORT,
        "grpc_port": GRPC_PORT,
        "metrics_port": METRICS_PORT,
        "metrics_dir": name,
        "parallel_workers": 0,
    }
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    start = "from mlserver.cli import main; main()"
    with server(PYTHON, "-c", start, "start", name) as process:
        wait_for(PORT, "/v2/models/tiny/ready", process)
        drive(PORT, call, health="/v2/health/live", metrics_port=METRICS_PORT)

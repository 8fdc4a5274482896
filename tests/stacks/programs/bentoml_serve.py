"""BentoML serving a tiny service with two workers."""

import os
import tempfile
from pathlib import Path

from load import PYTHON, drive, free_port, json_call, server, wait_for

PORT = free_port()

with tempfile.TemporaryDirectory() as home:
    os.environ |= {"BENTOML_HOME": home, "BENTOML_DO_NOT_TRACK": "True"}
    command = (PYTHON, "-m", "bentoml", "serve", "bentoml_app:Tiny", "--port", str(PORT))
    folder = str(Path(__file__).parent)
    with server(*command, "--working-dir", folder) as process:
        wait_for(PORT, "/readyz", process)
        drive(PORT, json_call(), health="/livez")

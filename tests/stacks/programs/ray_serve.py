"""Ray Serve on a Ray of one node, whose metrics agent answers on a port of its own."""

import sys
import time

from load import drive, free_port, json_call

PORT, METRICS_PORT = free_port(), free_port()
SETTLE_S = 12.0
"""Ray gathers metrics every 10 s unless it is told otherwise."""
SCALE = 2.5
"""Its proxy takes about 10 ms before it begins to count, which the client measures, too. The p95
stays apart from Ray's bounds (0.5 s, 1 s)."""


def main() -> None:
    import ray
    from ray import serve
    from ray_app import app

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        _metrics_export_port=METRICS_PORT,
        configure_logging=False,
        _system_config={"metrics_report_interval_ms": 1000},
    )
    try:
        serve.start(http_options={"port": PORT, "host": "127.0.0.1"})
        serve.run(app, name="tiny", route_prefix="/predict")
        time.sleep(1.0)
        drive(
            PORT,
            json_call(),
            health="/-/healthz",
            metrics_port=METRICS_PORT,
            settle_s=SETTLE_S,
            unit_s=1e-3,
            scale=SCALE,
        )
    finally:
        serve.shutdown()
        ray.shutdown()


sys.exit(main())

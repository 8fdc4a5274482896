"""Debian's Prometheus scrapes a daemon on a real engine, with example and rules as shipped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.real.session import Session, wait_for
from tests.daemon.test_daemon import shows, spec
from tests.prometheus.live import free_port, prometheus

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.timeout(300)]

SERVICE = """
  - sh
  - -c
  - |
    while :; do
      echo "{\\"t\\": 1, \\"latency_s\\": [0.02, 0.02]}" >> "$DLSCHED_METRICS_FILE"
      sleep 0.1
    done
"""


def test_a_real_prometheus_scrapes_a_real_daemon(
    programs: Path, node: Session, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    node.drop("alpha", spec("alpha", SERVICE, target="{latency: 50ms}"))
    node.start("adaptive", more={"listen": address, "period": "200ms"})
    shows(node, "alpha", lambda one: one.get("ratio"), "to have a ratio")

    page = httpx2.get(f"http://{address}/metrics").text
    check = [programs / "promtool", "check", "metrics"]
    checked = subprocess.run(check, input=page.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")

    with prometheus(programs, tmp_path, address) as query:
        wait_for(lambda: query("dlsched_job_target_ratio"), 60, "the first scrape")
        (target,) = query("/targets")[0]["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        (ratio,) = query("dlsched_job_target_ratio")
        assert ratio["metric"]["job_name"] == "alpha"
        assert ratio["metric"]["job"] == "dlsched"
        assert float(ratio["value"][1]) == pytest.approx(0.4, rel=0.05)

        stored = {one["metric"]["__name__"] for one in query('{job="dlsched"}')}
        shown = {
            sample.name
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        assert shown <= stored

        wait_for(lambda: query("rate(dlsched_cycles_total[10s]) > 1"), 60, "cycles to be counted")
        wait_for(lambda: query("dlsched:node_free_cores"), 60, "the recorded series")
        groups = query("/rules")[0]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}

        node.stop()
        down = 'ALERTS{alertname="DlschedDown",job="dlsched"}'
        wait_for(lambda: query(down), 60, "the alert that the daemon is down")

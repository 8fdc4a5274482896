"""Debian's Prometheus scrapes a daemon on a real engine, with example and rules as shipped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.test_daemon import shows, spec
from tests.prometheus.conftest import free_port, prometheus
from tools.session import Session, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.engine]

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

    page = httpx2.get(f"http://{address}/metrics", timeout=60).text
    check = [programs / "promtool", "check", "metrics"]
    checked = subprocess.run(check, input=page.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")

    with prometheus(programs, tmp_path, address) as query:

        def first(expression: str) -> dict[str, Any]:
            # A scrape that came late leaves a gap of a second.
            found: list[dict[str, Any]] = []
            wait_for(lambda: found.extend(query(expression)) or found, 60, expression)
            return found[0]

        def is_up() -> bool:
            (target,) = query("/targets")[0]["activeTargets"]
            return (target["health"], target["lastError"]) == ("up", "")

        ratio = first("dlsched_job_target_ratio")
        wait_for(is_up, 60, "a scrape without an error")
        assert ratio["metric"]["job_name"] == "alpha"
        assert ratio["metric"]["job"] == "dlsched"
        assert float(ratio["value"][1]) == pytest.approx(0.4, rel=0.05)

        shown = {
            sample.name
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

        def stored() -> set[str]:
            return {one["metric"]["__name__"] for one in query('{job="dlsched"}')}

        wait_for(lambda: shown <= stored(), 60, "all that the page shows to be stored")

        wait_for(lambda: query("rate(dlsched_cycles_total[10s]) > 1"), 60, "cycles to be counted")
        wait_for(lambda: query("dlsched:node_free_cores"), 60, "the recorded series")

        def healths() -> set[str]:
            return {
                rule["health"] for group in query("/rules")[0]["groups"] for rule in group["rules"]
            }

        # Groups are evaluated one after the other; before that a rule's is `unknown`.
        wait_for(lambda: healths() == {"ok"}, 60, "every rule to be evaluated")

        node.stop()
        down = 'ALERTS{alertname="DlschedDown",job="dlsched"}'
        wait_for(lambda: query(down), 60, "the alert that the daemon is down")

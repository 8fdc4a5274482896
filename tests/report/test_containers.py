"""The reporter in real containers: an image that is read only, and a user of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.model.facts import Report
from dlsched.report.turns import Turns, turn_file
from dlsched.runtime.allotment import Allotment, job_dir, write_allotment
from dlsched.runtime.progress.sidecar import SidecarReader
from tests.report.conftest import Start
from tests.waiting import until

pytestmark = pytest.mark.engine

DEADLINE_S = 60.0
CONFINED = {"read_only": True, "cap_drop": ["ALL"]}
REPORTS = """
import time
from dlsched.report import Progress, allotment, latency
from importlib.metadata import distribution
assert distribution("dlsched_report").entry_points is not None
progress = Progress()
progress.step(1, cores=allotment().cpu_cores)
with latency.measure():
    while not allotment().stop_soon:
        time.sleep(0.01)
progress.step(2, cores=allotment().cpu_cores)
progress.checkpoint(2, "/ckpt/2")
"""
GPU = "GPU-1"
TRIES = """
import time
from dlsched.report.granted import allotment
from dlsched.report.pacing import _turn_paths
from dlsched.report.turns import Turns
tries = []
Turns(time.monotonic, watched=False).take(
    _turn_paths(allotment()), lambda seconds: tries.append(seconds) or True
)
print("taken" if tries else "mine", flush=True)
time.sleep(600 * (not tries))
"""


@pytest.mark.gate
def test_a_read_only_image_and_a_user_of_its_own_report(
    start: Start, docker_client: docker.APIClient, base_image: str, tmp_path: Path
) -> None:
    write_allotment(job_dir(tmp_path, "one"), Allotment(cpu_cores=0.5))
    container = start("one", base_image, REPORTS, user="12345:12345", **CONFINED)
    pid = docker_client.inspect_container(container)["State"]["Pid"]
    with closing(SidecarReader(pid, expect=lambda: True)) as reader:

        def reports_until(enough: Callable[[Report], Any]) -> list[Report]:
            reports: list[Report] = []

            def read() -> bool:
                reading = reader.read(time.monotonic())
                assert (reading.problem, reading.bad_lines) == (None, 0)
                reports.extend(reading.reports)
                return any(map(enough, reports))

            until(read, "enough reports", shown=lambda: reports)
            return reports

        first = reports_until(lambda report: report.in_flight)
        assert [each.sample.metrics for each in first if each.sample] == [(("cores", 0.5),)]
        write_allotment(job_dir(tmp_path, "one"), Allotment(cpu_cores=1.5, stop_soon=True))
        ended = docker_client.wait(container, timeout=DEADLINE_S)
        assert ended["StatusCode"] == 0, docker_client.logs(container)
        last = reports_until(lambda report: report.checkpoint)
    assert [each.sample.metrics for each in last if each.sample][-1] == (("cores", 1.5),)
    assert sum(each.latency.count for each in last if each.latency) == 1


def test_one_container_at_a_time_has_the_turn_until_it_ends(
    start: Start, docker_client: docker.APIClient, base_image: str, tmp_path: Path
) -> None:
    def begin(job: str) -> tuple[str, str]:
        write_allotment(job_dir(tmp_path, job), Allotment(gpu_share=0.5, gpus=(GPU,)))
        container = start(job, base_image, TRIES, user="12345:12345")
        return container, next(docker_client.logs(container, stream=True)).decode().strip()

    first, said = begin("one")
    assert said == "mine"
    assert begin("two")[1] == "taken"
    asked: list[float] = []
    here = Turns(lambda: 0.0, watched=False)
    here.take([str(tmp_path / "turns" / turn_file(GPU))], lambda s: bool(asked.append(s)) or True)
    here.give()
    assert asked, "the host sees the same lock"
    docker_client.kill(first)
    docker_client.wait(first)
    assert begin("three")[1] == "mine"

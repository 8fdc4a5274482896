"""`/v1/cluster`: what it answers with a controller on this host, and without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.cluster import cluster_answer
from dlsched.api.cluster_schema import ClusterAnswer, ClusterStatus
from dlsched.api.codec import read
from dlsched.cluster.status_file import UnreadableStatus
from dlsched.store.journal.minutes import wall_s
from tests.api.conftest import client_of, serving
from tests.cluster_status import example, written_ago
from tests.status_source import FakeSource, example_report

pytestmark = pytest.mark.timed


def test_the_answer_is_the_status_and_its_age() -> None:
    status = replace(example(), written_at=written_ago(5.0), observed_at="")
    written_s = wall_s(status.written_at)
    assert written_s is not None
    answer = cluster_answer(status, written_s + 90.0)
    assert answer.cluster == status
    assert (answer.written_age_s, answer.observed_age_s) == (90.0, None)
    assert cluster_answer(status, written_s - 90.0).written_age_s == 0.0, "a clock that went back"
    assert cluster_answer(replace(status, written_at="then"), 0.0).written_age_s is None


class Unreadable(FakeSource):
    def cluster(self) -> ClusterStatus | None:
        raise UnreadableStatus("cluster.json: not the status of a cluster")


@pytest.mark.parametrize("known", [True, False])
def test_a_client_reads_the_answer(tmp_path: Path, known: bool) -> None:
    source = FakeSource(example_report())
    source.cluster_status = example() if known else None
    with serving(tmp_path, source) as server, client_of(server.status_path) as client:
        answer = read(ClusterAnswer, client.get("/v1/cluster").json())
    assert answer.cluster == source.cluster_status
    assert (answer.written_age_s is not None) is known


def test_before_the_first_cycle_it_answers_and_an_unreadable_status_is_a_line(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, Unreadable()) as server, client_of(server.status_path) as client:
        answer = client.get("/v1/cluster")
        assert answer.status_code == 503
        assert answer.json() == {"error": "cluster.json: not the status of a cluster"}
        assert client.get("/metrics").status_code == 503, "no cycle yet"
        assert client.post("/v1/cluster").status_code == 403

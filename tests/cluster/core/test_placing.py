from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import PLACED_PER_ROUND, SOON_S, in_order, place
from dlsched.cluster.core.policies.spread import fewest_jobs
from dlsched.cluster.core.snapshot import ClusterDecision, NodeState
from tests.cluster.core.plant import GIB, job, node, snapshot


def placed(*args: object, **more: object) -> ClusterDecision:
    return place(Occupancy(snapshot(*args, **more)), fewest_jobs)  # type: ignore[arg-type]


def test_weight_2_is_ten_minutes_earlier() -> None:
    queue = [
        job("late", arrived_s=599.0, weight=2.0),
        job("early"),
        job("b", arrived_s=601.0, weight=2),
    ]
    assert [one.name for one in in_order(queue)] == ["late", "early", "b"]


def test_each_requirement_has_its_reason_by_node() -> None:
    nodes = [
        node("a", state=NodeState.SILENT),
        node("b", state=NodeState.DRAINING),
        node("c", labels={"disk": "hdd"}),
        node("d", cores=0.5, labels={"disk": "ssd"}),
        node("e", labels={"disk": "ssd"}, memory_free_bytes=GIB),
        node("f", labels={"disk": "ssd"}, memory_free_bytes=4 * GIB),
    ]
    asks = job("x", floor_cores=1.0, memory_bytes=2 * GIB, gpus=1, requires={"disk": "ssd"})
    seen = Occupancy(snapshot(nodes, [asks]))
    assert {name: seen.lacks(asks, name) for name in seen.nodes} == {
        "a": "the node's agent does not report",
        "b": "the node drains",
        "c": "the node lacks the label 'disk=ssd'",
        "d": "the job's floor is 1.00 cores, the node has 0.50",
        "e": "needs 1 GPU, 0 free",
        "f": "needs 1 GPU, 0 free",
    }
    no_gpu = job("y", memory_bytes=2 * GIB)
    assert seen.lacks(no_gpu, "e") == "the job needs 2 GiB of memory, 1 GiB is free"
    assert seen.lacks(no_gpu, "f") is None


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("train", True),
        ("train:latest", True),
        ("docker.io/library/train:latest", True),
        ("train:2", False),
        ("localhost:5000/train", False),
        ("localhost:5000/serve", True),
        ("train@sha256:bb", True),
        ("sha256:" + "ab" * 32, True),
        ("index.docker.io/train", True),
    ],
)
def test_an_image_that_may_not_be_pulled_must_be_there(image: str, there: bool) -> None:
    listed = frozenset({"train:latest", "localhost:5000/serve:latest"})
    nodes = [node("a", images=listed), node("b")]
    asks = job("x", image=image, pulls=False)
    seen = Occupancy(snapshot(nodes, [asks]))
    why = None if there else f"the node lacks the image '{image}', and pull_policy is never"
    assert seen.lacks(asks, "a") == why
    assert seen.lacks(asks, "b") is None, "it is not known which it has"
    assert seen.lacks(replace(asks, pulls=True), "a") is None


@pytest.mark.parametrize("names", [("bad", "good"), ("good", "bad")])
def test_what_keeps_one_job_from_a_node_keeps_no_other_like_it(names: tuple[str, ...]) -> None:
    nodes = [node("a", images=frozenset({"train:1"})), node("b", images=frozenset({"train:1"}))]
    queue = [job(name, arrived_s=index) for index, name in enumerate(names)]
    for change in ({"barred": {"a": "denied", "b": "denied"}}, {"pulls": False, "image": "x:1"}):
        jobs = [replace(one, **change) if one.name == "bad" else one for one in queue]
        found = place(Occupancy(snapshot(nodes, jobs)), fewest_jobs)
        assert found.place.keys() == {"good"}


def test_a_node_that_could_not_start_it_says_why() -> None:
    asks = job("x", barred={"a": "denied"})
    seen = Occupancy(snapshot([node("a"), node("b")], [asks]))
    assert seen.lacks(asks, "a") == "denied" and seen.lacks(asks, "b") is None


def test_floors_of_all_jobs_on_a_node_fit_its_capacity() -> None:
    jobs = [job("a", "n", floor_cores=5.0), job("b", floor_cores=2.0), job("c", floor_cores=2.0)]
    found = placed([node("n")], jobs)
    assert found.place == {"b": "n"}
    assert "the job's floor is 2.00 cores, 1.00 are free" in found.why["c"]


def test_unknown_memory_refuses_no_job() -> None:
    assert placed([node("n")], [job("a", memory_bytes=1 << 50)]).place == {"a": "n"}


def test_placements_of_one_round_count_for_those_after_them() -> None:
    found = placed([node("n", gpus_free=3)], [job("a", gpus=2), job("b", gpus=2), job("c", gpus=1)])
    assert found.place == {
        "a": "n",
        "c": "n",
    }
    assert "the first to start, on n in about 3 min 20 s" in found.why["b"]


def test_a_job_that_fits_no_node_even_empty_blocks_none() -> None:
    found = placed([node("n")], [job("never", requires={"gpu": "h100"}), job("a", arrived_s=1.0)])
    assert found.place == {"a": "n"}
    assert found.why["never"] == "fits no node: n: the node lacks the label 'gpu=h100'"


def test_a_later_job_goes_first_only_where_the_head_starts_no_later() -> None:
    # The head needs both GPUs of n, which are free when the job there is done, after 100 s.
    nodes = [node("n", gpus_free=1), node("other")]
    running = job("r", "n", 400.0, gpus=1)
    head = job("head", gpus=2)
    long = job("long", None, 800.0, gpus=1, arrived_s=1.0)
    short = job("short", None, 200.0, gpus=1, arrived_s=2.0)
    found = placed(nodes, [running, head, long, short])
    assert found.place == {"short": "n"}
    assert "n: would delay head, the first in the queue" in found.why["long"]
    assert "the first to start, on n in about 1 min 40 s" in found.why["head"]


def test_a_later_job_that_slows_what_the_head_waits_for_does_not_go_first() -> None:
    nodes = [node("n", cores=4, gpus_free=1)]
    jobs = [job("r", "n", 400.0, gpus=1), job("head", gpus=2), job("short", None, 4.0, arrived_s=1)]
    assert placed(nodes, jobs).place == {}
    # The cores that it takes are idle otherwise.
    assert placed([node("n", gpus_free=1)], jobs).place == {"short": "n"}


def test_a_burst_takes_several_rounds() -> None:
    nodes = [node("a", cores=64), node("b", cores=64)]
    found = placed(nodes, [job(f"j{index:03}", arrived_s=index) for index in range(100)])
    assert len(found.place) == PLACED_PER_ROUND
    assert found.next_s == SOON_S
    assert "j063" in found.place
    assert "later round" in found.why["j064"]


def test_without_nodes_all_wait() -> None:
    assert placed([], [job("a")]).why == {"a": "fits no node: the cluster has no nodes"}

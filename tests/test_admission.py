"""The queue: in order, with reasons, and nobody starves."""

from __future__ import annotations

from dlsched.admission import admit
from dlsched.model import Bounds, ContainerSpec, NodeView
from tests.doubles import job_spec

NODE = NodeView(capacity_cores=2.0, cores=2.0, memory_bytes=1024 * 2**20)


def sized(name: str, memory_mib: int = 0, floor_cores: float = 0.1):
    container = ContainerSpec(image="m", memory_bytes=memory_mib * 2**20 or None)
    return job_spec(name, container=container, bounds=Bounds(floor_cores))


def test_what_fits_is_admitted():
    verdicts = admit([sized("a", 400), sized("b", 400)], [sized("c", 200)], NODE, 8)
    assert all(verdict.admitted for verdict in verdicts.values())


def test_memory_that_is_promised_is_not_promised_twice():
    verdicts = admit([sized("a", 600), sized("b", 600)], [], NODE, 8)
    assert verdicts["a"].admitted
    assert verdicts["b"].reason == "needs 600 MiB of memory, 424 MiB is not promised yet"


def test_a_small_job_does_not_overtake_a_large_one_that_waits():
    verdicts = admit([sized("large", 900), sized("small", 10)], [sized("c", 500)], NODE, 8)
    assert not verdicts["large"].admitted
    assert verdicts["small"].reason == "waits behind large"


def test_a_job_that_never_fits_says_so_and_holds_back_nobody():
    verdicts = admit([sized("huge", 4096), sized("wide", 0, 3.0), sized("b")], [], NODE, 8)
    assert verdicts["huge"].reason == "can never start: needs 4096 MiB, the node has 1024 MiB"
    assert verdicts["wide"].reason == (
        "can never start: its floor is 3.00 cores, the node has 2.00"
    )
    assert verdicts["b"].admitted


def test_floors_must_fit_beside_the_others():
    verdicts = admit([sized("a", 0, 0.8)], [sized("c", 0, 1.5)], NODE, 8)
    assert verdicts["a"].reason == (
        "its floor is 0.80 cores, 0.50 are left beside the others' floors"
    )


def test_max_jobs_counts_those_present():
    verdicts = admit([sized("a"), sized("b")], [sized("c")], NODE, 2)
    assert verdicts["a"].admitted
    assert verdicts["b"].reason == "2 jobs are present, max_jobs is 2"

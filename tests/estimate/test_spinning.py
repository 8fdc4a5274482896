"""When threads spin to a container's harm, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.spinning import FORGOTTEN_S, SpinJudge, remedy, spinning_text, spins
from dlsched.model.facts import ThreadsFact
from dlsched.model.state import Spinning

CORES = 2.0
GOMP = ThreadsFact(0.0, 8, 1.0, 7.0, 0.7, "libgomp.so.1")
COMPILER = replace(GOMP, spun_ratio=0.0, spins_in="")
ALONE = replace(GOMP, busy=2, used_cores=2.0, waited_cores=0.1)
"""A pool of which each thread has a core."""


def judged(*samples: ThreadsFact, limit: float | None = 1.0, every_s: float = 10.0) -> SpinJudge:
    judge = SpinJudge()
    for at, sample in enumerate(samples):
        now_s = at * every_s
        judge.update(replace(sample, at_s=now_s), limit, CORES, now_s)
    return judge


@pytest.mark.parametrize(("sample", "harm"), [
    (GOMP, True),
    (replace(GOMP, spun_ratio=0.2), True),  # ONNX Runtime
    (replace(GOMP, spun_ratio=0.06), False),  # OpenMP with a passive wait
    (COMPILER, False),
    (ALONE, False),
    (replace(GOMP, busy=1), False),
    (replace(GOMP, spun_ratio=None), False),
])  # fmt: skip
def test_three_things_come_together_where_threads_spin(sample: ThreadsFact, harm: bool) -> None:
    assert spins(sample) is harm


@pytest.mark.parametrize(("samples", "spinning"), [
    ((GOMP,), False),
    ((GOMP, GOMP), True),
    ((GOMP, COMPILER, GOMP), True),
    ((GOMP, COMPILER, COMPILER), False),
    ((GOMP, GOMP, COMPILER), True),
    ((GOMP, GOMP, ALONE, ALONE, ALONE), False),
])  # fmt: skip
def test_one_sample_is_chance_and_an_alarm_outlasts_one(
    samples: tuple[ThreadsFact, ...], spinning: bool
) -> None:
    assert (judged(*samples).spinning is not None) is spinning


def test_a_sample_is_forgotten() -> None:
    judge, last = judged(GOMP, GOMP), replace(GOMP, at_s=10.0)
    judge.update(last, 1.0, CORES, 10.0 + FORGOTTEN_S)
    assert judge.spinning is not None
    judge.update(last, 1.0, CORES, 10.5 + FORGOTTEN_S)
    assert judge.spinning is None
    assert judge.sample is None


def test_figures_that_vary_are_no_news() -> None:
    judge = judged(GOMP, GOMP)
    before = judge.spinning
    judge.update(replace(GOMP, at_s=20.0, spun_ratio=0.5, busy=7), 1.0, CORES, 20.0)
    assert judge.spinning is before
    judge.update(replace(GOMP, at_s=30.0), 0.5, CORES, 30.0)
    assert judge.spinning != before, "another limit needs another number"


def test_far_below_its_limit_it_has_what_its_neighbours_leave() -> None:
    """On a full host, a limit that it cannot reach is not why its threads wait."""
    crowded = replace(GOMP, used_cores=0.4, waited_cores=7.6)
    spinning = judged(crowded, crowded, limit=1.5).spinning
    assert spinning is not None
    assert (spinning.limited, spinning.cores) == (False, 0.4)
    near = replace(GOMP, used_cores=0.9)
    assert judged(near, near, limit=1.5).spinning.limited is False  # type: ignore[union-attr]
    at_it = replace(GOMP, used_cores=1.4)
    judge = judged(at_it, at_it, near, near, near, limit=1.5)
    assert judge.spinning is not None and judge.spinning.limited


def test_without_a_limit_it_has_what_its_neighbours_leave() -> None:
    spinning = judged(GOMP, GOMP, limit=None).spinning
    assert spinning == Spinning(8, 1.0, limited=False, spun_ratio=0.7, library="libgomp.so.1")
    assert judged(GOMP, GOMP, limit=CORES).spinning == spinning, "no limit on this host"


def test_the_text_says_what_was_measured_and_the_line_that_mends_it() -> None:
    text = spinning_text(Spinning(8, 1.5, limited=True, spun_ratio=0.713, library="libgomp.so.1"))
    assert text == (
        "8 threads spin in a limit of 1.50 cores: at least 71 % of its CPU time goes into loops "
        "that only wait (libgomp.so.1). Set OMP_NUM_THREADS=1, or OMP_WAIT_POLICY=passive."
    )
    text = spinning_text(Spinning(2, 0.93, limited=False, spun_ratio=0.5, library=""))
    assert text.startswith("2 threads spin in 0.93 cores, which neighbours leave it: ")
    assert text.endswith("Start it with 1 thread; with OpenMP by OMP_NUM_THREADS=1.")


@pytest.mark.parametrize(("library", "line"), [
    ("libscipy_openblas64_-32a4b2a6.so", "OPENBLAS_NUM_THREADS=2"),
    ("onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so", "intra_op_num_threads to 2"),
    ("libgomp-a34b3233.so.1", "OMP_NUM_THREADS=2, or OMP_WAIT_POLICY=passive"),
    ("libiomp5.so", "KMP_BLOCKTIME=0"),
    ("libomp.so.5", "KMP_BLOCKTIME=0"),
    ("libggml-cpu.so", "--threads 2"),
    ("pool", "OMP_NUM_THREADS=2"),
])  # fmt: skip
def test_the_remedy_is_that_of_the_library(library: str, line: str) -> None:
    assert line in remedy(library, 2)

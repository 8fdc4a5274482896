"""The variables by which libraries start as many threads as a job may use CPUs."""

from __future__ import annotations

import pytest

from dlsched.runtime.docker.create.containers import VARIABLES, Variable, fitting_threads

COUNTS = ("OMP_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS", "LLAMA_ARG_THREADS", "DLSCHED_THREADS")
WAIT = {"OMP_WAIT_POLICY": "passive"}


@pytest.mark.parametrize(("cores", "threads"), [(0.05, 1), (1.5, 1), (6.0, 6), (7.8, 7)])
def test_every_thread_has_a_core_of_what_the_job_may_use(cores: float, threads: int) -> None:
    assert fitting_threads(cores, 8, 8, ()) == {**WAIT, **dict.fromkeys(COUNTS, str(threads))}


@pytest.mark.parametrize("cores", [7.95, 8.0, 64.0])
def test_on_the_whole_host_libraries_count_themselves(cores: float) -> None:
    assert fitting_threads(cores, 8, 4, ()) == WAIT


def test_libraries_that_take_physical_cores_get_no_more() -> None:
    chosen = fitting_threads(6.0, 8, 4, ())
    assert [chosen[name] for name in COUNTS] == ["6", "4", "4", "6"]


@pytest.mark.parametrize("one", VARIABLES, ids=lambda one: one.name)
def test_what_the_owner_set_is_left_alone(one: Variable) -> None:
    for name in (one.name, *one.same):
        assert not {one.name, name} & fitting_threads(1.0, 8, 8, {name}).keys()


def test_a_count_of_the_owner_s_is_not_marked_as_ours() -> None:
    assert "DLSCHED_THREADS" not in fitting_threads(1.0, 8, 8, {"OMP_NUM_THREADS"})


def test_every_variable_says_who_reads_it_and_why() -> None:
    assert all(one.read_by and one.evidence for one in VARIABLES)

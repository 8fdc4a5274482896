"""`fit_to_allotment()`: torch's threads follow the granted cores, within what others have set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dlsched import report
from dlsched.report import fitting, granted
from dlsched.report.fitting import Fit, fit_to_allotment, threads_for
from dlsched.runtime.allotment import Allotment, job_dir, write_allotment
from tests.report.jobs import run_job

GIB = 2**30
Grant = Callable[[float | None], None]


class Torch(ModuleType):
    """As much of torch as is looked at; counts what it is told."""

    def __init__(self, threads: int) -> None:
        super().__init__("torch")
        self.threads = threads
        self.told: list[int] = []

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads
        self.told.append(threads)


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_fitter", fitting._Fitter())
    monkeypatch.setattr(fitting, "_usable_cpus", lambda: 8)
    monkeypatch.delenv("DLSCHED_ALLOTMENT_FILE", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    torch = Torch(threads=8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.fixture
def grant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grant:
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(tmp_path / "allotment.json"))
    return lambda cores: write_allotment(tmp_path, Allotment(cpu_cores=cores))


@pytest.mark.parametrize(
    ("cores", "threads"),
    [(0.0, 1), (0.3, 1), (1.0, 1), (1.5, 1), (1.89, 1), (1.9, 2), (2.0, 2), (3.7, 3), (3.95, 4)],
)
def test_every_thread_has_nearly_a_whole_core(cores: float, threads: int) -> None:
    assert threads_for(cores) == threads


def test_threads_follow_the_allotment_down_and_up(torch: Torch, grant: Grant) -> None:
    grant(0.3)
    assert fit_to_allotment() == Fit(threads=1, cores=0.3, workers=0)
    grant(3.2)
    assert fit_to_allotment() == Fit(threads=3, cores=3.2, workers=2)
    grant(None)
    assert fit_to_allotment() == Fit(threads=8, cores=8.0, workers=7)
    assert torch.told == [1, 3, 8]


def test_an_allotment_that_stays_is_neither_read_nor_set_again(
    torch: Torch, grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(2.0)
    fit_to_allotment()
    torch.set_num_threads(5)
    monkeypatch.setattr(granted, "allotment", lambda: pytest.fail("read again"))
    assert fit_to_allotment().threads == 2
    assert torch.threads == 5, "the script's own later choice stands until the allotment changes"


def test_what_torch_had_is_not_exceeded(torch: Torch, grant: Grant) -> None:
    torch.threads = 2
    grant(6.0)
    assert fit_to_allotment().threads == 2
    assert torch.told == []


@pytest.mark.parametrize(("at_most", "threads"), [(1, 1), (3, 3), (99, 6), (0, 1), (-4, 1)])
def test_the_callers_bound_holds(torch: Torch, grant: Grant, at_most: int, threads: int) -> None:
    grant(6.0)
    assert fit_to_allotment(at_most=at_most).threads == threads
    assert torch.threads == threads


def test_more_than_there_is_is_what_there_is(torch: Torch, grant: Grant) -> None:
    grant(64.0)
    assert fit_to_allotment() == Fit(threads=8, cores=8.0, workers=7)


def test_outside_of_dlsched_torch_is_left_as_it_is(torch: Torch) -> None:
    assert fit_to_allotment() == Fit(threads=8, cores=8.0, workers=7)
    assert fit_to_allotment(at_most=2).threads == 2
    assert torch.told == []


def test_without_torch_the_numbers_are_told_and_torch_is_not_imported(grant: Grant) -> None:
    grant(2.0)
    assert fit_to_allotment() == Fit(threads=2, cores=2.0, workers=1)
    assert "torch" not in sys.modules


def test_torch_that_comes_later_is_fitted_then(
    grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(2.0)
    fit_to_allotment()
    torch = Torch(threads=8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    fit_to_allotment()
    assert torch.told == [2]


class Pool:
    """A library that threadpoolctl finds."""

    def __init__(self, name: str, threads: int) -> None:
        self.filepath, self.num_threads = name, threads

    def set_num_threads(self, threads: int) -> None:
        self.num_threads = threads


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """An OpenMP of eight threads, and a BLAS that the program holds to two."""
    found = [Pool("libgomp.so.1", 8), Pool("libopenblas.so.0", 2)]
    module = ModuleType("threadpoolctl")
    module.ThreadpoolController = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        lib_controllers=found
    )
    monkeypatch.setitem(sys.modules, "threadpoolctl", module)
    return found


def test_openmp_and_blas_follow_too_up_to_what_the_program_chose(
    pools: list[Pool], grant: Grant
) -> None:
    for cores, threads in ((1.0, [1, 1]), (4.0, [4, 2]), (None, [8, 2])):
        grant(cores)
        fit_to_allotment()
        assert [pool.num_threads for pool in pools] == threads


def test_what_dlsched_set_is_no_choice_of_the_program_s(
    torch: Torch, pools: list[Pool], grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ceiling of a running job was raised; its environment is from before."""
    monkeypatch.setenv("DLSCHED_THREADS", "2")
    torch.threads = 2
    grant(6.0)
    assert fit_to_allotment().threads == torch.threads == 6
    assert [pool.num_threads for pool in pools] == [6, 6]


def test_a_library_that_refuses_is_not_the_jobs_trouble(pools: list[Pool], grant: Grant) -> None:
    pools[0].set_num_threads = None  # type: ignore[assignment, method-assign]
    grant(1.0)
    assert fit_to_allotment() == Fit(1, 1.0, 0)


class Cuda:
    """Two GPUs of 16 and 8 GiB, and what was set of them."""

    def __init__(self) -> None:
        self.there = True
        self.set: list[tuple[float, int]] = []

    def is_available(self) -> bool:
        return self.there

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=(16 * GIB, 8 * GIB)[device])

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        self.set.append((fraction, device))


@pytest.fixture
def cuda(torch: Torch) -> Cuda:
    torch.cuda = Cuda()  # type: ignore[attr-defined]
    return torch.cuda  # type: ignore[attr-defined, no-any-return]


def test_each_gpus_memory_is_capped_once_and_freed_again(
    cuda: Cuda, grant: Grant, tmp_path: Path
) -> None:
    write_allotment(tmp_path, Allotment(gpu_memory_bytes=4 * GIB))
    assert fit_to_allotment().gpu_memory_bytes == 4 * GIB
    fit_to_allotment()
    assert cuda.set == [(0.25, 0), (0.5, 1)]
    write_allotment(tmp_path, Allotment(gpu_memory_bytes=12 * GIB))
    assert fit_to_allotment().gpu_memory_bytes == 12 * GIB
    assert cuda.set[2:] == [(0.75, 0), (1.0, 1)]
    grant(None)
    assert fit_to_allotment().gpu_memory_bytes is None
    assert cuda.set[4:] == [(1.0, 0), (1.0, 1)]


def test_where_memory_is_not_granted_in_parts_cuda_is_not_even_asked(
    cuda: Cuda, grant: Grant
) -> None:
    cuda.is_available = lambda: pytest.fail("asked")  # type: ignore[method-assign]
    grant(2.0)
    assert fit_to_allotment() == Fit(2, 2.0, 1, None)


def test_a_cap_that_cannot_be_set_is_not_claimed_and_set_as_soon_as_it_can(
    cuda: Cuda, tmp_path: Path, grant: Grant
) -> None:
    write_allotment(tmp_path, Allotment(cpu_cores=2.0, gpu_memory_bytes=4 * GIB))
    cuda.there = False
    assert fit_to_allotment() == Fit(2, 2.0, 1, None)
    cuda.there = True
    assert fit_to_allotment().gpu_memory_bytes == 4 * GIB


@pytest.mark.parametrize("at_most", ["many", object(), float("nan")])
def test_nothing_is_raised(torch: Torch, grant: Grant, at_most: Any) -> None:
    grant(2.0)
    assert fit_to_allotment(at_most) == Fit(1, 1.0, 0)


def test_a_torch_that_refuses_is_not_the_jobs_trouble(torch: Torch, grant: Grant) -> None:
    torch.set_num_threads = None  # type: ignore[assignment, method-assign]
    grant(2.0)
    assert fit_to_allotment() == Fit(1, 1.0, 0)


@pytest.mark.process
def test_the_cpus_of_the_affinity_are_what_is_usable() -> None:
    run_job(
        """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dlsched.report import fit_to_allotment
assert fit_to_allotment() == (1, 1.0, 0, None), fit_to_allotment()
""",
        None,
    )


def test_the_job_reads_what_the_agent_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = job_dir(tmp_path, "alpha")
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(directory / "allotment.json"))
    assert report.allotment() is None
    told = (0.5, 0.25, ("GPU-1",), True, True, True, 2**33)
    write_allotment(directory, Allotment(*told))
    assert report.allotment() == told
    write_allotment(directory, Allotment())
    assert report.allotment() == report.Allotment()


@pytest.mark.parametrize("text", ["", "[]", '{"cpu_cores":', "\udcff", "[" * 60000])
def test_a_broken_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "allotment.json"
    path.write_text(text, errors="surrogateescape")
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    assert report.allotment() is None


def test_a_value_of_the_wrong_kind_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "allotment.json"
    path.write_text(
        '{"cpu_cores": true, "gpu_share": NaN, "gpus": 3, "x": 1, "gpu_memory_bytes": "8GiB"}'
    )
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    assert report.allotment() == report.Allotment()


def test_outside_of_dlsched_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLSCHED_ALLOTMENT_FILE", raising=False)
    assert report.allotment() is None


def test_a_grant_is_read_again_only_when_it_has_changed_and_outlasts_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = job_dir(tmp_path, "alpha")
    path = directory / "allotment.json"
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    grant = granted.Grant()
    assert grant.poll() is None
    write_allotment(directory, Allotment(gpu_share=0.25))
    first = grant.poll()
    assert first.gpu_share == 0.25
    assert grant.poll() is first
    write_allotment(directory, Allotment(gpu_share=0.5))
    second = grant.poll()
    assert second.gpu_share == 0.5
    path.write_text("{")
    assert grant.poll() is second
    path.unlink()
    assert grant.poll() is second

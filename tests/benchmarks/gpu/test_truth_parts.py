"""Parts of the script on stand-ins: for NVML, nvidia-smi, MPS, an engine, and libcuda."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import truth
from benchmarks.gpu.jobs import NotRun
from benchmarks.gpu.truth import Asked
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, RESERVED_BYTES, Failure, Gpu, Process, Scenario
from tools.environment import compiler_for_tests

pytestmark = pytest.mark.process

H100 = Gpu("GPU-1", "NVIDIA H100", memory_bytes=80 * GIB, used_bytes=GIB, busy_percent=50)
QUICK = Asked(scale=0.0)
TRAINING = 4711


class Told(dict[str, Any]):
    """What a part has told."""

    def __call__(self, **figures: Any) -> None:
        self.update(figures)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for stand-ins of programs, before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


class Played:
    """A training that says what it is to say."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self.pid = TRAINING
        self.ready = {"reserved_bytes": GIB}
        self._lines = iter(lines)

    def go(self) -> None: ...

    def line(self) -> dict[str, Any]:
        return next(self._lines)

    answer = line


def play(monkeypatch: pytest.MonkeyPatch, trainings: Iterator[Played]) -> None:
    """Put these in the place of real trainings."""
    monkeypatch.setattr(truth, "jobs_of", lambda *_: nullcontext(lambda *_: next(trainings)))


SMI = """case "$1" in
--query-gpu=*) echo 'NVIDIA H100, GPU-1, 550.54.15, 82560, 640, 1024, Default, Disabled, 40' ;;
*) echo '4711, 3072' ;;
esac"""


def test_inventory_of_both_is_told_with_their_differences(nvml: Stub, programs: Path) -> None:
    program(programs, "nvidia-smi", SMI)
    nvml.show(Scenario((H100,)))
    told = Told()
    truth.inventory(QUICK, told)
    assert told["differences"] == []
    assert (told["gpus"][0]["memory_bytes"], told["nvidia_smi"][0]["busy_ratio"]) == (
        80 * GIB + RESERVED_BYTES,
        0.4,
    )
    nvml.show(Scenario((H100,), (Failure("nvmlDeviceGetMemoryInfo_v2", 3),)))
    truth.inventory(QUICK, told)
    assert (
        told["differences"][0]
        == f"GPU-1: memory_bytes None, nvidia-smi {80 * GIB + RESERVED_BYTES}"
    )


def test_inventory_without_nvidia_smi_keeps_what_nvml_says(
    nvml: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvml.show(Scenario((H100,)))
    monkeypatch.setenv("PATH", str(tmp_path))
    told = Told()
    with pytest.raises(NotRun, match="nvidia-smi is missing"):
        truth.inventory(QUICK, told)
    assert [gpu["uuid"] for gpu in told["gpus"]] == ["GPU-1"]


def test_without_a_driver_or_a_gpu_nothing_is_compared(nvml: Stub) -> None:
    with pytest.raises(NotRun, match="NVML: "):
        truth.Nvml()
    nvml.show(Scenario())
    with pytest.raises(NotRun, match="lists no GPU"):
        truth.Nvml()


def test_a_training_is_found_by_its_pid_until_it_ends(
    nvml: Stub, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "nvidia-smi", SMI)
    busy = Process(TRAINING, 3 * GIB, sm_percent=90)
    nvml.show(Scenario((Gpu("GPU-1", processes=(busy,)),)))

    class Ends(Played):
        def answer(self) -> dict[str, Any]:
            nvml.show(Scenario((Gpu("GPU-1"),)))
            return {}

    play(monkeypatch, iter([Ends()]))
    told = Told()
    truth.processes(QUICK, told)
    assert told["differences"] == []
    assert told["by_nvml"] == [{"pid": TRAINING, "memory_bytes": 3 * GIB, "busy_ratio": 0.9}]
    assert told["listed_after_end_s"] < 5


CONTROL = """if [ "$1" = -f ]; then
  echo $$ >"$TRUTH_FOLDER/pid"; %s
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"; exec sleep 600
fi
read line; echo "$line" >>"$TRUTH_FOLDER/asked"; [ "$line" != get_server_list ] || echo 4712"""


def test_mps_is_measured_by_a_daemon_that_is_ended(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "nvidia-cuda-mps-control", CONTROL % ":")
    monkeypatch.setenv("TRUTH_FOLDER", str(programs))
    given: list[dict[str, str]] = []

    def rates(_: Asked, seconds: float, shares: Any, **more: str) -> list[float]:
        given.append(more)
        return [10.0 / len(given)] * len(shares)

    monkeypatch.setattr(truth, "rates", rates)
    told = Told()
    truth.mps(QUICK, told)
    assert told["of_exclusive_ratio_by_percentage"]["100"] == 0.5
    assert told["servers"] == ["4712"]
    assert told["two_at_half"]["sum_of_exclusive_ratio"] == pytest.approx(0.4)
    threads = [one.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") for one in given]
    assert threads == [None, "100", "50", "25", "50"]
    assert "CUDA_MPS_PIPE_DIRECTORY" in given[1]
    assert (programs / "asked").read_text().splitlines()[-1] == "quit -t 1"
    with pytest.raises(ProcessLookupError):
        os.kill(int((programs / "pid").read_text()), 0)
    program(programs, "nvidia-cuda-mps-control", CONTROL % "echo no permission >&2; exit 1")
    with pytest.raises(NotRun, match="does not start: no permission"):
        truth.mps(QUICK, told)


DOCKER = """cd "$TRUTH_FOLDER"; echo "$*" >>calls
case "$1 $*" in
version*) echo 20.10.24 ;;
import*) cat >image.tar ;;
run*nvidia.com*|run*runtime=nvidia*) echo 'unknown device' >&2; exit 125 ;;
run*--gpus=all*) touch hooked ;;
update*) [ ! -e hooked ] || touch lost ;;
exec*) [ ! -e lost ] ;;
esac"""


def test_a_gpu_that_an_update_takes_away_is_seen(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "docker", DOCKER)
    monkeypatch.setenv("TRUTH_FOLDER", str(programs))
    node = str(tmp_path)
    monkeypatch.setattr(truth, "NODES", {"cuda": (node, "/no/such/node")})
    told = Told()
    truth.container(QUICK, told)
    assert told["engine_version"] == "20.10.24"
    unknown = {"reason": "docker: exit code 125: unknown device"}
    assert told["modes"] == {
        "device nodes": {"opened_before": [node], "opened_after": [node]},
        "CDI": unknown,
        "NVIDIA runtime": unknown,
        "legacy hook": {"opened_before": [node], "opened_after": []},
    }
    calls = (programs / "calls").read_text().splitlines()
    started = {word for call in calls for word in call.split() if word.startswith("--name=")}
    removed = {f"--name={call.split()[-1]}" for call in calls if call.startswith("rm ")}
    assert started == removed
    assert calls[-1].startswith("rmi ")


def test_without_an_engine_or_its_packages_no_container_is_tried(
    programs: Path, tmp_path: Path
) -> None:
    program(programs, "docker", "echo 'Cannot connect' >&2; exit 1")
    with pytest.raises(NotRun, match="no engine answers: docker: exit code 1: Cannot connect"):
        truth.container(QUICK, Told())


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled."""
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = Path(__file__).with_name("libcuda.c")
    compiler_for_tests()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def trainings(*checksums: str) -> Iterator[Played]:
    """Trainings that come through, with these states at their ends."""
    for checksum in checksums:
        steps = [{"step": n, "at_s": float("inf") if n > 100 else 0.0} for n in (95, 100, 105)]
        yield Played(*steps, {"checksum": checksum})


@pytest.mark.parametrize("last", ["same", "other"])
def test_a_training_is_suspended_by_the_four_calls(
    nvml: Stub, libcuda: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    nvml.show(Scenario((H100,)))
    monkeypatch.setattr(truth, "LIBRARY", str(libcuda))
    play(monkeypatch, trainings("same", "same", last))
    told = Told()
    truth.suspend(QUICK, told)
    assert told["results"] == dict.fromkeys(truth.FUNCTIONS, "CUDA_SUCCESS")
    assert set(told["call_s"]) == set(truth.FUNCTIONS)
    assert told["used_bytes"] == dict.fromkeys(("before", "suspended", "after"), GIB)
    assert (told["plain_runs_equal"], told["state_equal"]) == (True, last == "same")


@pytest.mark.parametrize(
    ("fails", "called"),
    [("Lock", ["Lock"]), ("Checkpoint", ["Lock", "Checkpoint", "Unlock"]),
     ("Restore", ["Lock", "Checkpoint", "Restore"])],
)  # fmt: skip
def test_a_call_that_fails_ends_the_part_with_its_name(
    nvml: Stub, libcuda: Path, monkeypatch: pytest.MonkeyPatch, fails: str, called: list[str]
) -> None:
    nvml.show(Scenario((H100,)))
    monkeypatch.setattr(truth, "LIBRARY", str(libcuda))
    monkeypatch.setenv("TRUTH_FAILS", f"cuCheckpointProcess{fails}")
    play(monkeypatch, trainings("same", "same", "same"))
    told = Told()
    with pytest.raises(RuntimeError, match=f"cuCheckpointProcess{fails}: CUDA error 801"):
        truth.suspend(QUICK, told)
    assert list(told["results"]) == [f"cuCheckpointProcess{name}" for name in called]
    if called[-1] == "Unlock":
        assert told["results"]["cuCheckpointProcessUnlock"] == "CUDA_SUCCESS"


def test_an_older_driver_has_no_such_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "LIBRARY", "libc.so.6")
    with pytest.raises(NotRun, match="has no cuCheckpointProcessLock"):
        truth.Checkpoints()


def test_shares_are_measured_beside_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = itertools.chain([[100.0], [50.0, 45.0], [70.0, 20.0], [60.0, 30.0], [100.0]])
    monkeypatch.setattr(truth, "rates", lambda *_: next(answers))
    told = Told()
    truth.pacing(QUICK, told)
    assert told["paced_equal"]["error_points"] == pytest.approx([0.0, -5.0])
    assert told["paced_unequal"]["error_points"] == pytest.approx([0.0, -10.0])
    assert told["unpaced"]["sum_of_exclusive_ratio"] == pytest.approx(0.9)

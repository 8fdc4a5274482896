"""Finding pynvml, and what its errors mean."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from dlsched.model.facts import GpuFact
from dlsched.runtime.gpu import nvml as typed
from dlsched.runtime.gpu import remedy
from dlsched.runtime.gpu.processes import container_of, serves_all, uid_of
from tests.nvml.library import Stub


@pytest.mark.parametrize("name", [one for one in vars(typed) if one.isupper()])
def test_codes_are_those_of_nvml(name: str) -> None:
    value = getattr(typed, name)
    if isinstance(value, int):
        known = "NVML_SUCCESS" if name == "SUCCESS" else f"NVML_ERROR_{known_as(name)}"
        assert getattr(pynvml, known) == value


def known_as(name: str) -> str:
    return "LIB_RM_VERSION_MISMATCH" if name == "VERSION_MISMATCH" else name


def test_each_name_that_is_used_is_one_of_the_library() -> None:
    """`pynvml` has no types, so that a misspelt name would be found on a host with a GPU only."""
    texts = [file.read_text() for file in Path(typed.__file__).parent.glob("*.py")]
    used = set(re.findall(r"\bnvml\.(nvml\w+|NVML\w+)", " ".join(texts)))
    assert {"nvmlInit", "nvmlDeviceGetComputeRunningProcesses_v3", "NVMLError"} <= used
    assert not [name for name in sorted(used) if not hasattr(pynvml, name)]


def test_the_library_is_found_where_there_is_one(nvml: Stub) -> None:
    assert typed.load() is pynvml


@pytest.mark.parametrize(
    ("code", "words", "cure"),
    [
        (typed.GPU_IS_LOST, "the GPU fell off the bus (GPU is lost)", "look for Xid"),
        (typed.RESET_REQUIRED, "the GPU needs a reset", "run `nvidia-smi --gpu-reset`"),
        (999, "Unknown Error (NVML code 999)", ""),
        (4242, "NVML Error with code 4242 (NVML code 4242)", ""),
    ],
)
def test_errors_are_told_in_words_with_what_to_do(code: int, words: str, cure: str) -> None:
    told = typed.describe(pynvml.NVMLError(code))
    assert told == words
    found = remedy(GpuFact("GPU-a", 0, "A100", 1, trouble=told))
    assert found.startswith(cure)
    assert bool(found) == bool(cure)
    assert remedy(GpuFact("GPU-a", 0, "A100", 1)) == ""


OUTER, INNER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("groups", "container"),
    [
        (f"0::/docker/{OUTER}", OUTER),
        (f"0::/system.slice/docker-{OUTER}.scope", OUTER),
        (f"0::/../{OUTER}/init.scope", OUTER),
        (f"9:cpu,cpuacct:/dlsched-default/{OUTER}\n1:name=systemd:/\n", OUTER),
        (f"0::/docker/{OUTER}/docker/{INNER}", OUTER),
        ("0::/user.slice/user-1000.slice/session-1.scope", None),
        (f"0::/docker/{OUTER[:63]}", None),
        ("", None),
    ],
)
def test_a_container_is_told_by_the_outermost_id(
    tmp_path: Path, groups: str, container: str | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(groups)
    assert container_of(7, tmp_path) == container


def test_the_agents_own_container_is_nobodys(tmp_path: Path) -> None:
    for name, group in (("self", OUTER), ("7", f"{OUTER}/docker/{INNER}"), ("8", OUTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(f"0::/docker/{group}")
    assert container_of(7, tmp_path) == INNER
    assert container_of(8, tmp_path) is None


def test_a_process_that_is_not_to_be_seen_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cgroup"):
        container_of(7, tmp_path)
    assert not serves_all(7, tmp_path)


def test_text_that_is_none_is_no_container(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(b"\xff\xfe:::\x00" * 5000)
    assert container_of(7, tmp_path) is None


@pytest.mark.parametrize(
    ("name", "serves"), [("nvidia-cuda-mps", True), ("nvidia-cuda-mp", False), ("python3", False)]
)
def test_the_server_of_mps_is_known_by_what_the_kernel_keeps_of_its_name(
    tmp_path: Path, name: str, serves: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text(f"{name}\n")
    assert serves_all(7, tmp_path) is serves


@pytest.mark.parametrize(
    ("status", "uid"),
    [
        (b"Name:\tpython\nUmask:\t0022\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n", 1000),
        # The kernel escapes line ends in names, so a process cannot forge a line.
        (b"Name:\tUid:\\n0\nUid:\t7\t7\t7\t7\n", 7),
        (b"Name:\tpython\n", None),
        (b"Uid:\t99999999999\t7\t7\t7\n", None),
        (b"\xff\x00" * 9000, None),
    ],
)
def test_the_user_of_a_process_is_the_kernels_answer(
    tmp_path: Path, status: bytes, uid: int | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_bytes(status)
    assert uid_of(7, tmp_path) == uid


def test_the_user_of_a_process_that_ended_is_unknown(tmp_path: Path) -> None:
    assert uid_of(7, tmp_path) is None

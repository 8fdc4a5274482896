"""Finding pynvml, and what its errors mean."""

from __future__ import annotations

import inspect

import pynvml
import pytest

from dlsched.model.facts import GpuFact
from dlsched.runtime.gpu import nvml as typed
from dlsched.runtime.gpu import remedy
from tests.nvml.library import Stub


def test_every_function_that_is_called_is_one_of_pynvmls() -> None:
    named = [name for name in vars(typed.Nvml) if name.startswith("nvml")]
    assert len(named) > 15
    for name in named:
        own = list(inspect.signature(getattr(typed.Nvml, name)).parameters)[1:]
        inspect.signature(getattr(pynvml, name)).bind(*own)


@pytest.mark.parametrize("name", [one for one in vars(typed) if one.isupper()])
def test_codes_are_those_of_nvml(name: str) -> None:
    value = getattr(typed, name)
    if isinstance(value, int):
        known = "NVML_SUCCESS" if name == "SUCCESS" else f"NVML_ERROR_{known_as(name)}"
        assert getattr(pynvml, known) == value


def known_as(name: str) -> str:
    return "LIB_RM_VERSION_MISMATCH" if name == "VERSION_MISMATCH" else name


def test_the_library_is_found_where_there_is_one(nvml: Stub) -> None:
    assert typed.load() is pynvml


@pytest.mark.parametrize(
    ("code", "words", "cure"),
    [
        (typed.GPU_IS_LOST, "fell off the bus (GPU is lost)", "look for Xid"),
        (typed.RESET_REQUIRED, "needs a reset", "nvidia-smi --gpu-reset"),
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


def test_without_trouble_there_is_nothing_to_do() -> None:
    assert remedy(GpuFact("GPU-a", 0, "A100", 1)) == ""

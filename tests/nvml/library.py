"""The stand-in for libnvidia-ml.so.1: compiled once, and loaded where the true pynvml looks.

Owns building and loading. It must not know what a scenario says.
"""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nvml.scenario import SCENARIO, Scenario, write
from tools.environment import compiler_for_tests

NAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("stub.c")
CACHE = Path(__file__).parents[2] / ".build" / "nvml"


def build(missing: Sequence[str] = ()) -> Path:
    """The folder with the compiled library, without the symbols that shall be `missing`.

    Raises SetupError where there is no compiler and none can be installed.
    """
    absent = [f"-D{symbol}=absent_{symbol}" for symbol in sorted(missing)]
    soname = f"-Wl,-soname,{NAME}"
    flags = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-pthread", soname, *absent]
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    folder = CACHE / digest
    if not (folder / NAME).exists():
        compiler_for_tests()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / NAME
            subprocess.run(["cc", *flags, "-o", str(made), str(SOURCE)], check=True)
            made.replace(folder / NAME)
    return folder


@dataclass(frozen=True, slots=True)
class Stub:
    """A compiled library and its scenario file."""

    folder: Path
    scenario: Path

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, in which a child finds the stub as the host's NVML."""
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("LD_LIBRARY_PATH"))))
        return {**os.environ, "LD_LIBRARY_PATH": path, SCENARIO: str(self.scenario)}

    def show(self, scenario: Scenario) -> None:
        """Tell this from the next call on."""
        write(self.scenario, scenario)

    def unload_driver(self) -> None:
        """No driver answers from the next call on."""
        self.scenario.unlink(missing_ok=True)


@contextmanager
def loaded(stub: Stub) -> Iterator[None]:
    """The stub inside this process, where pynvml finds it by its name; and away again.

    A name without a folder is looked for among the libraries that are loaded already.
    """
    import pynvml

    before = os.environ.get(SCENARIO)
    os.environ[SCENARIO] = str(stub.scenario)
    ctypes.CDLL(str(stub.folder / NAME))
    try:
        yield
    finally:
        stub.unload_driver()  # whoever still hangs in there goes on
        for thread in threading.enumerate():
            if thread.name == "dlsched-gpus":
                thread.join()
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()
        _unload()
        if before is None:
            del os.environ[SCENARIO]
        else:
            os.environ[SCENARIO] = before


def _unload() -> None:
    """Until nobody holds it: each that loads it holds it once more."""
    while True:
        try:
            held = ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD)
        except OSError:
            return
        _ctypes.dlclose(held._handle)
        _ctypes.dlclose(held._handle)


@pytest.fixture
def nvml_stub(tmp_path: Path) -> Stub:
    """A compiled stub for children (`Stub.environment`); without a scenario there is no driver."""
    return Stub(build(), tmp_path / "nvml-scenario")


@pytest.fixture
def nvml(nvml_stub: Stub) -> Iterator[Stub]:
    """The stub loaded in this process: the true pynvml finds it until the test's end."""
    with loaded(nvml_stub):
        yield nvml_stub

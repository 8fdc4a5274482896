"""The inventory over the true pynvml and the stand-in library: what is told, and what fails."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlsched.model.facts import ComputeMode, GpuProcess
from dlsched.runtime.gpu import GpuSnapshot, Inventory, UserNames, session
from dlsched.runtime.gpu.inventory import EVERY_S, RETRY_FIRST_S, RETRY_MOST_S, STALE_S
from tests.nvml.library import Stub, build, loaded
from tests.nvml.scenario import (
    EXCLUSIVE_PROCESS,
    GIB,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESERVED_BYTES,
    UNKNOWN,
    VERSION_MISMATCH,
    Failure,
    Gpu,
    Instance,
    Process,
    Scenario,
)
from tests.waiting import until

pytestmark = pytest.mark.timed

CONTAINER = "c" * 64
TWO = (Gpu("GPU-a"), Gpu("GPU-b", minor=1, name="NVIDIA L4", memory_bytes=24 * GIB))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with the agent alone."""
    folder = tmp_path / "proc"
    add_process(folder, "self", "0::/system.slice/dlsched.service")
    return folder


def add_process(proc: Path, pid: int | str, groups: str, name: str = "python") -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(groups + "\n")
    (proc / str(pid) / "comm").write_text(name + "\n")


Make = Callable[..., Inventory]


@pytest.fixture
def make(proc: Path) -> Iterator[Make]:
    """Makes inventories that wait long enough for any look."""
    made: list[Inventory] = []

    def one(**changes: object) -> Inventory:
        patience = {"wait_s": 20.0, "first_wait_s": 20.0, **changes}
        made.append(Inventory(Path("/dev"), proc, **patience))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for inventory in made:
        inventory.close()


Seeing = Callable[..., Inventory]


@pytest.fixture
def seeing(nvml: Stub, make: Make) -> Seeing:
    """Makes inventories that have polled these GPUs once, at 0 s."""

    def one(*gpus: Gpu, **changes: float) -> Inventory:
        nvml.show(Scenario(gpus))
        inventory = make(**changes)
        inventory.poll(0.0)
        return inventory

    return one


def troubles(look: GpuSnapshot) -> dict[str, str | None]:
    return {one.uuid: one.trouble for one in look.devices}


# ------------------------------------------------------------------------- what is told


def test_devices_are_told_in_the_drivers_order_with_all_figures(nvml: Stub, make: Make) -> None:
    gpu = Gpu(
        "GPU-a",
        used_bytes=3 * GIB,
        busy_percent=37,
        compute_mode=EXCLUSIVE_PROCESS,
        numa_node=1,
        minor=4,
    )
    nvml.show(Scenario((gpu, TWO[1])))
    look = make().poll(0.0)
    first, second = look.devices
    assert (first.uuid, first.index, first.model) == ("GPU-a", 0, "NVIDIA A100-SXM4-40GB")
    assert (first.memory_bytes, first.memory_used_bytes) == (40 * GIB, 3 * GIB)
    assert (first.busy_ratio, first.compute_mode) == (0.37, ComputeMode.EXCLUSIVE)
    assert (first.numa_node, first.nodes, first.part_of) == (1, ("/dev/nvidia4",), None)
    assert (second.uuid, second.index, second.nodes) == ("GPU-b", 1, ("/dev/nvidia1",))
    assert (look.problem, look.at_s, look.driver) == (None, 0.0, "550.54.15")


def test_memory_that_the_driver_keeps_is_neither_offered_nor_used(nvml: Stub, make: Make) -> None:
    gpu = Gpu("GPU-a", memory_bytes=40 * GIB, used_bytes=0)
    nvml.show(Scenario((gpu,)))
    (device,) = make().poll(0.0).devices
    assert (device.memory_bytes, device.memory_used_bytes) == (40 * GIB, 0)
    nvml.show(Scenario((gpu,), (Failure("nvmlDeviceGetMemoryInfo_v2", 13),)))  # an older library
    (device,) = make().poll(0.0).devices
    assert (device.memory_bytes, device.memory_used_bytes) == (
        40 * GIB + RESERVED_BYTES,
        RESERVED_BYTES,
    )


def test_a_process_is_told_with_its_container_memory_and_part_of_the_time(
    nvml: Stub, make: Make, proc: Path
) -> None:
    add_process(proc, 11, f"12:cpu:/docker/{CONTAINER}\n0::/docker/{CONTAINER}")
    add_process(proc, 12, f"0::/system.slice/docker-{CONTAINER}.scope/init.scope")
    add_process(proc, 13, "0::/user.slice/user-1000.slice")
    listed = (
        Process(13, None, graphics=True),
        Process(11, GIB, 40),
        Process(12, 2 * GIB),
        Process(12, 2 * GIB, graphics=True),
    )
    nvml.show(Scenario((Gpu("GPU-a", processes=listed),)))
    (device,) = make().poll(0.0).devices
    assert device.processes == (
        GpuProcess(11, CONTAINER, GIB, 0.4, computed=True),
        GpuProcess(12, CONTAINER, 2 * GIB, 0.0, computed=False),
        GpuProcess(13, None, None, 0.0, computed=False),
    )


def test_a_host_process_is_shown_with_its_user(nvml: Stub, make: Make, proc: Path) -> None:
    add_process(proc, 11, f"0::/docker/{CONTAINER}")
    add_process(proc, 13, "0::/user.slice/user-1000.slice")
    for pid in (11, 13):
        (proc / str(pid) / "status").write_text("Name:\tpython\nUid:\t1000\t0\t0\t0\n")
    asked: list[int] = []
    users = UserNames(lambda uid: asked.append(uid) or f"user-{uid}")
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(11, GIB), Process(13, GIB))),)))
    inventory = make(users=users)
    inventory.poll(0.0)
    until(lambda: users.of(1000), "the name")
    inside, outside = inventory.poll(1.0).devices[0].processes
    assert (inside.uid, inside.user) == (None, None)
    assert (outside.uid, outside.user) == (1000, "user-1000")
    assert asked == [1000]


def test_a_hanging_directory_of_users_holds_up_no_reading(
    nvml: Stub, make: Make, proc: Path
) -> None:
    add_process(proc, 13, "0::/")
    (proc / "13" / "status").write_text("Uid:\t1000\t0\t0\t0\n")
    answers = threading.Event()
    users = UserNames(lambda _: "ada" if answers.wait(60) else None)
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(13, GIB),)),)))
    (process,) = make(users=users).poll(0.0).devices[0].processes
    answers.set()
    assert (process.uid, process.user) == (1000, None)


def test_any_sample_is_a_use_even_at_zero_percent(nvml: Stub, make: Make, proc: Path) -> None:
    for pid in (1, 2):
        add_process(proc, pid, f"0::/docker/{CONTAINER}")
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(1, GIB, 0), Process(2, GIB))),)))
    (device,) = make().poll(0.0).devices
    assert [(one.busy_ratio, one.computed) for one in device.processes] == [
        (0.0, True),
        (0.0, False),
    ]


def test_beside_an_mps_server_no_process_is_called_idle(nvml: Stub, make: Make, proc: Path) -> None:
    add_process(proc, 9, "0::/", "nvidia-cuda-mps")
    for pid in (1, 2):
        add_process(proc, pid, f"0::/docker/{CONTAINER}")
    listed = (Process(9, GIB, 90), Process(1, GIB), Process(2, GIB, 5))
    nvml.show(Scenario((Gpu("GPU-a", processes=listed),)))
    (device,) = make().poll(0.0).devices
    assert [one.computed for one in device.processes] == [None, True]


def test_samples_since_the_previous_reading_are_asked_for(
    nvml: Stub, make: Make, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    add_process(proc, 1, f"0::/docker/{CONTAINER}")
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(1, GIB),)),)))
    wall_s, since_s = 1000.0, []

    def sample(_device: object, since_us: int) -> list[SimpleNamespace]:
        since_s.append(since_us / 1e6)
        return [SimpleNamespace(pid=1, timeStamp=int(1004e6), smUtil=70)]

    monkeypatch.setattr(session.time, "time", lambda: wall_s)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", sample)
    inventory = make()
    inventory.poll(0.0)
    wall_s = 1030.0
    (process,) = inventory.poll(30.0).devices[0].processes
    assert since_s == [998.0, 998.0]
    assert (process.busy_ratio, process.computed) == (0.0, True)


def test_a_process_that_ended_meanwhile_is_not_told_one_that_cannot_be_seen_is(
    nvml: Stub, make: Make
) -> None:
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(4242, GIB),)),)))
    inventory = make()
    first, second = inventory.poll(0.0), inventory.poll(1.0)
    assert (first.devices[0].processes, first.problem) == ((), None)
    unseen = GpuProcess(4242, None, GIB, 0.0, computed=False, visible=False)
    assert second.devices[0].processes == (unseen,)
    assert "--pid=host" in second.problem


def test_the_server_of_mps_is_nobodys_user_of_a_gpu(nvml: Stub, make: Make, proc: Path) -> None:
    add_process(proc, 9, "0::/", "nvidia-cuda-mps")  # as long as the kernel keeps it
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(9, GIB, 90),)),)))
    assert make().poll(0.0).devices[0].processes == ()


def test_mig_instances_stand_for_their_gpu_and_their_use_is_unknown(
    nvml: Stub, make: Make, proc: Path
) -> None:
    caps = proc / "driver" / "nvidia-caps" / "mig-minors"
    caps.parent.mkdir(parents=True)
    caps.write_text("config 1\nmonitor 2\ngpu1/gi7/access 66\ngpu1/gi7/ci0/access 67\n")
    add_process(proc, 11, f"0::/docker/{CONTAINER}")
    instances = (
        Instance("MIG-x", 7, used_bytes=GIB, processes=(Process(11, GIB),)),
        Instance("MIG-y", 8),
    )
    nvml.show(Scenario((TWO[0], Gpu("GPU-b", minor=1, busy_percent=80, instances=instances))))
    whole, x, y = make().poll(0.0).devices
    assert (whole.uuid, whole.part_of) == ("GPU-a", None)
    assert (x.uuid, x.part_of, x.index) == ("MIG-x", "GPU-b", 1)
    assert (x.memory_bytes, x.memory_used_bytes, x.busy_ratio) == (5 * GIB, GIB, None)
    assert x.processes == (GpuProcess(11, CONTAINER, GIB, None, computed=None),)
    caps_nodes = ("/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67")
    assert x.nodes == ("/dev/nvidia1", *caps_nodes)
    assert (y.uuid, y.busy_ratio, y.nodes) == ("MIG-y", None, ("/dev/nvidia1",))


def test_a_gpu_that_is_to_be_divided_and_is_not_cannot_be_used(nvml: Stub, make: Make) -> None:
    nvml.show(Scenario((Gpu("GPU-a", instances=()),)))
    look = make().poll(0.0)
    assert "MIG is on, and the GPU has no instance" in str(troubles(look)["GPU-a"])
    assert look.devices[0].busy_ratio is None


def test_instances_come_and_go_without_trouble(nvml: Stub, make: Make) -> None:
    inventory = make()
    for now_s, instances, uuids in (
        (0.0, None, {"GPU-a"}),
        (1.0, (Instance("MIG-x", 7),), {"MIG-x"}),
        (2.0, (Instance("MIG-y", 7), Instance("MIG-z", 8)), {"MIG-y", "MIG-z"}),
        (3.0, None, {"GPU-a"}),
    ):
        nvml.show(Scenario((Gpu("GPU-a", instances=instances),)))
        assert troubles(inventory.poll(now_s)) == dict.fromkeys(uuids)


def test_instances_of_a_lost_gpu_stay_with_its_trouble(nvml: Stub, seeing: Seeing) -> None:
    divided = (Gpu("GPU-a", instances=(Instance("MIG-x", 7), Instance("MIG-y", 8))), TWO[1])
    inventory = seeing(*divided)
    nvml.show(Scenario(divided, (Failure("*", GPU_IS_LOST, "GPU-a"),)))
    lost = "the GPU fell off the bus (GPU is lost)"
    assert troubles(inventory.poll(1.0)) == {"MIG-x": lost, "MIG-y": lost, "GPU-b": None}


# ------------------------------------------------------------------------- what fails


def run(program: str, environment: dict[str, str]) -> str:
    """What a process that runs this prints."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    told = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout


@pytest.mark.process
def test_a_host_without_the_library_has_no_gpus_and_imports_nothing() -> None:
    look = (
        "import sys; from dlsched.runtime.gpu import Inventory; "
        "look = Inventory(first_wait_s=20).poll(0.0); "
        "print(look.devices, look.problem, 'pynvml' in sys.modules)"
    )
    printed = run(look, {k: value for k, value in os.environ.items() if k != "LD_LIBRARY_PATH"})
    if "True" in printed:
        pytest.skip("this host has an NVIDIA driver")
    assert printed == "() None False\n"


def test_a_driver_that_is_loaded_later_is_found(nvml: Stub, make: Make) -> None:
    inventory = make()
    look = inventory.poll(0.0)
    assert (look.devices, look.problem, look.at_s) == ((), None, 0.0)
    nvml.show(Scenario(TWO))
    assert inventory.poll(RETRY_FIRST_S - 0.1).devices == ()
    assert troubles(inventory.poll(RETRY_FIRST_S)) == {"GPU-a": None, "GPU-b": None}


def test_it_is_asked_for_ever_more_seldom_while_there_is_no_driver(make: Make) -> None:
    asked: list[float] = []
    inventory = Inventory(first_wait_s=20, wait_s=20, find=lambda: asked.append(now_s))
    for second in range(1800):
        now_s = float(second)
        inventory.poll(now_s)
    assert asked[:4] == [0.0, 5.0, 15.0, 35.0]
    assert asked[-1] - asked[-2] == RETRY_MOST_S


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (VERSION_MISMATCH, "different versions, as after an upgrade: reload the kernel modules"),
        (NO_PERMISSION, "Insufficient Permissions (NVML code 4)"),
        (UNKNOWN, "Unknown Error (NVML code 999)"),
    ],
)
def test_a_driver_that_cannot_be_opened_is_told(
    nvml: Stub, make: Make, code: int, words: str
) -> None:
    nvml.show(Scenario(TWO, (Failure("nvmlInitWithFlags", code),)))
    inventory = make()
    look = inventory.poll(0.0)
    assert look.devices == ()
    assert words in str(look.problem)
    nvml.show(Scenario(TWO))
    assert inventory.poll(RETRY_FIRST_S).problem is None


def test_a_gpu_that_falls_off_the_bus_stays_with_its_trouble_and_nothing_else_changes(
    nvml: Stub, make: Make
) -> None:
    nvml.show(Scenario((Gpu("GPU-a", used_bytes=GIB, busy_percent=9), TWO[1])))
    inventory = make()
    before = inventory.poll(0.0)
    nvml.show(Scenario(TWO, (Failure("*", GPU_IS_LOST, "GPU-a"),)))
    for now_s in (1.0, 2.0):
        look = inventory.poll(now_s)
        lost = {"memory_used_bytes": None, "busy_ratio": None, "processes": ()}
        lost["trouble"] = "the GPU fell off the bus (GPU is lost)"
        assert look.devices == (replace(before.devices[0], **lost), before.devices[1])
        assert look.problem is None
    nvml.show(Scenario(TWO))
    assert troubles(inventory.poll(3.0)) == {"GPU-a": None, "GPU-b": None}


def test_a_gpu_that_was_lost_before_the_agent_began_is_told(nvml: Stub, make: Make) -> None:
    nvml.show(Scenario(TWO, (Failure("*", GPU_IS_LOST, "GPU-a"),)))
    look = make().poll(0.0)
    assert troubles(look) == {"GPU-b": None}
    assert str(look.problem).startswith("GPU 0: the GPU fell off the bus")


def test_a_gpu_no_longer_listed_stays_with_its_trouble(nvml: Stub, seeing: Seeing) -> None:
    inventory = seeing(*TWO)
    nvml.show(Scenario(TWO[1:]))
    lost = {"GPU-a": "the driver does not list the GPU any more", "GPU-b": None}
    assert troubles(inventory.poll(1.0)) == lost
    nvml.show(Scenario(TWO))
    assert troubles(inventory.poll(2.0)) == {"GPU-a": None, "GPU-b": None}


@pytest.mark.parametrize(
    ("function", "changed"),
    [
        ("nvmlDeviceGetUtilizationRates", {"busy_ratio": None}),
        ("nvmlDeviceGetMemoryAffinity", {"numa_node": None}),
        ("nvmlDeviceGetMinorNumber", {"nodes": ()}),
        ("nvmlDeviceGetName", {"model": "unknown model"}),
        ("nvmlDeviceGetMigMode", {}),
        ("nvmlDeviceGetComputeMode", {"compute_mode": ComputeMode.DEFAULT}),
        ("nvmlDeviceGetComputeRunningProcesses_v3", {"processes": ()}),
        ("nvmlDeviceGetProcessUtilization", {"processes": (GpuProcess(11, CONTAINER, GIB),)}),
        (
            "nvmlDeviceGetMemoryInfo*",
            {
                "memory_bytes": 0,
                "memory_used_bytes": None,
                "trouble": "the driver does not report the GPU's memory",
            },
        ),
    ],
)
def test_an_unsupported_figure_is_unknown_and_all_others_stay(
    nvml: Stub, make: Make, proc: Path, function: str, changed: dict[str, object]
) -> None:
    add_process(proc, 11, f"0::/docker/{CONTAINER}")
    processes = (Process(11, GIB, 30),)
    gpu = Gpu("GPU-a", busy_percent=5, compute_mode=EXCLUSIVE_PROCESS, processes=processes)
    nvml.show(Scenario((gpu,)))
    (whole,) = make().poll(0.0).devices
    nvml.show(Scenario((gpu,), (Failure(function, NOT_SUPPORTED),)))
    inventory = make()
    for now_s in range(3):
        look = inventory.poll(float(now_s))
        assert look.devices == (replace(whole, **changed),)
        assert look.problem is None


@pytest.mark.process
def test_a_function_that_an_older_library_lacks_is_unknown(tmp_path: Path, make: Make) -> None:
    function = "nvmlDeviceGetUtilizationRates"
    stub = Stub(build((function,)), tmp_path / "scenario")
    stub.show(Scenario((Gpu("GPU-a", busy_percent=5),)))
    with loaded(stub):
        inventory = make()
        look = inventory.poll(0.0)
        assert (look.devices[0].busy_ratio, look.problem) == (None, None)
        inventory.close()


def test_a_driver_that_was_loaded_anew_is_opened_anew(nvml: Stub, seeing: Seeing) -> None:
    inventory = seeing(*TWO)
    nvml.show(Scenario(TWO, life=2, driver="560.35.03"))
    look = inventory.poll(1.0)
    assert troubles(look) == {"GPU-a": None, "GPU-b": None}
    assert (look.problem, look.driver) == (None, "560.35.03")


def test_an_unloaded_drivers_gpus_are_in_trouble_until_it_is_back(
    nvml: Stub, seeing: Seeing
) -> None:
    inventory = seeing(*TWO)
    nvml.unload_driver()
    look = inventory.poll(1.0)
    words = "the GPU driver is not loaded any more"
    assert (look.problem, troubles(look)) == (words, {"GPU-a": words, "GPU-b": words})
    nvml.show(Scenario(TWO, life=2))
    assert inventory.poll(2.0).problem == words
    assert troubles(inventory.poll(1.0 + RETRY_FIRST_S)) == {"GPU-a": None, "GPU-b": None}


@pytest.mark.parametrize(
    "lost",
    [Scenario(TWO, (Failure("*", GPU_IS_LOST, "GPU-a"),)), Scenario(TWO[1:])],
    ids=["off the bus", "not listed any more"],
)
def test_a_lost_gpu_is_looked_for_with_a_new_session_ever_more_seldom(
    nvml: Stub, make: Make, monkeypatch: pytest.MonkeyPatch, lost: Scenario
) -> None:
    import pynvml

    opened: list[float] = []
    real = pynvml.nvmlInit
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: (opened.append(now_s), real()))
    inventory = make()
    for second in range(100):
        now_s = float(second)
        nvml.show(lost if second else Scenario(TWO))
        assert (troubles(inventory.poll(now_s))["GPU-a"] is not None) == bool(second)
    assert opened == [0.0, 6.0, 16.0, 36.0, 76.0]


def test_a_driver_that_hangs_from_the_start_does_not_hold_up_the_loop(
    nvml: Stub, make: Make
) -> None:
    nvml.show(Scenario(TWO, hangs=("nvmlInitWithFlags",)))
    inventory = make(first_wait_s=0.5, wait_s=0.5)
    began_s = time.monotonic()
    seen = {(look.devices, look.problem) for look in map(inventory.poll, map(float, range(100)))}
    assert time.monotonic() - began_s < 25  # and not a hundred waits of 0.5 s
    assert seen == {((), "the GPU driver has not answered yet")}
    nvml.show(Scenario(TWO))
    assert troubles(soon(inventory, 100.0)) == {"GPU-a": None, "GPU-b": None}


def test_a_driver_that_hangs_later_is_waited_for_once_and_its_figures_grow_old(
    nvml: Stub, make: Make
) -> None:
    nvml.show(Scenario((Gpu("GPU-a", used_bytes=GIB, busy_percent=9),)))
    inventory = make(wait_s=0.05)
    fresh = soon(inventory, 0.0)
    nvml.show(Scenario(TWO[:1], hangs=("nvmlDeviceGetMemoryInfo*",)))
    threads = readers()
    assert inventory.poll(1.0) == fresh
    assert inventory.poll(1.0 + STALE_S - 0.1) == fresh
    old = inventory.poll(1.0 + STALE_S)
    assert old.problem == "the GPU driver does not answer: the state of GPUs is old"
    (device,) = old.devices
    assert (device.uuid, device.memory_bytes, device.trouble) == ("GPU-a", 40 * GIB, None)
    assert (device.memory_used_bytes, device.busy_ratio) == (None, None)
    for now_s in range(20, 60):
        assert inventory.poll(float(now_s)) == old
    assert readers() <= threads + 1
    nvml.show(Scenario(TWO))
    again = soon(inventory, 60.0, lambda look: look.at_s == 60.0 or len(look.devices) == 2)
    assert again.problem is None


@pytest.mark.parametrize(("wait_s", "waited_s"), [(1e-9, 0.0), (9.0, 9.0)])
def test_a_driver_slower_than_the_loop_would_wait_is_not_waited_for(
    seeing: Seeing, monkeypatch: pytest.MonkeyPatch, wait_s: float, waited_s: float
) -> None:
    waits: list[float] = []
    take = Inventory._take
    monkeypatch.setattr(Inventory, "_take", lambda self, s: (waits.append(s), take(self, 20.0))[1])
    seeing(*TWO, wait_s=wait_s, first_wait_s=7.0).poll(1.0)
    assert waits == [0.0, 7.0, 0.0, waited_s]


def readers() -> int:
    """The threads that ask a driver."""
    return sum(one.name == "dlsched-gpus" for one in threading.enumerate())


def soon(
    inventory: Inventory,
    now_s: float,
    good: Callable[[GpuSnapshot], bool] = lambda look: bool(look.devices),
) -> GpuSnapshot:
    """The first good look, within a while of real time."""
    times_s = itertools.count(now_s, EVERY_S)
    return until(lambda: inventory.poll(next(times_s)), "a good sample", every_s=0.001, so=good)


# ------------------------------------------------------------------------- how often, and the end


def test_without_a_thread_to_be_had_it_tells_what_it_knows_and_tries_again(
    nvml: Stub, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    nvml.show(Scenario(TWO))
    inventory = make()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert inventory.poll(0.0).devices == ()
    assert len(inventory.poll(1.0).devices) == 2


def test_it_polls_no_more_often_than_is_of_use(nvml: Stub, seeing: Seeing) -> None:
    inventory = seeing(TWO[0])
    first = inventory.poll(0.0)
    nvml.show(Scenario(TWO))
    assert inventory.poll(EVERY_S - 0.01) is first
    assert len(inventory.poll(EVERY_S).devices) == 2


def test_after_its_end_it_asks_no_more(nvml: Stub, seeing: Seeing) -> None:
    inventory = seeing(TWO[0])
    last = inventory.poll(0.0)
    inventory.close()
    nvml.show(Scenario(TWO))
    assert inventory.poll(100.0) is last
    import pynvml

    with pytest.raises(pynvml.NVMLError) as refused:
        pynvml.nvmlDeviceGetCount()
    assert refused.value.value == pynvml.NVML_ERROR_UNINITIALIZED


@pytest.mark.process
def test_a_program_ends_while_its_driver_hangs(nvml_stub: Stub) -> None:
    nvml_stub.show(Scenario(TWO, hangs=("*",)))
    program = "from dlsched.runtime.gpu import Inventory; print(Inventory().poll(0.0).problem)"
    assert run(program, nvml_stub.environment) == "the GPU driver has not answered yet\n"

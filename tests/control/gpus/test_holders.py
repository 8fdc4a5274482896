"""Who holds each GPU, how long without using it, and when that is an alarm."""

from __future__ import annotations

from dataclasses import replace

from dlsched.control.gpus.holders import HOLDERS_MAX, READINGS_APART_S
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.model.alarms import AlarmKey
from dlsched.model.facts import ContainerFact, GpuFact, GpuProcess, NodeFact, Observation
from dlsched.model.state import GpuHolder, HolderKind
from tests.doubles import gpu_fact, gpu_spec, running

GIB = 2**30
NOTEBOOK = "f" * 64


class Readings:
    """A ledger that reads processes on GPU 0, ten seconds later each time."""

    def __init__(self, idle_after_s: float | None = 60.0, reserved: frozenset[str] = frozenset()):
        options = LedgerOptions(gpu_idle_after_s=idle_after_s)
        gpus = replace(options.gpus, reserved=reserved)
        self.ledger = Ledger(replace(options, gpus=gpus))
        self.containers: tuple[ContainerFact, ...] = ()
        self.specs = {}
        self.names = {NOTEBOOK: "notebook"}
        self.now_s = 1000.0

    def read(self, *processes: GpuProcess, after_s: float = 10.0, **gpu: object) -> State:
        fact = gpu_fact(0, 40, processes=processes, **gpu)
        return self.read_gpus(fact, after_s=after_s)

    def read_gpus(self, *gpus: GpuFact, after_s: float = 10.0) -> State:
        self.now_s += after_s
        node = NodeFact(8.0, 2**36, gpus=gpus, gpus_read_at_s=self.now_s - 0.5)
        seen = Observation(
            self.now_s,
            True,
            containers=self.containers,
            node=node,
            container_names=self.names,
        )
        return self.ledger.update(seen, Desired(specs=self.specs), {})


def used(pid: int = 1, container: str | None = NOTEBOOK, **more: object) -> GpuProcess:
    return replace(GpuProcess(pid, container, GIB, 0.5, computed=True), **more)  # type: ignore[arg-type]


def unused(pid: int = 1, container: str | None = NOTEBOOK, **more: object) -> GpuProcess:
    return used(pid, container, **{"computed": False, "busy_ratio": 0.0, **more})


def holders(state: State) -> tuple[GpuHolder, ...]:
    return state.snapshot.node.gpus[0].holders


def idle_texts(state: State) -> list[str]:
    return [one.text for one in state.alarms if one.key is AlarmKey.GPU_IDLE]


def test_each_holder_is_shown_with_whose_it_is() -> None:
    node = Readings()
    mine = gpu_spec("mine")
    node.specs = {"mine": replace(mine, owner=1000)}
    theirs = replace(running("theirs"), adopted=gpu_spec("theirs"), gpus=("GPU-0",))
    node.containers = (running("mine", gpus=("GPU-0",)), theirs)
    node.names |= {"id-mine": "dlsched-default-mine", "id-theirs": "theirs"}
    found = holders(
        node.read(
            used(1, "id-mine"), used(2, "id-mine", memory_bytes=2 * GIB), used(3, "id-theirs"),
            used(4), used(5, "9" * 64), used(6, None, uid=1001, user="ada"),
            used(7, None, visible=False),
        )
    )  # fmt: skip
    assert [(str(one), one.kind, one.whose, one.memory_bytes) for one in found] == [
        ("job mine", HolderKind.OWN, "uid 1000", 3 * GIB),
        ("job theirs", HolderKind.ADOPTED, None, GIB),
        (f"container {'9' * 12}", HolderKind.FOREIGN, None, GIB),
        ("container notebook", HolderKind.FOREIGN, None, GIB),
        ("process 6 of ada", HolderKind.FOREIGN, "ada", GIB),
        ("process 7, which dlsched cannot see", HolderKind.UNSEEN, None, GIB),
    ]
    assert found[0].name == "dlsched-default-mine"


def test_labels_that_pose_as_a_job_make_no_own_holder() -> None:
    node = Readings()
    node.specs = {"mine": gpu_spec("mine")}
    poser = replace(running("mine"), container_id="id-zzz")
    node.containers = (running("mine", gpus=("GPU-0",)), poser)
    node.names["id-zzz"] = "poser"
    gpu = node.read(used(1, "id-zzz")).snapshot.node.gpus[0]
    assert [str(one) for one in gpu.holders] == ["container poser"]
    assert gpu.foreign_processes == 1


def test_idle_time_counts_from_the_first_reading_without_a_use() -> None:
    node = Readings()
    node.read(used())
    node.read(unused())
    (holder,) = holders(node.read(unused()))
    assert holder.computes is False
    assert holder.idle_since_s == 1019.5


def test_a_container_is_idle_when_all_its_processes_are() -> None:
    node = Readings()
    (holder,) = holders(node.read(unused(1), used(2)))
    assert (holder.computes, holder.idle_since_s) == (True, None)
    (holder,) = holders(node.read(unused(1), unused(2)))
    assert holder.computes is False


def test_an_unknown_use_is_never_idle() -> None:
    node = Readings(idle_after_s=10.0)
    for _ in range(9):
        state = node.read(unused(1), unused(2, computed=None, busy_ratio=None))
    (holder,) = holders(state)
    assert (holder.computes, holder.idle_since_s, holder.idle_over_s) == (None, None, None)
    assert idle_texts(state) == []


def test_an_idle_holder_raises_an_alarm_until_it_computes() -> None:
    node = Readings(idle_after_s=60.0)
    node.read(used())
    for _ in range(7):
        assert idle_texts(node.read(unused())) == []
    (text,) = idle_texts(node.read(unused()))
    assert text.startswith(
        "GPU 0: container notebook, not a job, holds 1 GiB of memory and has not used"
    )
    assert text.endswith("the GPU for over 1 min")
    assert idle_texts(node.read(used())) == []
    assert idle_texts(node.read(unused())) == []


def test_the_time_in_an_alarm_grows_in_doublings() -> None:
    node, texts = Readings(idle_after_s=15.0), []
    for _ in range(20):
        texts += idle_texts(node.read(unused()))
    assert [one.rsplit("over ", 1)[1] for one in dict.fromkeys(texts)] == [
        "15 s", "30 s", "1 min", "2 min",
    ]  # fmt: skip


def test_null_switches_the_alarm_off_and_keeps_the_time() -> None:
    node = Readings(idle_after_s=None)
    for _ in range(99):
        state = node.read(unused())
    assert idle_texts(state) == []
    assert holders(state)[0].idle_since_s == 1009.5


def test_a_reserved_gpu_raises_no_alarm() -> None:
    node = Readings(idle_after_s=10.0, reserved=frozenset({"GPU-0"}))
    for _ in range(9):
        state = node.read(unused())
    assert idle_texts(state) == []


def test_after_a_gap_between_readings_idle_time_starts_again() -> None:
    node = Readings()
    node.read(unused())
    node.read(unused(), after_s=READINGS_APART_S)
    assert holders(node.read(unused()))[0].idle_since_s == 1009.5
    (holder,) = holders(node.read(unused(), after_s=READINGS_APART_S + 1))
    assert holder.idle_since_s == node.now_s - 0.5


def test_figures_that_were_not_read_end_the_idle_time() -> None:
    node = Readings(idle_after_s=10.0)
    for _ in range(3):
        node.read(unused())
    assert holders(node.read(trouble="fell off the bus")) == ()
    assert holders(node.read(unused()))[0].idle_since_s == node.now_s - 0.5


def test_of_many_holders_those_with_most_memory_are_listed() -> None:
    node = Readings()
    many = [used(pid, None, memory_bytes=pid * GIB) for pid in range(1, HOLDERS_MAX + 4)]
    gpu = node.read(*many).snapshot.node.gpus[0]
    assert len(gpu.holders) == HOLDERS_MAX
    assert gpu.holders_left_out == 3
    assert min(one.pid or 0 for one in gpu.holders) == 4

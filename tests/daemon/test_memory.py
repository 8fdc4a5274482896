"""A leak on a whole node: the alarm before the kernel kills, the event when it has."""

from __future__ import annotations

from dataclasses import replace

from dlsched.api.status import node_status
from dlsched.api.stream_events import EventHistory
from dlsched.control.controller import Controller
from dlsched.control.decider import Decider, NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ports import Ports
from dlsched.model.facts import MemoryFact, NodeFact
from dlsched.policies.none import NonePolicy
from dlsched.policies.protocol import NoParameters
from dlsched.simulation.clock import VirtualClock
from tests.doubles import FakeInbox, FakeRecords, FakeRuntime, job_spec, running

GIB = 1 << 30
EVERY_S = 5.0


def test_a_leaking_worker_is_warned_of_and_its_kill_is_an_event() -> None:
    clock, runtime = VirtualClock(0.0), FakeRuntime()
    runtime.node = NodeFact(4.0, 64 * GIB, memory_available_bytes=30 * GIB)
    ports = Ports(runtime, clock, FakeInbox(job_spec("leaks")), FakeRecords())
    controller = Controller(
        ports,
        Ledger(LedgerOptions()),
        Decider(NamedPolicy("none", NonePolicy(NoParameters()))),
        GuardOptions(),
    )
    history, happened, alarms = EventHistory(), [], []
    held, kills = GIB, 0
    while clock.now_s() < 100 * 60:
        held += 9 * GIB // 1000  # 8 GiB in 74 minutes, where the kernel kills the worker
        if held > 8 * GIB:
            held, kills = GIB, kills + 1
        memory = MemoryFact(held, held, 8 * GIB, 8 * GIB, kills, limit_reached=kills > 0)
        runtime.containers["leaks"] = replace(running("leaks"), memory=memory)
        report = controller.run_once()
        found = history.next(report)
        if found is not None:
            happened += [(clock.now_s(), one) for one in found.events if one.kind == "oom-kill"]
            alarms += [(clock.now_s(), one) for one in found.alarms]
        clock.advance(EVERY_S)
    ((killed_s, event),) = happened
    assert event.reason == (
        "The kernel killed a process of leaks because its memory limit of 8 GiB was reached."
    )
    (raised_s, raised), (cleared_s, cleared) = alarms
    assert (raised.key, raised.kind, cleared.kind) == ("memory-fills", "raised", "cleared")
    assert "docker update --memory 12288m" in raised.text
    assert killed_s - raised_s > 5 * 60
    assert cleared_s - killed_s <= EVERY_S
    status = node_status(report)
    assert status.alarms == ()
    assert status.jobs[0].memory.oom_kills == 1
    assert status.jobs[0].memory.text.endswith("peak 8 GiB, 1 OOM kill")

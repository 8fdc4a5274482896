"""A job's threads over its starts, and the alarm of those that spin."""

from __future__ import annotations

from dataclasses import replace

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.model.alarms import AlarmKey
from dlsched.model.facts import ContainerState, NodeFact, Observation, ThreadsFact
from dlsched.model.spec import Limits
from tests.doubles import job_spec, running

SPINS = ThreadsFact(0.0, 8, 1.0, 7.0, 0.7, "libgomp.so.1")


class Node:
    """One job with a limit of one core, sampled every ten seconds."""

    def __init__(self) -> None:
        self.ledger, self.now_s, self.fact = Ledger(LedgerOptions()), 0.0, running("a")

    def sampled(self, sample: ThreadsFact | None, **changes: object) -> State:
        self.now_s += 10.0
        threads = None if sample is None else replace(sample, at_s=self.now_s)
        self.fact = replace(self.fact, actual=Limits(1.0), threads=threads, **changes)
        node = NodeFact(4.0, 1 << 34)
        observed = Observation(self.now_s, True, containers=(self.fact,), node=node)
        return self.ledger.update(observed, Desired({"a": job_spec("a")}), {})


def test_a_job_whose_threads_spin_has_an_alarm_until_they_do_not() -> None:
    node = Node()
    assert node.sampled(SPINS).alarms == ()
    state = node.sampled(SPINS)
    (alarm,) = state.alarms
    assert (alarm.source, alarm.key) == ("a", AlarmKey.THREADS_SPIN)
    assert str(alarm).startswith("a: 8 threads spin in a limit of 1.00 cores")
    assert node.sampled(SPINS).alarms == (alarm,)
    quiet = replace(SPINS, waited_cores=0.0)
    alarms = [len(node.sampled(quiet).alarms) for _ in range(3)]
    assert alarms == [1, 1, 0]
    (job,) = node.sampled(quiet).snapshot.jobs
    assert job.threads.sample is not None
    assert (job.threads.spinning, job.threads.spun) == (None, True)


def test_another_start_begins_anew() -> None:
    node = Node()
    node.sampled(SPINS)
    node.sampled(SPINS)
    (job,) = node.sampled(None, starts=2).snapshot.jobs
    assert (job.threads.sample, job.threads.spinning, job.threads.spun) == (None, None, False)


def test_a_container_that_is_paused_has_no_threads_that_compute() -> None:
    node = Node()
    node.sampled(SPINS)
    node.sampled(SPINS)
    state = node.sampled(SPINS, state=ContainerState.PAUSED)
    assert state.alarms == ()
    assert state.snapshot.jobs[0].threads.sample is None

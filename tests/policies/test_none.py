from __future__ import annotations

from dlsched.model.spec import Limits
from dlsched.model.state import JobState, JobView
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot


def test_every_running_job_loses_its_ceiling_and_no_other_job_is_decided() -> None:
    waiting = JobView(spec=job("waiting").spec, state=JobState.WAITING)
    decision = load("none").decide(snapshot(job("a", cores=0.5), waiting), None)
    assert dict(decision.limits) == {"a": Limits(None)}
    assert "plain Docker" in decision.why["a"]
    assert not load("none").reserves

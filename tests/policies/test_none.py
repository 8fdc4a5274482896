from __future__ import annotations

from dataclasses import replace

from dlsched.model.spec import Limits
from dlsched.model.state import JobState, JobView
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot


def test_every_running_job_loses_its_ceiling_and_no_other_job_is_decided() -> None:
    waiting = JobView(spec=job("waiting").spec, state=JobState.WAITING)
    decision = load("none").decide(snapshot(job("a", cores=0.5), waiting), None)
    assert dict(decision.limits) == {"a": Limits(None)}
    assert "plain Docker" in decision.why["a"]
    assert not load("none").traits.reserves


def test_a_container_that_is_still_changed_does_not_have_its_owners_limits_yet() -> None:
    theirs, changed = (replace(job(name, cores=0.5), adopted=True) for name in ("a", "b"))
    seen = snapshot(theirs, replace(changed, altered=True))
    why = load("none").decide(seen, None).why
    assert why["a"] == "observed only: the container has the limits that its owner gave it"
    assert why["b"].startswith(
        "observed only: the container gets back the limits that it had before"
    )

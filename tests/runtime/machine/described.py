"""A container as the engine describes it, for tables."""

from dataclasses import replace

from dlsched.model.facts import ContainerState
from dlsched.model.spec import Stop
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import EngineLimits

RUNNING = Inspected(
    container_id="c",
    name="dlsched-job",
    image="image",
    instance="default",
    job="job",
    digest="",
    container_digest="",
    source="",
    stop=Stop(),
    state=ContainerState.RUNNING,
    pid=7,
    started_at="then",
    exit_code=None,
    oom_killed=False,
    error=None,
    restarts=0,
    limits=EngineLimits(),
)
EXITED = replace(RUNNING, state=ContainerState.EXITED, pid=0, exit_code=0)

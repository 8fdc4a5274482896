"""Giving everything back without an agent: the records and the engine are all that it takes.

Owns that composition, for `dlsched release`. It must not be used beside an agent that runs: who
calls it holds the lock on the state directory.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.gpus.canary import Canary
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.limits.outcome import GivenBack
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.originals import Originals


def release_all(options: DockerOptions) -> tuple[GivenBack, ...]:
    """Give every container its original limits back, one after the other, as recorded. The caller
    holds the lock on the state directory. Raises EngineUnavailable or OSError."""
    with closing(Engine(options.host, options.timeout_s)) as engine, ExitStack() as ending:
        engine.info()
        originals = Originals(options.state_dir)
        writer = LimitWriter(
            engine,
            originals,
            options.state_dir,
            SystemClock().wall_time,
            injector=Injector(options.gpus, tuple),
            canary=Canary(state_dir=options.state_dir),
        )
        ending.callback(writer.claims.close)
        backs = [writer.give_back(original) for original in originals.changed()]
        lost = [writer.give_up(container) for container in originals.all_lost()]
        return (*backs, *(back for back in lost if back is not None))

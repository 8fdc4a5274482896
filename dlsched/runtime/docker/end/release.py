"""Giving everything back without an agent: the records and the engine are all that it takes.

Owns that composition, for `dlsched release`. It must not be used beside an agent that runs: who
calls it holds the lock on the state directory.
"""

from __future__ import annotations

from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.gpus.canary import Canary
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.limits.outcome import GivenBack
from dlsched.runtime.docker.limits.writer import Hands
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.originals import Originals


def release_all(options: DockerOptions) -> tuple[GivenBack, ...]:
    """Give every container what it had, one after the other, as the records tell it.

    Raises EngineUnavailable when there is no engine, OSError when the records cannot be read.
    """
    engine = Engine(options.host, options.timeout_s)
    try:
        engine.info()
        originals = Originals(options.state_dir)
        hands = Hands(
            engine,
            originals,
            options.state_dir,
            SystemClock().wall_time,
            injector=Injector(options.gpus, tuple),
            canary=Canary(state_dir=options.state_dir),
        )
        backs = [hands.give_back(word) for word in originals.changed()]
        lost = [hands.give_up(container) for container in originals.all_lost()]
        return (*backs, *(back for back in lost if back is not None))
    finally:
        engine.close()

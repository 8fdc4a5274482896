"""The policy `fair`: shares by weight, whatever progress or usage."""

from __future__ import annotations

import math
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot
from dlsched.policies.fair_share import fair_shares
from dlsched.policies.protocol import NoParameters


class FairPolicy:
    """Capacity divided by weight, within each job's own floor and ceiling.

    What a job with a low ceiling cannot take goes to the others. Targets do not count: shares only
    change when jobs arrive, leave, or change their weight or bounds.
    """

    Parameters: ClassVar[type[NoParameters]] = NoParameters
    Memory: ClassVar[None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(reserves=True, heeds_progress=False)

    def __init__(self, parameters: NoParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        capacity, of = snapshot.node.capacity_cores, snapshot.resource
        shares = fair_shares(snapshot.running, capacity)
        weights = {job.name: job.spec.weight for job in snapshot.running}
        whole = math.fsum(weights.values())
        return Decision(
            limits={name: Limits(cpu_cores=cores) for name, cores in shares.items()},
            why={
                name: f"its share by weight ({weights[name]:g} of {whole:g} in all) is "
                f"{of.amount(cores)}"
                for name, cores in shares.items()
            },
        )

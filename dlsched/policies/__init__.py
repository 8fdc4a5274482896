"""The policies, one per file or folder, and the stable API for authors of policies.

`from dlsched.policies import Decision, Limits, Snapshot` and so on keeps working when modules move.
Inside the program a name is imported from the module that defines it.
"""

from dlsched.estimate.evaluations import evaluations, reaches
from dlsched.estimate.sketch import cv, measured_s
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.errors import PolicyError
from dlsched.model.facts import GpuFact, LatencySketch, Sample, Usage
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.resource import Cpu, GpuTime, Resource
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
    Target,
)
from dlsched.model.state import (
    GpuView,
    JobState,
    JobView,
    NodeView,
    Progress,
    Reached,
    Snapshot,
    Tiers,
)
from dlsched.model.units import render_cores, render_seconds, same_cores
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill
from dlsched.policies.protocol import Policy

__all__ = [
    "AccuracyTarget",
    "Bounds",
    "Claim",
    "ContainerSpec",
    "Cpu",
    "Decision",
    "Forecast",
    "ForecastKind",
    "GpuFact",
    "GpuTime",
    "GpuView",
    "JobSpec",
    "JobState",
    "JobView",
    "LatencySketch",
    "LatencyTarget",
    "Limits",
    "NodeView",
    "Policy",
    "PolicyError",
    "PolicyMemory",
    "PolicyTraits",
    "Progress",
    "Reached",
    "Resource",
    "Sample",
    "Snapshot",
    "Target",
    "Tiers",
    "Usage",
    "claim",
    "cv",
    "evaluations",
    "fair_shares",
    "measured_s",
    "reaches",
    "render_cores",
    "render_seconds",
    "same_cores",
    "water_fill",
]

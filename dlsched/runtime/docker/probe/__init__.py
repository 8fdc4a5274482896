"""Samples running containers and changes nothing: what each speaks, uses and could be asked."""

from dlsched.runtime.docker.probe.probed import Probed, ProbedPort, ProbeReading
from dlsched.runtime.docker.probe.sampling import ProbeOptions, UnknownContainer, probe

__all__ = ["ProbeOptions", "ProbeReading", "Probed", "ProbedPort", "UnknownContainer", "probe"]

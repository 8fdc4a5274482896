"""Traces: a stretch of work on one node or several, as YAML: read, written, generated, recorded.

This package only holds the format; `run` simulates.

The format, version 1 (durations with their unit; only what has no default must be there)::

    trace: 1                         # this format's version
    name: small                      # goes into the result's rows; default: trace
    node: {cores: 8, memory: 64GiB}
    duration: 1h                     # the run ends here, or when nothing is left to do
    cycle: 1s                        # the agent's period
    window: 30s                      # its measuring window
    host:                            # work of others on the host, sharing as one container would
      - {at: 10m, for: 5m, cores: 2, shares: 1024}
    jobs:
      - name: detector
        at: 0s                       # when its file comes
        leaves: 30m                  # when its file is removed; default: it stays
        start_up: 1s                 # from its container's start to its process
        start_up_work: 2.5           # core-seconds on one thread from there to its first request
                                     # or step, as importing a framework; default: none
        weight: 1
        cpus: {min: 0.1, max: 4}     # as in a job file, and so are target, memory and restart
        restart: on-failure
        target: {latency: 50ms, quantile: p95}
        service:                     # latency = overhead + work / min(cores, threads)
          work: 0.02                 # core-seconds a request, in the mean
          overhead: 2ms
          threads: 2
          noise: 0.2                 # deviation of a request's work over its mean, log-normal
          arrivals: 12               # a second, queued; default: one client, who waits
        shifts:                      # from then on, times what `service` says
          - {at: 10m, work: 2, arrivals: 0.5}
        faults:
          - {kind: silent, at: 5m, for: 1m}           # no reports; without `for`: to the end
          - {kind: lying, at: 8m, for: 1m, factor: 0.5}   # reports times that
          - {kind: crash, at: 9m}
      - name: digits
        target: {metric: accuracy, deliver: 0.9, finish: 0.97, deadline: 2h}
        training:
          steps: 3000
          work: 0.5                  # core-seconds a step
          threads: 4
          evaluate_every: 50         # steps
          checkpoint_every: 500      # steps; default: a crash loses all
          noise: 0.01                # deviation of an evaluation, in the metric's unit
          validation_set: 200        # examples: binomial noise of so few
          curve: {family: power, start: 0.1, end: 1, scale: 300, exponent: 1}

Families of curves: `power` (1 + k/scale)^-exponent, `exponential` e^(-k/scale), `plateau` (an
exponential that stands still `at` a step, `for` so many), `drop` (levels off until the learning
rate drops `at` a step), `restart` (thrown back `every` so many steps); and `points`, a measured
one: `{family: points, points: [[50, 0.34], [100, 0.41]]}`, steps and values, linear in between, the
outermost values held. All times count from the trace's beginning.

A trace of a cluster has `nodes` in place of `node` and `host`::

    nodes:
      - {name: large, cores: 8, memory: 64GiB, speed: 1.2}   # work done per core-second
      - {name: small, cores: 4, joins: 5m, leaves: 40m}      # from then on it is drained
      - {name: shared, cores: 8, host: [{at: 5m, for: 1h, cores: 6}]}
    network: 100MiB                  # bytes a second of a checkpoint from node to node

and its jobs may have two more keys::

    image: vae                       # jobs of one image have about the same work
    checkpoint: {size: 50MiB, save: 2s}      # what a move carries, and how long it takes to save
"""

from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.trace.generating import FAMILIES, Recipe, generate
from dlsched.simulation.trace.reading import SIZE_MAX_BYTES, TraceError, parse_trace
from dlsched.simulation.trace.recording import NothingRecorded, Recorded, record
from dlsched.simulation.trace.writing import render_trace

__all__ = [
    "FAMILIES",
    "SIZE_MAX_BYTES",
    "NothingRecorded",
    "Recipe",
    "Recorded",
    "Trace",
    "TraceError",
    "generate",
    "parse_trace",
    "record",
    "render_trace",
]

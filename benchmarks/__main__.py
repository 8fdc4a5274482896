"""The door to all benches: `python -m benchmarks list`, `python -m benchmarks run NAME ...`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Bench:
    """One bench: where it is, and what to know before it is run."""

    module: str
    """Imported when it is run: its `main`, or the function behind a colon, takes the options."""
    group: str
    takes: str
    """Roughly, on two cores."""
    engine: str
    """Whether it needs a Docker Engine that answers."""
    shows: str

    def run(self, arguments: list[str]) -> int:
        """Its exit code."""
        name, _, function = self.module.partition(":")
        return int(getattr(import_module(name), function or "main")(arguments))


BENCHES = {
    "demo": Bench(
        "benchmarks.real.demo",
        "real",
        "3 min",
        "yes",
        "two services beside two busy neighbours, before and after they are adopted (make demo)",
    ),
    "demo-cluster": Bench(
        "benchmarks.real.cluster_demo",
        "real",
        "6 min",
        "its own",
        "trainings on three hosts, one killed and one drained meanwhile (make demo-cluster)",
    ),
    "adaptive-real": Bench(
        "benchmarks.real.adaptive_real",
        "real",
        "25 min",
        "yes",
        "adaptive on services beside plain Docker, DQoES and proportional control",
    ),
    "open-loop-real": Bench(
        "benchmarks.real.http_services",
        "real",
        "20 min",
        "yes",
        "HTTP services under Poisson clients beside a hopeless one, and beside trainings",
    ),
    "threads": Bench(
        "benchmarks.real.threads",
        "real",
        "25 min",
        "yes",
        "libraries with pools of threads in own jobs: throughput, of that with the best number",
    ),
    "bottleneck": Bench(
        "benchmarks.real.bottleneck",
        "real",
        "20 min",
        "yes",
        "services that are slow for a planted cause, and the cause that dlsched names",
    ),
    "spinning": Bench(
        "benchmarks.real.spinning",
        "real",
        "30 min",
        "yes",
        "threads that spin in adopted containers: how soon they are recognised; false alarms",
    ),
    "memory-real": Bench(
        "benchmarks.real.memory",
        "real",
        "25 min",
        "yes",
        "12 mixes of leaks, steps and caches under raised memory limits, beside max from the start",
    ),
    "training": Bench(
        "benchmarks.real.training",
        "real",
        "90 min",
        "yes",
        "every policy on the same trainings, and the papers' headlines",
    ),
    "cluster-real": Bench(
        "benchmarks.real.cluster_real",
        "real",
        "100 min",
        "its own",
        "twenty trainings on three hosts: adaptive and SpeCon beside Swarm's spread",
    ),
    "adaptive-inference": Bench(
        "benchmarks.simulated.adaptive_inference",
        "simulated",
        "20 min",
        "no",
        "adaptive on services beside its peers and a clairvoyant",
    ),
    "open-loop": Bench(
        "benchmarks.simulated.open_loop",
        "simulated",
        "20 min",
        "no",
        "services whose requests are played one by one, beside plain Docker and a clairvoyant",
    ),
    "open-changes": Bench(
        "benchmarks.simulated.open_loop:main_changes",
        "simulated",
        "10 min",
        "no",
        "the same services when something changes",
    ),
    "no-harm": Bench(
        "benchmarks.simulated.no_harm",
        "simulated",
        "15 min",
        "no",
        "3,025 drawn worlds under adaptive and plain Docker: in how many somebody is worse off",
    ),
    "screening": Bench(
        "benchmarks.simulated.screening",
        "simulated",
        "1 min",
        "no",
        "a small set of worlds that feels what adaptive does; publishes nothing",
    ),
    "adaptive-training": Bench(
        "benchmarks.simulated.adaptive_training",
        "simulated",
        "20 min",
        "no",
        "adaptive on trainings beside its peers and a clairvoyant",
    ),
    "cluster-simulated": Bench(
        "benchmarks.simulated.cluster",
        "simulated",
        "30 min",
        "no",
        "fifty trainings on four nodes: placement and moves beside Swarm's spread",
    ),
    "verdicts": Bench(
        "benchmarks.simulated.verdicts",
        "simulated",
        "10 min",
        "no",
        "how often what adaptive says of a training's tiers held",
    ),
    "mixed": Bench(
        "benchmarks.simulated.mixed",
        "simulated",
        "10 min",
        "no",
        "services beside trainings on one node",
    ),
    "memory": Bench(
        "benchmarks.simulated.memory",
        "simulated",
        "1 min",
        "no",
        "720 drawn loads and 100 mixes of memory: alarms, and limits that are raised",
    ),
    "sim-vs-real": Bench(
        "benchmarks.simulated.sim_vs_real",
        "simulated",
        "5 min",
        "no",
        "kept runs of training, simulated: what the simulator is worth",
    ),
    "loop": Bench(
        "benchmarks.cost",
        "cost",
        "5 min",
        "no",
        "what a cycle costs with 10, 100 and 1,000 jobs, phase by phase",
    ),
    "loop-real": Bench(
        "benchmarks.cost:main_real",
        "cost",
        "15 min",
        "yes",
        "what the loop costs, with 100 containers too",
    ),
    "gpu-pacing": Bench(
        "benchmarks.gpu.pacing",
        "gpu",
        "5 min",
        "no",
        "whether jobs keep to their shares of a stand-in for a GPU",
    ),
    "gpu-placement": Bench(
        "benchmarks.gpu.placement",
        "gpu",
        "5 min",
        "no",
        "what choosing GPUs for 1,000 jobs costs, and what the choice is worth",
    ),
    "gpu-move": Bench(
        "benchmarks.gpu.move",
        "gpu",
        "20 min",
        "yes",
        "what a move to another GPU loses, and how long it takes",
    ),
    "gpu-truth": Bench(
        "benchmarks.gpu.truth",
        "gpu",
        "5 min",
        "no",
        "what dlsched assumes of a GPU against the hardware, in seven parts (make gpu-truth)",
    ),
    "torture": Bench(
        "benchmarks.robustness.torture",
        "robustness",
        "45 min",
        "yes",
        "kill -9 at every point where the agent changes something",
    ),
    "cluster-moves": Bench(
        "benchmarks.robustness.cluster_moves",
        "robustness",
        "20 min",
        "no",
        "moves between two real hosts while daemons, controller and network break",
    ),
    "cluster-torture": Bench(
        "benchmarks.robustness.cluster_torture",
        "robustness",
        "3 h",
        "no",
        "kill -9 at each step of a move between real hosts; managers cut off",
    ),
    "mutants": Bench(
        "benchmarks.robustness.mutants",
        "robustness",
        "1 h",
        "no",
        "which of 300 small faults in the code the tests miss (--before COMMIT: at both)",
    ),
    "fuzz": Bench(
        "benchmarks.robustness.fuzz",
        "robustness",
        "15 min",
        "no",
        "a million inputs for each reader of what strangers write",
    ),
    "readings": Bench(
        "benchmarks.robustness.readings",
        "robustness",
        "10 min",
        "no",
        "100,000 inputs of known truth for each reader: right, an interval, or refused",
    ),
    "soak": Bench(
        "benchmarks.robustness.soak",
        "robustness",
        "25 min",
        "its own",
        "that nothing grows in half an hour of churn and in a simulated month",
    ),
    "wire": Bench(
        "benchmarks.wire.bench",
        "wire",
        "60 min",
        "no",
        "response times at sockets beside what clients saw, and their cost",
    ),
    "first-minute": Bench(
        "benchmarks.wire.first_minute",
        "wire",
        "15 min",
        "yes",
        "unknown services of seven kinds from docker run to their target, by two commands",
    ),
    "bench": Bench(
        "benchmarks.publish.bench",
        "publish",
        "6 h",
        "yes",
        "all that README and docs quote of policies and of their cost (make bench)",
    ),
    "readme": Bench(
        "benchmarks.publish.readme",
        "publish",
        "1 s",
        "no",
        "nothing new: writes README's table and its sentence on GPUs from the result files",
    ),
}
"""By the name that is typed; group after group, as `list` shows them."""


def table() -> str:
    """Every bench, a line each."""
    rows = [("NAME", "GROUP", "TAKES", "ENGINE", "SHOWS")]
    rows += [(name, b.group, b.takes, b.engine, b.shows) for name, b in BENCHES.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="All benches. `python -m tools.engine run -- COMMAND` sees to an engine.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="each bench: what it shows, how long it takes")
    run = commands.add_parser("run", help="one bench, with its own options (--help tells them)")
    run.add_argument("name", choices=BENCHES, metavar="NAME", help="as `list` prints it")
    run.add_argument("options", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        print(table())
        return 0
    sys.argv[0] = f"{parser.prog} run {chosen.name}"  # its help and its errors begin with that
    return BENCHES[chosen.name].run(chosen.options)


if __name__ == "__main__":
    sys.exit(main())

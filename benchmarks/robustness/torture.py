"""`python -m benchmarks run torture`: kill -9 at every point where the agent changes something.

Each act is played once to list its points, then once for each point and phase, with a death there
and another agent after it; and once for each request with its answer lost, and late. Prints the
table and writes `results/torture.json`; exit code 1 when something was lost.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.options import end_on_terminate, options
from benchmarks.places import ROOT
from benchmarks.publish import results
from tests.torture.acts import Act, acts
from tests.torture.play import Run, fault, points_of, stage
from tests.torture.points import Phase, Point
from tools.base_image import ensure_base

POLICIES = ("fair", "dqoes")
AT_ONCE = 2
"""Acts that are played together: a run mostly waits."""
OF_DQOES = (
    "second arrives, first shrinks",
    "container made anew",
    "foreign container adopted",
    "agent stops, limits are given back",
)
"""What differs under a policy that does not hold the sum of ceilings within the capacity."""

TITLE = "kill -9 at every point, before, inside and after it; each answer lost, and late"
KEPT = ROOT / ".build" / "torture"
"""Where the logs of agents that lost something are kept."""


def torture(policy: str, act_name: str) -> list[Run]:
    """All of an act. Where it fails without a death, that is its one run."""
    try:
        points = list_points(policy, act_name)
    except AssertionError as error:
        nowhere = Point("without a death", "", 1)
        run = Run(act_name, policy, nowhere, "before", False, (str(error),), 0.0)
        tell(run)
        return [run]
    chosen = [(point, phase) for point in points for phase in (*point.deaths, *point.delays)]
    runs = play_points(policy, act_name, chosen)
    print(f"{policy}, {act_name}: {len(points)} points, {len(runs)} runs", flush=True)
    return runs


def _act(name: str) -> Act:
    return next(act for act in acts() if act.name == name)


def play_points(policy: str, act_name: str, chosen: Sequence[tuple[Point, Phase]]) -> list[Run]:
    """A run for each; after one that lost something the next begins in a new world."""
    act = _act(act_name)
    runs: list[Run] = []
    left = list(chosen)
    while left:
        with stage(policy) as world:
            while left:
                runs.append(fault(world, act, *left.pop(0)))
                tell(runs[-1])
                if runs[-1].wrong:
                    KEPT.mkdir(parents=True, exist_ok=True)
                    shutil.copy(world.agent.log, KEPT / f"lost-{world.session.instance}.log")
                    break
    return runs


def row(policy: str, act: str, runs: Sequence[Run]) -> dict[str, object]:
    """How often the agent died in that act, and what was lost."""
    reached = [run for run in runs if run.reached]
    astray = sum(run.phase in run.point.delays for run in reached)
    lost = sorted({wrong for run in runs for wrong in run.wrong})
    return {
        "policy": policy,
        "act": act,
        "points": len({(run.policy, run.act, run.point) for run in runs}),
        "deaths": len(reached) - astray,
        "answers lost or late": astray,
        "survived": sum(not run.wrong for run in reached),
        "not reached": len(runs) - len(reached),
        "lost": "; ".join(lost) or "nothing",
    }


def by_act(runs: Sequence[Run]) -> list[dict[str, object]]:
    """One row an act, and one for all."""
    groups = results.grouped(runs, lambda run: (run.policy, run.act))
    return [*(row(*act, mine) for act, mine in groups.items()), row("all", "all", runs)]


def plays() -> list[tuple[str, str]]:
    """Every act under each policy that it is played under."""
    return [
        (policy, act.name)
        for policy in POLICIES
        for act in acts()
        if policy == "fair" or act.name in OF_DQOES
    ]


def list_points(policy: str, act_name: str) -> list[Point]:
    """The points of an act, in a world of its own. Raises AssertionError where the play fails."""
    act = _act(act_name)
    with stage(policy) as world:
        points = points_of(world, act)
        if act.kind == "lives" and not world.ceilings.samples:
            raise AssertionError(f"{act_name}: nobody looked at the sum of ceilings")
        return points


@contextmanager
def workers(at_once: int) -> Iterator[Callable[..., list[Any]]]:
    """Processes that play together; what is handed out maps a function over tuples of arguments.

    A run mostly waits: for the engine, for a file to stand still, for the next cycle.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, spawn, initializer=_work) as pool:
        try:
            yield lambda what, chosen: list(
                pool.map(what, *zip(*chosen, strict=True)) if chosen else ()
            )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        act=("", "only acts whose name holds this; not saved"),
    )
    end_on_terminate()
    ensure_base(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    chosen_acts = [one for one in plays() if chosen.act in one[1]]
    with workers(AT_ONCE) as play:
        runs = [run for found in play(torture, chosen_acts) for run in found]
    table, facts = by_act(runs), results.engine_facts()
    results.finish("torture", facts, [], table, {TITLE: table}, whole=not chosen.act)
    return 1 if any(run.wrong for run in runs) else 0


def _work() -> None:
    os.setsid()  # to the kernel's scheduler each is one of its own, and none waits for the others
    end_on_terminate()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot tell its workers to end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def tell(run: Run) -> None:
    """A line on a run that is not as it should be."""
    told = f"{run.policy}, {run.act}: {run.phase} {run.point}"
    if run.wrong:
        print(f"LOST {told}: {'; '.join(run.wrong)}", flush=True)
    elif not run.reached:
        print(f"not reached: {told}", flush=True)

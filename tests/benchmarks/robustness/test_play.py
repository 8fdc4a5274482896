"""An agent that dies at a drawn tenth of all points of all acts, and once at least in each kind of
action that needs an engine; at all of them by `make torture`."""

from __future__ import annotations

import sys
from itertools import groupby

import pytest

from benchmarks.robustness.torture import list_points, play_points, plays, workers
from tests.torture.draw import SEED, Named, drawn, seed

pytestmark = [pytest.mark.engine, pytest.mark.slow]

AT_ONCE = 4
"""A run mostly waits."""

NOT_REACHED_RATIO = 0.1
"""Of the drawn points, how many may not be come to again: threads do not always come to theirs in
the same order, and some points are there only when two of them meet."""


def test_a_death_at_a_drawn_tenth_of_all_points_loses_nothing(
    docker_host: str,
    base_image: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("DOCKER_HOST", docker_host)

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{line}\n")

    by = seed()
    say(f"\nto draw the same again: {SEED}={by}")
    with workers(AT_ONCE) as play:
        acts = plays()
        listed = play(list_points, acts)
        assert all(listed), [act for act, points in zip(acts, listed, strict=True) if not points]
        points = [
            Named(*act, point) for act, found in zip(acts, listed, strict=True) for point in found
        ]
        chosen = sorted(drawn(points, by), key=lambda one: (one[0].policy, one[0].act))
        groups = [
            (*act, [(one.point, phase) for one, phase in group])
            for act, group in groupby(chosen, key=lambda one: (one[0].policy, one[0].act))
        ]
        groups.sort(key=lambda group: -len(group[2]))  # the longest first
        runs = [run for done in play(play_points, groups) for run in done]
    say(f"{len(points)} points, of which {len(runs)} are drawn")
    lost = [
        f"{run.act}, {run.phase} {run.point}: {'; '.join(run.wrong)}" for run in runs if run.wrong
    ]
    assert not lost, "\n".join([f"{SEED}={by}", *lost])
    assert len(runs) == len(chosen)
    missed = [f"{run.act}, {run.phase} {run.point}" for run in runs if not run.reached]
    say(f"not reached: {'; '.join(missed) or 'none'}")
    assert len(missed) <= NOT_REACHED_RATIO * len(runs)

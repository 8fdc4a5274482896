"""The demo's scene of real traffic: web services that nobody waits for, one of them hopeless.

Owns which services, and their table. Requests come by chance (Poisson), whether or not the last one
is answered, and a training wants every core. The default policy beside plain Docker, on the same
arrivals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.table import Table

from benchmarks.real.comparison import Watcher
from benchmarks.real.http_services import (
    MODELS,
    POLICIES,
    Measured,
    Scenario,
    Service,
    begin,
    harmed,
    measure,
    real_table,
)
from tools.session import Session

SETTLE_S, JUDGE_S = 20.0, 60.0

SCENE = Scenario(
    "real traffic",
    (
        # 15 a second: 900 requests, so that a p95 is more than chance; half of a core together.
        *(Service(model, model, 15.0, 0.025) for model in MODELS),
        Service("hopeless", "resnet", 15.0, 0.001),
    ),
    trainings=("cnn",),
)


def play(session: Session, seed: int, watcher: Watcher) -> list[Measured]:
    """The scene under plain Docker, then under the default policy; takes about three minutes."""
    watcher.stage(
        f"real traffic: {len(SCENE.services)} HTTP services under Poisson clients, one with a "
        "target that nothing can meet, beside a training"
    )
    begin(session, SCENE)
    found = []
    for policy in POLICIES:
        watcher.stage(f"policy {policy}, {SETTLE_S:g} s to settle and {JUDGE_S:g} s judged")
        found += measure(
            session,
            SCENE,
            policy,
            seed,
            settle_s=SETTLE_S,
            judge_s=JUDGE_S,
            look=partial(watcher.progress, f"traffic under {policy}"),
        )
    return found


def table(found: Sequence[Measured]) -> Table:
    """What each service's client saw under both, and what that cost."""
    plain, own = ([row for row in found if row.policy == policy] for policy in POLICIES)
    slower = harmed(real_table(found))
    failed = sum(row.failed for row in found)
    shown = Table(
        title=f"real traffic, ms: plain Docker and {POLICIES[1]} (seed {found[0].run})",
        title_justify="left",
        caption=f"slower than under plain Docker by more than 10 % + 2 ms: "
        f"{', '.join(slower) or 'none'} of {len(plain)}; requests that failed: {failed}; "
        f"CPU of the training meanwhile: {plain[0].trainings_core_s:g} s and "
        f"{own[0].trainings_core_s:g} s; updates a minute: {plain[0].updates_per_min:g} and "
        f"{own[0].updates_per_min:g}",
        caption_justify="left",
    )
    both = [f"{what}\n{name}" for name in ("plain", POLICIES[1]) for what in ("mean", "p95")]
    for column in ("service", "target", "requests", *both):
        shown.add_column(column, justify="left" if column == "service" else "right")
    for before, after in zip(plain, own, strict=True):
        counts = dict.fromkeys((before.requests, after.requests))
        shown.add_row(
            before.service,
            f"{before.target_ms:g}",
            " / ".join(map(str, counts)),
            *(_ms(row, what) for row in (before, after) for what in ("mean_ms", "p95_ms")),
        )
    return shown


def _ms(row: Measured, what: str) -> str:
    value = getattr(row, what)
    return "never" if value is None else f"{value:.1f}"

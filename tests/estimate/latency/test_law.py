"""The latency model, against numbers worked out by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from dlsched.estimate.latency.lag import Lag
from dlsched.estimate.latency.law import Clients, LatencyModel, ServiceSample, remembered_requests
from dlsched.estimate.latency.update import first, updated
from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch


def look(
    count: int,
    mean_s: float,
    cpu_core_s: float | None,
    *,
    ceiling: float | None = 0.5,
    throttled: bool = True,
    free: bool = False,
    one_ceiling: bool = True,
    in_flight: int = 1,
    elapsed_s: float = 1.0,
    sketch: LatencySketch | None = None,
) -> ServiceSample:
    """One second in which requests took that long in the mean, without a bucket."""
    return ServiceSample(
        sketch or LatencySketch(count, count * mean_s),
        cpu_core_s,
        elapsed_s,
        ceiling,
        throttled,
        free,
        one_ceiling,
        in_flight,
    )


def known(**changes: object) -> LatencyModel:
    """Work .02 core-s a request, no wait, one client; believed in firmly."""
    model = LatencyModel(
        work_core_s=0.02,
        requests=1000.0,
        settled=1000.0,
        spread=0.1,
        in_service_s=5.0,
        span_s=5.0,
        clients=Clients(always_one=1.0),
        measured_s=0.04,
    )
    return replace(model, **changes)  # type: ignore[arg-type]


def after(model: LatencyModel, seen: ServiceSample, *, times: int) -> LatencyModel:
    """The model after so many seconds alike."""
    for _ in range(times):
        model = updated(model, seen, None)
    return model


def test_the_first_look_tells_work_by_cpu_accounting_and_nothing_of_the_law() -> None:
    model = first(look(20, 0.05, 0.4))
    assert model.work_core_s == pytest.approx(0.02)
    assert model.fixed_s == 0.0
    assert model.widest_cores is None


@pytest.mark.parametrize("cpu_core_s", [None, 0.0])
def test_a_look_without_cpu_time_tells_no_work(cpu_core_s: float | None) -> None:
    assert first(look(20, 0.05, cpu_core_s)) is None


def test_the_law_and_its_inverse() -> None:
    # a = 10 ms, w = .02: under .5 cores 10 + 40 = 50 ms; 50 ms needs .5 cores.
    model = known(fixed_s=0.01)
    assert model.mean_s(0.5) == pytest.approx(0.05)
    assert model.ceiling_for(0.05, None) == pytest.approx(0.5)
    # Busy 40 of 50 ms on half a core: .4 cores in the mean.
    assert model.use_at(0.05, None) == pytest.approx(0.4)
    assert model.ceiling_for(0.0101, None) is None


def test_no_more_is_used_than_the_width() -> None:
    model = known(widest_cores=1.0)
    assert model.mean_s(4.0) == model.mean_s(None) == pytest.approx(0.02)
    assert known().mean_s(None) is None


def test_work_is_a_ratio_of_sums() -> None:
    # 100 requests of .02 known, 100 of .03 seen: 1e3 known ones weigh ten times as much.
    seen = look(100, 0.06, 3.0, elapsed_s=6.0)
    model = updated(known(spread=0.7), seen, None)
    assert model.work_core_s == pytest.approx((1000 * 0.02 + 100 * 0.03) / 1100)


def test_waiting_is_what_cpu_does_not_explain_where_the_ceiling_binds() -> None:
    # Under half a core 40 ms of CPU; 41 ms measured: 1 ms of wait, half believed at once.
    sure = known(settled=20.0, spread=0.001)
    model = updated(sure, look(20, 0.041, 0.4), None)
    assert model.fixed_s == pytest.approx(0.0005, rel=0.01)


def test_a_wait_is_believed_in_sooner_where_means_vary_little() -> None:
    quiet, loud = (known(settled=0.0, spread=spread) for spread in (0.1, 1.0))
    quiet, loud = (
        updated(model, look(5, 0.05, 0.1, elapsed_s=0.25), None) for model in (quiet, loud)
    )
    # 4 requests stand against those five, and 20.
    assert quiet.fixed_s == pytest.approx(0.01 * 5 / 9, rel=0.02)
    assert loud.fixed_s == pytest.approx(0.01 * 5 / 25, rel=0.02)


def test_the_wait_follows_measurements_without_end() -> None:
    model = after(known(), look(20, 0.044, 0.4), times=2000)
    assert model.fixed_s == pytest.approx(0.004, rel=0.01)
    assert model.settled < 2000


def test_others_make_a_service_slower_never_faster() -> None:
    slower = look(20, 0.08, 0.4, throttled=False)
    assert updated(known(), slower, None).fixed_s == 0.0
    faster = look(20, 0.04, 0.4, throttled=False)
    model = after(known(fixed_s=0.03), faster, times=3)
    assert model.fixed_s == pytest.approx(0.0, abs=0.002)


def test_a_mixed_second_tells_nothing_of_the_law() -> None:
    mixed = look(20, 0.01, 0.4, throttled=False, one_ceiling=False)
    model = updated(known(), mixed, None)
    assert (model.fixed_s, model.widest_cores, model.law_drift) == (0.0, None, 0.0)


def test_width_shows_where_nothing_holds_it_back() -> None:
    # No ceiling, always busy, .8 cores used: without a wait that is its width.
    seen = look(40, 0.025, 0.8, ceiling=None, throttled=False, free=True)
    assert updated(known(), seen, None).widest_cores == pytest.approx(0.8)
    # A wait of 5 of 25 ms: the 20 ms on CPU ran at one core.
    assert updated(known(fixed_s=0.005), seen, None).widest_cores == pytest.approx(1.0)


def test_a_ceiling_that_binds_at_the_width_proves_it_wider() -> None:
    model = updated(known(widest_cores=0.5), look(25, 0.04, 0.5), None)
    assert model.widest_cores == pytest.approx(0.625)


def test_twice_the_work_is_noticed_at_once_and_the_wait_is_kept() -> None:
    model = updated(known(fixed_s=0.01), look(11, 0.09, 0.44), None)
    assert model.work_core_s == pytest.approx(0.04)
    assert model.loads == 1
    assert model.fixed_s == pytest.approx(0.01, abs=0.002)


def test_a_little_more_work_is_noticed_after_some_looks() -> None:
    model, looks = known(), 0
    while not model.loads and looks < 50:
        model = updated(model, look(20, 0.046, 0.46), None)
        looks += 1
    assert 2 <= looks <= 6
    assert model.work_core_s == pytest.approx(0.023, rel=0.02)


def test_noise_is_no_change() -> None:
    chance, model = random.Random(1), known(spread=0.2)
    for _ in range(1000):
        latency_s = 0.04 * chance.gauss(1.0, 0.2 / math.sqrt(20))
        seen = look(20, latency_s, 10 * latency_s, elapsed_s=20 * latency_s)
        model = updated(model, seen, None)
    assert model.loads == 0
    assert model.work_core_s == pytest.approx(0.02, rel=0.02)
    assert model.fixed_s == pytest.approx(0.0, abs=0.001)


def test_one_at_a_time_cannot_take_half_of_the_time() -> None:
    # 25 requests a second, one after the other, take 40 ms each; it claims 20 ms.
    model = after(known(), look(25, 0.02, 0.5), times=30)
    assert model.claim_ratio == pytest.approx(0.5, rel=0.02)
    assert model.measured_s == pytest.approx(0.04, rel=0.02)
    assert model.fixed_s == pytest.approx(0.0, abs=0.002)
    assert model.rate_per_s == pytest.approx(25.0, rel=0.05)


def test_requests_that_share_a_ceiling_share_its_cores() -> None:
    # Four in flight, 25 a second: 160 ms each by Little's law; the w of the law is 4 x .02.
    model = known(clients=Clients(), in_service_s=20.0, span_s=5.0, measured_s=0.16)
    assert model.law_core_s == pytest.approx(0.08)
    assert model.mean_s(0.5) == pytest.approx(0.16)
    assert not model.is_open


def test_an_open_loop_uses_what_its_requests_need_however_fast_it_is() -> None:
    # Ten requests a second of 40 ms: .4 in service; 10 x .02 = .2 cores at any target.
    model = known(clients=Clients(), in_service_s=2.0, span_s=5.0, measured_s=0.04)
    assert model.is_open
    assert model.use_at(0.03, None) == model.use_at(0.3, None) == pytest.approx(0.2)


def test_the_factor_of_a_quantile_is_a_log_normals_at_first() -> None:
    # exp(1.645 x .5 - .125)
    assert known(spread=0.5).factor(0.95) == pytest.approx(math.exp(0.82243 - 0.125), rel=1e-4)
    assert known(spread=0.5).factor(None) == 1.0


def test_the_tail_is_learned_also_where_it_is_no_log_normals() -> None:
    """One request in ten takes five times as long: p95 is 5 / 1.4 of the mean."""
    chance, model = random.Random(2), known(spread=0.5, settled=15.0)
    for _ in range(3000):
        latencies = [0.2 if chance.random() < 0.1 else 0.04 for _ in range(20)]
        sketch = from_latencies(latencies)
        seen = look(20, 0.0, sketch.sum_s * 0.5, elapsed_s=sketch.sum_s, sketch=sketch)
        model = updated(model, seen, 0.95)
    p95_s = model.factor(0.95) * (model.mean_s(0.5) or 0.0)
    assert p95_s == pytest.approx(0.2, rel=0.1)


def test_the_error_shrinks_with_what_is_known() -> None:
    # cv .1 and two requests: .1 / sqrt(2), as long as hardly any fade.
    assert known(requests=2.0).error_ratio(None) == pytest.approx(0.1 / math.sqrt(2), rel=0.02)
    # However many there were, those that are remembered leave .008.
    assert known(requests=1e6).error_ratio(None) == pytest.approx(0.008, rel=0.02)
    assert known().error_ratio(0.95) > known(tail_requests=5000.0).error_ratio(0.95)


# ---------------------------------------------------------------------- reports and time


def test_the_first_line_was_perhaps_begun_late() -> None:
    # .4 core-s in a second, of which ten requests of 50 ms tell one half.
    model = first(look(10, 0.05, 0.4))
    assert model.work_core_s == pytest.approx(0.02)
    assert model.in_service == pytest.approx(1.0)
    # Who has none in flight waited for requests; and a tenth is no late beginning.
    for seen in (look(10, 0.05, 0.4, in_flight=0), look(2, 0.05, 0.08)):
        model = first(seen)
        assert model.work_core_s == pytest.approx(0.04)


def cut(lag_s: float) -> LatencyModel:
    """Used .8 cores, was then given .2; what it tells lies so far behind."""
    model = known()
    seconds = [(0.8, 0.8), (0.8, 0.8), (0.8, 0.2), (0.2, 0.2), (0.2, 0.2)]
    for before, now in seconds:
        told_core_s = lag_s * before + (1.0 - lag_s) * now
        requests = round(told_core_s / 0.02)
        seen = look(requests, 1.0 / requests, now, ceiling=None, throttled=False, one_ceiling=False)
        model = updated(model, seen, None)
    return model


@pytest.mark.parametrize("lag_s", [0.0, 0.3, 0.6, 1.0])
def test_a_cut_is_no_other_load_however_far_lines_lie_behind(lag_s: float) -> None:
    model = cut(lag_s)
    assert model.loads == 0
    assert model.work_core_s == pytest.approx(0.02, rel=0.05)
    assert model.lag.seconds == pytest.approx(lag_s, abs=0.1)


@pytest.mark.parametrize(("requests", "elapsed_s"), [(10, 2.0), (20, 0.5)])
def test_a_line_that_comes_late_is_no_other_load(requests: int, elapsed_s: float) -> None:
    """Ten requests in two seconds, or twenty in half a one, that took a second together."""
    model = known(lag=Lag(0.1, 100.0, 0.5))
    late = look(requests, 1.0 / requests, 0.5 * elapsed_s, elapsed_s=elapsed_s)
    model = updated(model, late, None)
    assert (model.loads, model.work_core_s, model.work_drift) == (0, 0.02, 0.0)
    assert model.lag == Lag()  # it lies otherwise behind now


def test_a_host_that_becomes_faster_is_followed_within_some_dozens_of_requests() -> None:
    model = known(spread=1.0)  # as under a quota's periods
    model = after(model, look(25, 0.04, 0.5), times=30)
    assert model.noise == 0.02
    assert remembered_requests(model.noise) == 40.0
    model = after(model, look(27, 0.037, 0.5), times=10)
    assert model.mean_s(0.5) == pytest.approx(0.037, rel=0.01)


def test_where_means_vary_much_much_is_remembered() -> None:
    chance, model = random.Random(3), known(spread=1.0)
    for _ in range(60):
        latency_s = 0.04 * math.exp(chance.gauss(0.0, 1.0 / math.sqrt(12)))
        seen = look(12, latency_s, 0.24, elapsed_s=12 * latency_s)
        model = updated(model, seen, None)
    assert model.noise == pytest.approx(1.0, rel=0.3)
    assert remembered_requests(model.noise) == 1500.0


def test_requests_side_by_side_tell_nothing_of_what_means_vary_by() -> None:
    model = after(known(clients=Clients()), look(12, 0.04, 0.24, in_flight=4), times=30)
    assert model.noise == model.cv


@pytest.mark.parametrize("latency_s", [0.56, 0.8, 1.3, 1.6])
def test_of_answers_of_about_a_second_none_counts_as_a_line_amiss(latency_s: float) -> None:
    """One or two requests a look: which of them a look holds is chance."""
    model, told, looked_s, now_s = None, 0, 0.0, 0.0
    for second in range(1, 200):
        ended = int((second - 0.5) / latency_s)
        if ended == told:
            continue
        now_s, count, told = float(second), ended - told, ended
        seen = look(
            count, latency_s, 0.5 * (now_s - looked_s), elapsed_s=now_s - looked_s, ceiling=0.5
        )
        model, looked_s = first(seen) if model is None else updated(model, seen, None), now_s
    assert model.work_core_s == pytest.approx(0.5 * latency_s, rel=0.05)


def test_a_look_of_which_little_is_sure_makes_older_ones_fade_little() -> None:
    model = known(work_core_s=0.001, requests=48.0, lag=Lag(used_cores=0.02))
    more = look(520, 0.001, 1.0, ceiling=None, throttled=False, one_ceiling=False)
    assert updated(model, more, None).requests > 35.0


def test_after_a_gap_it_is_unknown_what_was_used_before() -> None:
    model = known(work_core_s=0.01, lag=Lag(0.5, 500.0, 2.0))
    gap = look(50, 0.02, None, elapsed_s=10.0, one_ceiling=False)
    model = updated(model, gap, None)
    assert model.lag == Lag(0.5, 500.0, None)
    assert updated(model, look(50, 0.02, 0.5), None).work_core_s == pytest.approx(0.01)


def test_a_closed_loop_stays_one_through_a_report_between_two_requests() -> None:
    model = known()
    model = updated(model, look(25, 0.04, 0.5), None)
    assert model.is_one_client
    for in_flight, still in ((0, True), (1, True), (0, True), (0, True), (0, False), (1, False)):
        model = updated(model, look(25, 0.04, 0.5, in_flight=in_flight), None)
        assert model.is_one_client is still, (in_flight, model.clients.always_one)


def test_a_camera_whose_frame_comes_with_each_report_is_no_closed_loop() -> None:
    seen = look(30, 0.005, 0.15, ceiling=None, throttled=False, free=True)
    model = after(first(seen), seen, times=20)
    assert model.clients.always_one > 0.97
    assert not model.is_one_client
    assert model.claim_ratio == 1.0


def reported(clients: Clients, *in_flight: int) -> Clients:
    """The evidence after reports, one a second under a binding ceiling, of so many in flight."""
    for count in in_flight:
        clients = clients.after(count, 1.0, throttled=True, in_service=1.0)
    return clients


LOOP = reported(Clients(), *[1] * 60)


def test_a_health_check_beside_a_request_does_not_end_a_closed_loop() -> None:
    assert LOOP.are_one
    assert reported(LOOP, 2, 1).are_one


def test_a_camera_that_had_a_queue_is_no_closed_loop_for_ten_minutes() -> None:
    camera = reported(LOOP, 3, 3)
    assert not camera.are_one
    assert not reported(camera, *[1] * 60).are_one
    assert not reported(camera, *[1] * 600).are_one
    assert reported(camera, *[1] * 1200).are_one, "one client may be left of several"

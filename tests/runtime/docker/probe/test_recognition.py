"""Stacks by image, page and log: what is recognised, in which order, and what is not."""

from __future__ import annotations

from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.config.metrics.loading import package_presets, parse_presets
from dlsched.config.metrics.resolving import Preset, Presets
from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch, Report
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.docker.probe import ProbedPort, recognition
from dlsched.runtime.docker.probe.recognition import (
    DROPPED,
    METRICS_PATHS,
    OTHER_PROTOCOLS,
    PORTS_MAX,
    SOCKETS_MAX,
    answers,
    busiest,
    by_port,
    latency_reading,
    ports_to_ask,
    printed,
    speakers,
    stacks_of,
    timed,
    times_of,
)
from dlsched.runtime.progress.listening import ListeningSocket
from dlsched.runtime.wire.traffic import PortTraffic

STACKS = stacks_of(package_presets())

VLLM_PAGE = b"""# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="1.0",model_name="m"} 3
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"} 4
vllm:e2e_request_latency_seconds_count{model_name="m"} 4
vllm:e2e_request_latency_seconds_sum{model_name="m"} 4.5
vllm:time_to_first_token_seconds_count{model_name="m"} 4
"""


def test_a_page_names_its_stack_before_what_else_can_be_read_of_it() -> None:
    found = speakers(VLLM_PAGE, "vllm/vllm-openai:v0.12", 8000, STACKS)
    assert [one.preset for one in found][:1] == ["vllm"]
    assert "vllm-ttft" in [one.preset for one in found]
    assert speakers(b"# TYPE go_gc_duration_seconds summary\n", "x", 9090, STACKS) == ()


def test_the_image_decides_between_stacks_with_the_same_metric() -> None:
    mine = b'a: {port: 9000, name: m}\nb: {image: "acme/b*", port: 9000, name: m}\n'
    _, given = parse_presets(mine, "mine.yaml")
    stacks = stacks_of(Presets({name: Preset(keys, "") for name, keys in given.items()}))
    page = b"m_count 3\nm_sum 1\n"
    assert [one.preset for one in speakers(page, "acme/b:1", 9000, stacks)] == ["b", "a"]
    assert [one.preset for one in speakers(page, "acme/x:1", 9000, stacks)] == ["a", "b"]
    # A name that only begins alike is another metric.
    assert speakers(b"m_counted 3\nmm_count 1\n", "acme/b:1", 9000, stacks) == ()


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("vllm/vllm-openai:v0.12", True),
        ("docker.io/vllm/vllm-openai@sha256:00", True),
        ("vllm/vllm", False),
        ("evil/vllm/vllm-openai", False),
    ],
)
def test_images_go_by_their_globs(image: str, known: bool) -> None:
    (vllm,) = [one for one in STACKS if one.preset == "vllm"]
    assert vllm.made_from(image) is known


def test_ports_are_those_of_the_image_then_those_exposed() -> None:
    asked = dict(ports_to_ask(None, [9999, 80], "vllm/vllm-openai:1", STACKS))
    assert list(asked) == [8000, 80, 9999]
    assert asked[9999] == METRICS_PATHS
    (tfserving,) = [one for one in STACKS if one.preset == "tfserving"]
    asked = dict(ports_to_ask(None, [], "tensorflow/serving:2", STACKS))
    assert asked[8501][0] == tfserving.endpoint.http_path != "/metrics"


def test_without_any_port_those_of_all_presets_are_asked() -> None:
    known = {port for one in STACKS if one.endpoint for port in one.endpoint.ports}
    asked = dict(ports_to_ask(None, [], "acme/asr", STACKS))
    assert 8000 in asked
    assert set(asked) <= known
    assert len(asked) <= PORTS_MAX


def test_servers_of_other_protocols_are_not_asked() -> None:
    assert ports_to_ask(None, [5432], "postgres:17", STACKS) == ()
    assert 5432 in OTHER_PROTOCOLS
    assert [port for port, _ in ports_to_ask(None, [6379, 9121], "redis", STACKS)] == [9121]


def test_ports_asked_are_those_that_listen_likely_ones_first() -> None:
    asked = dict(ports_to_ask([18999, 5432, 30000, 80], [8000, 18999], "lmsysorg/sglang:1", STACKS))
    assert list(asked) == [30000, 80, 18999]
    assert ports_to_ask([], [8000], "vllm/vllm-openai:1", STACKS) == ()


def test_a_port_is_reached_where_it_is_bound() -> None:
    sockets = [
        ListeningSocket(ip_address("::"), 9000, "1"),
        ListeningSocket(ip_address("127.0.0.1"), 80, "2"),
        ListeningSocket(ip_address("10.0.0.2"), 80, "3"),
    ]
    at_80, at_9000 = by_port(sockets)
    assert at_80 == ProbedPort(80, ("127.0.0.1", "10.0.0.2"))
    assert [answers(at_80, address) for address in ("10.0.0.2", "10.0.0.3")] == [True, False]
    assert answers(at_9000, "10.0.0.3")


def test_ports_of_a_container_that_opens_all_are_bounded() -> None:
    everywhere = [ListeningSocket(ip_address("::"), port, "1") for port in range(1, 65536)]
    assert len(by_port(everywhere)) == SOCKETS_MAX


@pytest.mark.parametrize(
    ("quick", "slow", "expected"),
    [
        (20, 0, (0.1, 0.0, 0.95)),
        (18, 2, (0.5, 0.1, 0.95)),
        (10, 0, (0.02, None, None)),  # of so few the mean
    ],
)
def test_a_p95_within_a_bucket_is_read_as_its_bounds(
    quick: int, slow: int, expected: tuple[float | None, ...]
) -> None:
    sketch = LatencySketch(
        count=quick + slow,
        sum_s=0.02 * quick + 0.2 * slow,
        spans=((0.0, 0.1, quick), (0.1, 0.5, slow)) if slow else ((0.0, 0.1, quick),),
    )
    reading = latency_reading(sketch)
    assert reading is not None
    assert (reading.seconds, reading.above_s, reading.quantile) == pytest.approx(expected)


def test_a_p95_that_nothing_bounds_is_read_as_the_mean() -> None:
    sketch = LatencySketch(count=40, sum_s=80.0, spans=((1.0, LONGEST_S, 40),))
    reading = latency_reading(sketch)
    assert reading is not None
    assert (reading.seconds, reading.quantile) == (2.0, None)


def test_lines_of_a_log_are_read_by_who_matches_most() -> None:
    log = b"step 250: train loss 4.1, val loss 4.2\nGET / 3 ms\nstep 500: noise\n"
    found = printed(log, "acme/gpt", STACKS)
    stack, reading = found
    assert (stack.preset, reading.step, reading.metrics) == ("nanogpt", 250, (("val_loss", 4.2),))
    assert (reading.lines, reading.of_lines) == (1, 3)
    assert printed(b"hello\n\n" + b"\xff\x00" * 100 + b"\n", "acme/gpt", STACKS) is None
    assert printed(b"", "acme/gpt", STACKS) is None


def test_only_whole_evaluations_count_where_a_preset_says_so() -> None:
    mine = (
        b"t: {kind: log, metric: acc, when: at == of,"
        b" pattern: '(?P<at>[0-9]+)/(?P<of>[0-9]+) acc (?P<acc>[0-9.]+)'}\n"
    )
    _, given = parse_presets(mine, "mine.yaml")
    stacks = stacks_of(Presets({name: Preset(keys, "") for name, keys in given.items()}))
    found = printed(b"8/48 acc 0.1\n48/48 acc 0.7\n2/48 acc 0.2\n", "x", stacks)
    assert dict(found[1].metrics)["acc"] == 0.7


def test_a_page_without_a_preset_names_its_latencies() -> None:
    page = b"""# TYPE app_request_duration_seconds histogram
# TYPE app_size_bytes histogram
# TYPE rpc_latency_ms summary
# TYPE up gauge
"""
    assert recognition.histograms(page) == ("app_request_duration_seconds", "rpc_latency_ms")
    many = b"".join(b"# TYPE a%d_latency histogram\n" % n for n in range(1000))
    assert len(recognition.histograms(many)) == recognition.HISTOGRAMS_MAX


@pytest.mark.parametrize(
    ("page", "kept"),
    [
        (b"# TYPE a counter\na 1\n", b"# TYPE a counter\n"),
        (b'vllm:time_to_first_token_seconds_count{m="x"} 1\n', None),
        (b'vllm:time_to_first_token_seconds_count{m="x"} 1', b""),  # perhaps cut
        (b"my_latency_seconds_sum 1\nsize_bytes 2\n", b"my_latency_seconds_sum 1\n"),
        (b"<html>metrics are here</html>", b""),
        (b'{"status": "ok"}', b""),
        (b"", b""),
    ],
)
def test_of_a_page_only_what_can_be_read_is_kept(page: bytes, kept: bytes | None) -> None:
    extract = recognition.PageExtract(STACKS)
    for at in range(0, len(page), 7):
        extract.feed(page[at : at + 7])
    assert extract.lines() == (page if kept is None else kept)


def test_an_endless_page_is_kept_within_bounds() -> None:
    extract = recognition.PageExtract(STACKS)
    line = b"my_latency_seconds_sum 1\n" + b"# TYPE x histogram\n"
    for _ in range(200):
        extract.feed(line * 1000)
    extract.feed(b"my_latency_seconds_" + b"x" * 10_000_000)
    assert len(extract.lines()) < 100_000


PRINTED = {
    "nanogpt": "step 250: train loss 1.9673, val loss 2.0700\niter 10: loss 3.2, time 9 ms\n",
    "yolo": (
        "      7/300      6.73G   1.2   1.0   1.1   12   640: 100%|###| 16/16 [00:03<00:00]\n"
        "                   all        722       1444      0.939      0.927      0.64      0.431\n"
    ),
    "hf-trainer": "{'eval_loss': 0.41, 'eval_accuracy': 0.81, 'eval_runtime': 0.3, 'epoch': 0.5}\n",
    "keras": "Epoch 2/25\n1875/1875 [==] - 6s - loss: 0.37 - val_loss: 0.3 - val_accuracy: 0.86\n",
    "timm": "Test: [  48/48]  Time: 0.15 (0.2)  Acc@1:  76.250 ( 74.312)  Acc@5:  93.1 ( 92.2)\n",
    "deit": '{"train_lr": 9.9e-05, "test_loss": 1.8, "test_acc1": 67.59, "epoch": 50}\n',
    "pytorch-mnist": (
        "Train Epoch: 2 [0/60000 (0%)]\tLoss: 2.30\n\n"
        "Test set: Average loss: 0.0485, Accuracy: 9843/10000 (98%)\n\n"
    ),
    "lightning": (
        "Epoch 3: 100%|###| 94/94 [00:03<00:00, 30.1it/s, v_num=0]\r\n"
        "Epoch 4:   0%|   | 0/94 [00:00<?, ?it/s, v_num=0, val_acc=0.981]\r\n"
    ),
    "sb3": (
        "|    ep_rew_mean          | -980        |\n|    total_timesteps      | 4096        |\n"
        "|    ep_rew_mean          | -640        |\n|    total_timesteps      | 6144        |\n"
    ),
    "xgboost": "[5]\tvalidation_0-auc:0.91\tvalidation_1-auc:0.671\n",
    "lightgbm": "[50]\tvalid_0's auc: 0.84\tvalid_1's auc: 0.836\n",
    "lightgbm-cli": "[LightGBM] [Info] Iteration:64, valid_1 auc : 0.8181\n",
    "fairseq": "| epoch 001 | valid | valid_loss 6.43 | valid_ppl 50 | num_updates 21896\n",
    "flax": "I train.py:151] epoch:  1, train_loss: 0.21, test_loss: 0.06, test_accuracy: 98.11\n",
    "ollama": '[GIN] 2024/05/01 - 12:00:01 | 200 |  4.2s |  10.0.0.1 | POST     "/api/generate"\n',
    "llama.cpp": "      total time =    2620.75 ms /   114 tokens\n",
    "gunicorn": '172.17.0.1 "POST /predict HTTP/1.1" 200 23 410250\n',
    "nginx": '172.17.0.1 - - [01/May/2024] "POST /predict HTTP/1.1" 200 23 "-" rt=0.143\n',
}
"""What each prints, in its documented format."""


def test_every_preset_of_a_log_has_lines_here() -> None:
    assert {stack.preset for stack in STACKS if stack.log is not None} == PRINTED.keys()


@pytest.mark.parametrize("preset", PRINTED)
def test_each_log_is_taken_for_its_own_whatever_the_image(preset: str) -> None:
    noise = "INFO: started\nloading weights 100%\nGET /health 200 3 ms\n"
    found = printed((noise + PRINTED[preset]).encode(), "acme/anything:1", STACKS)
    stack, reading = found
    assert stack.preset == preset
    if reading.kind == "training":
        assert reading.metrics[0][0] == (stack.log.metric or reading.metrics[0][0])
    else:
        assert reading.requests == 1


# ---------------------------------------------------------------------- sockets


def traffic_of(latency: LatencySketch, first: LatencySketch, **others: Any) -> PortTraffic:
    return PortTraffic(
        8000,
        (Report(0.0, latency=latency),),
        (Report(0.0, latency=first),),
        arrivals=latency.count,
        **others,
    )


def test_times_at_a_socket_are_those_of_its_answers() -> None:
    whole = from_latencies([0.01] * 90 + [0.05] * 10, errors=2)
    times = times_of(traffic_of(whole, from_latencies([0.004] * 100)), 5.0)
    assert (times.requests, times.answers, times.failed, times.over_s) == (100, 100, 2, 5.0)
    assert times.p50_s == pytest.approx(0.01, rel=0.01)
    assert times.p95_s == pytest.approx(0.05, rel=0.01)
    assert times.first_p95_s == pytest.approx(0.004, rel=0.01)
    assert times.gaps == 0
    parts = (Report(0.0, latency=from_latencies([0.002] * 300)),)
    assert times_of(traffic_of(whole, whole, gaps=parts), 5.0).gaps == 300


def test_a_rate_is_of_the_time_that_reports_cover() -> None:
    """Of a sample of 5 s the last part of a second is not reported yet."""
    taken = traffic_of(from_latencies([0.01] * 80), from_latencies([]))
    ports = (ProbedPort(8000, ("::",)), ProbedPort(8001, ("::",)))
    watched = SimpleNamespace(covered_s=4.0, take=lambda _: (taken,))
    one, other = timed(ports, watched)  # type: ignore[arg-type]
    assert one.times is not None and one.times.requests / one.times.over_s == 20.0
    assert other.times is None
    watched.covered_s = 0.0
    assert timed(ports, watched) == ports  # type: ignore[arg-type]


def test_a_quantile_that_dropped_packets_may_move_is_none() -> None:
    whole = from_latencies([0.01] * 60 + [0.05] * 40)
    found = [times_of(traffic_of(whole, whole, dropped=many), 5.0) for many in (1, 10, 30)]
    assert [(one.p50_s is None, one.p95_s is None) for one in found] == [
        (False, False), (False, True), (True, True),
    ]  # fmt: skip
    assert [one.unmeasured for one in found] == [(), (), (DROPPED,)]
    port = ProbedPort(1, ("::",), found[2])
    assert busiest((port,)) is None


def test_few_answers_have_no_p95() -> None:
    few = from_latencies([0.01] * 5)
    times = times_of(traffic_of(few, few), 5.0)
    assert times.p95_s is None
    assert times.p50_s == pytest.approx(0.01, rel=0.01)


def test_the_port_with_most_answers_is_the_service() -> None:
    quiet, busy = (
        ProbedPort(port, ("::",), times_of(traffic_of(sketch, sketch), 5.0))
        for port, sketch in ((1, from_latencies([0.5] * 3)), (2, from_latencies([0.01] * 40)))
    )
    found = busiest((quiet, busy, ProbedPort(3, ("::",))))
    assert found is not None
    port, reading = found
    assert (port, reading.quantile, reading.requests) == (2, 0.95, 40)
    assert busiest((ProbedPort(3, ("::",)),)) is None

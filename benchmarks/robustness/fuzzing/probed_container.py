"""What a container serves and prints, looked at by the probe: a page in pieces, and a log.

Promised: bounded extracts, names that are printable, finite readings, and the same answer whether a
page arrives whole or in pieces.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import cache
from random import Random

from benchmarks.robustness.fuzzing import log_lines, metrics_page
from benchmarks.robustness.fuzzing.mutation import mutated
from benchmarks.robustness.fuzzing.trial import Broken, told_line
from dlsched.config.metrics.loading import package_presets
from dlsched.runtime.docker.probe import recognition
from dlsched.runtime.docker.probe.probed import Probed
from dlsched.runtime.docker.probe.proxied import ProxyPage, proxies_of, through
from dlsched.runtime.docker.probe.recognition import Stack
from dlsched.runtime.docker.probe.sampling import LOG_BYTES
from dlsched.runtime.progress.page_lines import LINE_BYTES, MOST_LINES

NAME = "probe"
_NEXT = b"\x1e"
_IMAGES = (b"acme/app:1", b"vllm/vllm-openai:v1", b"docker.io/library/nginx", b"ollama/ollama", b"")
_PIECES = (1, 7, 4096)
_WORDS = (
    b"# TYPE a_latency_seconds histogram\n",
    b"# TYPE ",
    b"_duration_seconds_count 3\n",
    b"\n",
    b'traefik_service_request_duration_seconds_count{service="web@docker"} 7\n',
    b'traefik_service_request_duration_seconds_sum{service="web-shop@docker"} 2.5\n',
    b'service="web@docker"',
)
_LOGS = (
    b"step 250: train loss 1.9673, val loss 2.0700\nstep 500: train loss nan, val loss nan\n",
    b"Epoch 1/25\n1875/1875 - 7s - loss: 0.4 - val_accuracy: 0.8516\nEpoch 2/25\n",
    b'[GIN] 2025/01/01 | 200 | 1m2.5s | ::1 | POST "/api/chat"\n      total time =  2.5 ms /\n',
    b"Test: [   0/48]  Acc@1:  76.2 ( 74.3)\nTest: [  48/48]  Acc@1:  76.2 ( 74.1)\n",
)


@cache
def _stacks() -> tuple[Stack, ...]:
    return recognition.stacks_of(package_presets())


@cache
def _proxies() -> tuple[Stack, ...]:
    return proxies_of(package_presets())


def make(rng: Random) -> bytes:
    page = metrics_page.make(rng)
    if rng.random() < 0.5:
        page = mutated(rng, page, (page,), _WORDS)
    log = log_lines.make(rng).rpartition(_NEXT)[2] if rng.random() < 0.3 else rng.choice(_LOGS)
    log = mutated(rng, log, _LOGS, _WORDS)
    parts = (rng.choice(_IMAGES), page.replace(_NEXT, b"\n"), log.replace(_NEXT, b"\r"))
    return _NEXT.join(parts)


def answer(data: bytes) -> str:
    image_bytes, page, log = (data + _NEXT * 2).split(_NEXT)[:3]
    image = image_bytes.decode("utf-8", "replace")
    extract = _extract(page, max(1, len(page)))
    if _extract(page, _PIECES[len(page) % len(_PIECES)]) != extract:
        raise Broken("another extract of the same page in pieces")
    if len(extract) > 3 * MOST_LINES * (LINE_BYTES + 1):
        raise Broken(f"an extract of {len(extract)} bytes")
    speakers = [one.preset for one in recognition.speakers(extract, image, 8000, _stacks())]
    names = recognition.histograms(extract)
    for name in names:
        told_line(name)
    behind = _behind(extract)
    found = recognition.printed(log[-LOG_BYTES:], image, _stacks())
    if found is None:
        return json.dumps([speakers, names, behind])
    stack, reading = found
    if reading.seconds is not None and not (
        math.isfinite(reading.seconds) and reading.seconds >= 0 and reading.requests > 0
    ):
        raise Broken(f"no latency: {reading}")
    return json.dumps([speakers, names, stack.preset, asdict(reading), behind])


def _behind(extract: bytes) -> str:
    """What the page says of a container, where it is a proxy's."""
    page = ProxyPage("edge", "10.0.0.1", 8080, "/metrics", extract, extract, 2.0)
    found = through(Probed("web", "1" * 64, "acme/app", None), "web-shop", [page], _proxies())
    for option in found.sources:
        told_line(option)
    reading = found.reading
    if reading is not None and not (math.isfinite(reading.seconds or 0.0) and reading.requests > 0):
        raise Broken(f"no latency: {reading}")
    return str((found.sources, reading))


def _extract(page: bytes, size: int) -> bytes:
    extract = recognition.PageExtract((*_stacks(), *_proxies()))
    for start in range(0, len(page), size):
        extract.feed(page[start : start + size])
    return extract.lines()

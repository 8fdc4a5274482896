"""The command `probe`: what running containers speak and use, and how to adopt them."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli.commands import options
from dlsched.cli.output import one_line, print_json, print_text
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.model.units import (
    counted,
    render_bytes,
    render_cores,
    render_quantile,
    render_within,
)

if TYPE_CHECKING:
    from dlsched.runtime.docker.probe import Probed, ProbeReading
    from dlsched.runtime.docker.probe.probed import PortTimes

_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Round figures of a proposed target, times a power of ten."""
_OVER_MIN_S, _OVER_MAX_S = 0.5, 60.0
_METRICS_SHOWN = 3
_PORTS_SHOWN = 2
STREAM_GAPS, STREAM_RATIO = 3, 2.0
"""Answers are streams of parts, such as tokens, from so many gaps each on, if the whole takes so
many times as long as the first byte: then users wait for the first byte."""
BUSY_CORES = 0.05
"""From this mean use on, a container that serves no one is proposed as background: less than a
twentieth of a core delays no one."""
_FALLING = 0.9
"""Of a metric that falls, or of what is left to the best one: a goal that is not far."""
_ENGINE_S = 10.0
"""How long one answer of the engine may take."""


@click.command(short_help="Show what running containers speak, and how to adopt them.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--no-http", is_flag=True, help="Ask no container for its metrics page.")
@click.option(
    "--over",
    default="5s",
    show_default=True,
    metavar="TIME",
    help="Time in which requests and CPU use are counted, 0.5s to 1min.",
)
@options.output
@options.asking
def probe(
    names: tuple[str, ...],
    no_http: bool,
    over: str,
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Show where running containers listen, what they use and speak, what was read just now, and
    the command that adopts each. Nothing is changed. Response times are measured at the
    containers' sockets, where root runs it.

    A container is recognised by the names on its metrics page, on whatever port it listens, and by
    the last lines of its log. Pages are asked for by GET, within four seconds. It works without a
    daemon, for root and the members of the group docker. Without root listening ports are unknown:
    it then asks those that the image exposes or presets name (`dlsched presets`).

    \b
    Examples:
      dlsched probe
      dlsched probe asr --over 10s
      dlsched probe --no-http -o json
    """
    from dlsched.runtime.docker.doctor.engine import remedy
    from dlsched.runtime.docker.engine import Engine
    from dlsched.runtime.docker.instance import DockerOptions, own_containers
    from dlsched.runtime.docker.probe import ProbeOptions
    from dlsched.runtime.docker.probe import probe as probed
    from dlsched.runtime.wire.tap import Tap

    over_s = options.seconds(over, "--over", _OVER_MIN_S, _OVER_MAX_S)
    presets = options.presets(config)
    settings = options.readable_settings(config)
    given = None if settings is None else settings.engine.host
    engine = Engine(given or os.environ.get("DOCKER_HOST") or DockerOptions().host, _ENGINE_S)
    tap = Tap()
    asked = ProbeOptions(names, not no_http, over_s, own_containers(), tap)
    try:
        found = probed(engine, presets, asked, _managed(config, run_dir))
    except EngineUnavailable as error:
        raise EngineUnavailable(f"{error}; {remedy(engine.host)}") from error
    finally:
        tap.close()
        engine.close()
    if output == "json":
        from dlsched.api.codec import as_json

        print_json(as_json([{**asdict(one), "proposal": _proposal(one)} for one in found]))
    else:
        _show(found)


def _managed(config: Path | None, run_dir: Path | None) -> dict[str, str]:
    """How a running daemon manages containers, by id; nothing without a daemon."""
    managed = {}
    with suppress(DlschedError, OSError):
        for job in options.daemon(config, run_dir).status().jobs:
            if job.container is not None:
                source = "a job of dlsched" if job.source == "file" else "adopted"
                managed[job.container] = f"{source}: `dlsched why {job.name}`"
    return managed


# --------------------------------------------------------------------------- output


def _show(found: tuple[Probed, ...]) -> None:
    page = Page()
    if not found:
        page.line("no container runs; nothing has been changed")
        return
    page.table(*_use(found))
    page.line("")
    for one in found:
        condition, command = _advice(one)
        text = "; ".join(filter(None, (_speaks(one), _just_now(one), condition)))
        text = text or "nothing known"
        page.line(f"{one.name}: {text}{':' if condition and command else ''}")
        if command:
            # Whole, however long it is, so that it can be copied.
            print_text(f"  {one_line(command)}")
    managed = sum(one.managed is not None for one in found)
    has = "container runs" if len(found) == 1 else "containers run"
    what = (
        "none of them managed by dlsched"
        if not managed
        else f"{managed} of them managed by dlsched"
    )
    page.line(f"{len(found)} {has}, {what}; nothing has been changed")


def _use(found: tuple[Probed, ...]) -> tuple[list[Column], list[list[Cell]]]:
    """Columns and cells of what each container is called, where it listens, and what it uses; of
    GPU memory where any container holds some."""
    on_gpu = any(one.gpu_memory_bytes is not None for one in found)
    columns = [
        Column("CONTAINER", 4, 20),
        Column("PORTS", 5, 14),
        Column("CPU", 3, right=True),
        Column("MEMORY", 6, right=True),
        *([Column("GPU", 3, right=True)] if on_gpu else []),
        Column("IMAGE", 5, 28),
    ]
    rows = []
    for one in found:
        cpu = "?" if one.cpu_cores is None else f"{one.cpu_cores:.2f}"
        gpu = [_size(one.gpu_memory_bytes, "-")] if on_gpu else []
        texts = [one.name, _ports(one), cpu, _size(one.memory_bytes, "?"), *gpu, one.image]
        rows.append(list(map(Cell, texts)))
    return columns, rows


def _ports(one: Probed) -> str:
    """Such as `80,443` or `80,443,+3`."""
    if one.ports is None:
        return "?"
    first = [str(at.port) for at in one.ports[:_PORTS_SHOWN]]
    left = len(one.ports) - len(first)
    return ",".join([*first, f"+{left}"] if left else first) or "-"


def _size(size_bytes: int | None, unknown: str) -> str:
    return unknown if size_bytes is None else render_bytes(size_bytes)


def _speaks(one: Probed) -> str:
    if one.where is None and one.timed is not None and one.preset is None:
        return f"port {one.timed}"
    if one.where is None:
        return "" if one.preset is None else f"{one.preset}, recognised by its image"
    return f"{one.preset or 'Prometheus'} ({one.where})"


def _just_now(one: Probed) -> str:
    if one.reading is not None:
        return f"{_read(one.reading)}{_at_socket(one)}"
    unmeasured = [(at.port, at.times.unmeasured) for at in one.ports or () if at.times is not None]
    why = [f"port {port}: not measured: {', '.join(each)}" for port, each in unmeasured if each]
    asked = [
        f"port {at.port}: {said}"
        for at in one.ports or ()
        if at.times is not None and (said := _unanswered(at.times))
    ]
    return "; ".join(filter(None, (one.unread, *why, *asked)))


def _unanswered(times: PortTimes) -> str:
    """What is known of requests without one good answer, such as `7 requests in 5.0 s, none
    answered`; empty: nothing."""
    if times.answers or not (times.open or times.failed):
        return ""
    failed = (f"{times.failed} failed",) if times.failed else ()
    none = ("none of them answered yet" if not failed else f"{times.open} not answered yet",)
    known = f"{counted(times.requests, 'request')} in {times.over_s:.1f} s"
    return ", ".join((known, *failed, *(none if times.open else ())))


def _at_socket(one: Probed) -> str:
    """What else was measured at its socket: requests a second, and failures."""
    if (times := _timed(one)) is None:
        return ""
    parts = [f"{times.requests / times.over_s:.3g} a second"]
    if times.failed:
        parts.append(f"{times.failed} failed")
    return f"; {', '.join(parts)}"


def _timed(one: Probed) -> PortTimes | None:
    """The times of the socket at which it was read; None: it was read elsewhere."""
    return next((at.times for at in one.ports or () if at.port == one.timed), None)


def _first_byte(times: PortTimes) -> tuple[float | None, str]:
    """The time until the first byte (None: not known), and its quantile."""
    if times.first_p95_s is None:
        return times.first_p50_s, "p50"
    return times.first_p95_s, "p95"


def _streams(times: PortTimes) -> bool:
    """Whether answers come in parts, the first long before the last."""
    first_s, whole_s = times.first_p50_s, times.p50_s
    if first_s is None or whole_s is None or times.gaps < STREAM_GAPS * times.answers:
        return False
    return whole_s >= STREAM_RATIO * first_s


def _read(reading: ProbeReading) -> str:
    """Such as `p95 143 ms of 120 requests in 10 s`."""
    lines = "" if reading.lines is None else f" ({reading.lines} of {reading.of_lines} lines)"
    if reading.seconds is not None:
        kind = render_quantile(reading.quantile)
        count = counted(reading.requests, "request")
        above_s = reading.seconds if reading.above_s is None else reading.above_s
        text = f"{kind} latency {render_within(above_s, reading.seconds)} of {count}"
        if reading.lines is not None:
            return f"{text}, in its last {reading.of_lines} lines"
        over_s = reading.over_s
        return (
            f"{text} since the container began" if over_s is None else f"{text} in {over_s:.1f} s"
        )
    step = [] if reading.step is None else [f"step {reading.step}"]
    values = [f"{name} {value:.4g}" for name, value in reading.metrics[:_METRICS_SHOWN]]
    finite = all(math.isfinite(value) for _, value in reading.metrics[:1])
    return ", ".join(step + values) + lines + ("" if finite else ": diverged")


def _proposal(one: Probed) -> str:
    """The command that adopts it, or why there is none to propose."""
    return ": ".join(part for part in _advice(one) if part)


def _advice(one: Probed) -> tuple[str, str]:
    """When to give that command, or why none is proposed; and the command."""
    from dlsched.runtime.docker.probe.probed import NO_REQUEST

    if one.managed is not None:
        return f"nothing: {one.managed}", ""
    name, ports = shlex.quote(one.name), one.ports or ()
    target, busy = " ".join(_target(one)), _busy(one)
    preset = () if one.preset is None else (one.preset,)
    sources = "".join(f" --metrics {shlex.quote(source)}" for source in one.sources or preset)
    if target:
        return busy, f"dlsched adopt {name} {target}{sources}"
    if one.unread == NO_REQUEST:
        return "when the container has answered requests", f"dlsched probe {name}"
    if one.unread is not None and (one.preset is not None or one.sources):
        return "when the problem shown is solved", f"dlsched adopt {name} --latency TIME{sources}"
    if one.where is not None:
        return "leave the container alone, or", f"dlsched adopt {name} --minimum {_minimum(one)}"
    if any(at.times is not None and at.times.open and not at.times.answers for at in ports):
        wait = "if callers wait for the container's answers, set TIME to what they need"
        return wait, f"dlsched adopt {name} --latency TIME"
    serves = any(at.times is not None for at in ports)
    if serves or one.cpu_cores is None or one.cpu_cores < BUSY_CORES:
        return "leave it", ""
    unsure = "if no one waits for the container's answers" if one.ports != () else ""
    return unsure, f"dlsched adopt {name} --background"


def _busy(one: Probed) -> str:
    """Why its latency is no measure of what it can do; empty: it is one."""
    reading, host = one.reading, one.host
    if reading is None or reading.seconds is None or reading.over_s is None:
        return ""
    if host is None or not host.is_short:
        return ""
    used = f"{host.busy_cores:.2f} of {render_cores(host.cores)} used"
    return f"measured on a busy host ({used}), so set TIME to what users need"


def _target(one: Probed) -> Iterator[str]:
    """Options of a target that it just meets, or is on the way to. What a busy host just meets is
    no target: TIME stands in its place."""
    reading, times = one.reading, _timed(one)
    if reading is None:
        return
    if reading.seconds is not None:
        whole = _round_seconds if reading.above_s is None else _exactly
        seconds, kind = reading.seconds, None
        if reading.quantile is not None:
            kind = render_quantile(reading.quantile)
        if times is not None and _streams(times):
            first_s, kind = _first_byte(times)
            seconds = reading.seconds if first_s is None else first_s
            yield "--of first-byte"
        yield f"--latency {'TIME' if _busy(one) else whole(seconds)}"
        if kind is not None:
            yield f"--quantile {kind}"
    elif reading.metrics:
        yield from _goal(*reading.metrics[0])


def _goal(metric: str, value: float) -> Iterator[str]:
    """A value of the metric that is a tenth of the way further."""
    from dlsched.config.job_schema import rising

    rises = rising(metric)
    if rises is None or not math.isfinite(value):
        yield f"--reach {shlex.quote(metric)}=VALUE --good-enough VALUE"
        return
    goal = f"{_FALLING * value:.2g}"
    if rises:
        most = next((most for most in (1.0, 100.0) if 0.0 < value < most), 2.0 * value)
        # Two digits of what is left: 0.551 to 0.6, 0.991 to 0.9919.
        goal = f"{most - float(f'{_FALLING * (most - value):.2g}'):.6g}"
    yield f"--reach {shlex.quote(metric)}={goal}"


def _round_seconds(seconds: float) -> str:
    """The next round duration above, as `adopt` reads it."""
    power = 10.0 ** math.floor(math.log10(max(seconds, 1e-4)))
    return _exactly(next(power * step for step in _STEPS if power * step >= seconds * (1 - 1e-9)))


def _exactly(seconds: float) -> str:
    """A duration, as `adopt` reads it: of a bucket's bound any other would lie within a bucket."""
    return f"{seconds * 1e3:.6g}ms" if seconds < 1.0 else f"{seconds:.6g}s"


def _minimum(one: Probed) -> str:
    """What it uses, rounded up to a quarter of a core; at most its own limit."""
    cores = max(0.25, math.ceil(4 * (one.cpu_cores or 0.0)) / 4)
    return f"{cores if one.limit_cores is None else min(cores, one.limit_cores):g}"

"""What is measured at a job's sockets, as text. Pure."""

from __future__ import annotations

from dlsched.api.schema import AccuracyTargetStatus, LatencyTargetStatus, WireStatus
from dlsched.model.facts import WireFact
from dlsched.model.spec import LatencyTarget, Target
from dlsched.model.units import counted, render_percent, render_quantile, render_seconds

_PROTOCOLS = {
    "http": "HTTP",
    "tls": "TLS",
    "turns": "a protocol not known, timed by turns of client and server",
}


def wire_of(fact: WireFact | None, target: Target | None) -> WireStatus | None:
    """The status of these facts; None: its sockets are not to be measured."""
    if fact is None:
        return None
    return WireStatus(
        ports=fact.ports,
        judges=fact.judges,
        requests_per_s=fact.requests_per_s,
        measured_ratio=fact.measured_ratio,
        callers=dict(fact.callers),
        text=_text(fact),
        called_by="; ".join(f"{name}, {rate:.3g} a second" for name, rate in fact.callers) or None,
        contradiction=_contradiction(fact, target),
    )


def measurements(count: int, target: LatencyTargetStatus | AccuracyTargetStatus | None) -> str:
    """`1 request`; `2 gaps` where the target is about the gaps within answers."""
    gaps = isinstance(target, LatencyTargetStatus) and target.timed == "gap"
    return counted(count, "gap" if gaps else "request")


def _text(fact: WireFact) -> str:
    if fact.problem is not None:
        return f"not measured: {fact.problem}"
    ports = ", ".join(str(port) for port in fact.ports)
    parts = [f"port {ports}, {fact.requests_per_s:.3g} requests a second"]
    protocols = [_PROTOCOLS.get(name, name) for name, _ in fact.connections]
    if protocols:
        parts.append(f"in {', '.join(protocols)}")
    text = " ".join(parts)
    if fact.partial is not None:
        text += f"; {fact.partial}"
    if fact.one_of > 1:
        text += f"; one of {fact.one_of} connections is measured: there are too many packets"
    if fact.lost:
        in_tls = any(name == "tls" and number for name, number in fact.connections)
        first = ", or among the first ones of a TLS connection" if in_tls else ""
        text += (
            f"; {counted(fact.lost, 'request')} not measured: their packets were not captured "
            f"whole{first}"
        )
    if fact.dropped:
        text += (
            f"; {counted(fact.dropped, 'packet')} of the job's network not read, for lack of room"
        )
    if fact.missed_s:
        text += (
            f"; {fact.missed_s:.1f} s not measured: dlsched's process that reads packets had ended"
        )
    if fact.unmeasured:
        ratio = render_percent(1.0 - (fact.measured_ratio or 0.0))
        why = ", ".join(name for name, _ in fact.unmeasured)
        text += f"; {ratio} of the new connections cannot be measured: {why}"
    return text


def _contradiction(fact: WireFact, target: Target | None) -> str | None:
    if fact.unreported:
        return (
            f"the job reports no request, but answered {fact.unreported} at its sockets in the "
            "last minute: another program's page or log may be read, or `where` leaves these out"
        )
    if fact.reported_s is None or fact.measured_s is None or not isinstance(target, LatencyTarget):
        return None
    what = "the mean" if target.quantile is None else render_quantile(target.quantile)
    lowest_s, highest_s = fact.reported_s
    reported = render_seconds(highest_s)
    if highest_s > 1.02 * lowest_s:
        reported = f"{render_seconds(lowest_s)} to {reported}"
    measured = render_seconds(fact.measured_s)
    decides = ", which decides" if fact.judges else ""
    return f"the job reports {what} {reported}; at its sockets {what} is {measured}{decides}"

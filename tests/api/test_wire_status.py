"""What is measured at sockets, in one line."""

from __future__ import annotations

import pytest

from dlsched.api.status import target_of
from dlsched.api.wire_status import measurements, wire_of
from dlsched.model.facts import WireFact
from dlsched.model.spec import LatencyTarget

TARGET = LatencyTarget(0.05, 0.95)
IN_PART = (
    "port 8000, 0 requests a second in TLS; one of 4 connections is measured: there are "
    "too many packets; 2 requests not measured: their packets were not captured whole, or "
    "among the first ones of a TLS connection; 7 packets of the job's network not read, "
    "for lack of room; 2.0 s not measured: dlsched's process that reads packets had ended; "
    "25 % of the new connections cannot be measured: HTTP/2"
)


def test_nothing_is_measured_of_a_job_without_sockets() -> None:
    assert wire_of(None, TARGET) is None


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (
            WireFact((8000,), requests_per_s=18.04, connections=(("http", 4),)),
            "port 8000, 18 requests a second in HTTP",
        ),
        (
            WireFact(
                (8000,),
                one_of=4,
                lost=2,
                dropped=7,
                missed_s=2.04,
                connections=(("tls", 3),),
                unmeasured=(("HTTP/2", 1),),
            ),
            IN_PART,
        ),
        (
            WireFact((80,), partial="packets on eth1 cannot be read: no such device"),
            "port 80, 0 requests a second; packets on eth1 cannot be read: no such device",
        ),
        (
            WireFact(problem="the container listens on no TCP port"),
            "not measured: the container listens on no TCP port",
        ),
    ],
    ids=["all is measured", "a part", "one interface fails", "nothing"],
)
def test_what_is_measured_and_what_is_not(fact: WireFact, text: str) -> None:
    status = wire_of(fact, TARGET)
    assert status is not None
    assert status.text == text


def test_callers_are_named() -> None:
    status = wire_of(WireFact((8000,), callers=(("gateway", 18.0),)), TARGET)
    assert status is not None
    assert status.called_by == "gateway, 18 a second"


def test_a_contradiction_has_both_numbers() -> None:
    status = wire_of(WireFact(measured_s=0.0113, reported_s=(0.0978, 0.0978)), TARGET)
    assert status is not None
    assert status.contradiction == "the job reports p95 97.8 ms; at its sockets p95 is 11.3 ms"
    fact = WireFact(judges=True, measured_s=0.3, reported_s=(0.05, 0.1))
    between = wire_of(fact, LatencyTarget(0.2))
    assert between is not None
    assert (
        between.contradiction
        == "the job reports the mean 50 ms to 100 ms; at its sockets the mean is 300 ms, which "
        "decides"
    )


def test_a_silent_source_beside_answers_is_a_contradiction() -> None:
    status = wire_of(WireFact(unreported=312), TARGET)
    assert status is not None
    assert status.contradiction == (
        "the job reports no request, but answered 312 at its sockets in the last minute: "
        "another program's page or log may be read, or `where` leaves these out"
    )


def test_a_target_names_the_time_that_it_is_about() -> None:
    texts = [target_of(LatencyTarget(0.05, 0.95, of=of)) for of in ("answer", "first-byte", "gap")]
    assert [one and one.text for one in texts] == [
        "p95 50 ms",
        "first byte p95 50 ms",
        "gap p95 50 ms",
    ]


def test_what_is_counted_is_what_the_target_is_about() -> None:
    targets = [target_of(LatencyTarget(0.05, of=of)) for of in ("answer", "first-byte", "gap")]
    found = [measurements(2, target) for target in targets]
    assert found == ["2 requests", "2 requests", "2 gaps"]

"""Sampling, with an engine and containers played here: order, bounds, failures and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from dlsched.config.metrics.loading import package_presets
from dlsched.model.facts import GpuFact, GpuProcess
from dlsched.runtime.docker import progress_readers as reading
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.probe import (
    Probed,
    ProbedPort,
    ProbeOptions,
    UnknownContainer,
    probe,
    sampling,
)
from dlsched.runtime.progress.http_page import OtherStatus, Unanswered
from dlsched.runtime.progress.listening import ListeningSocket
from dlsched.runtime.wire.traffic import Watched
from dlsched.simulation.clock import VirtualClock

pytestmark = pytest.mark.usefixtures("without_threads")

Fetch = Callable[[str, int, str, float], bytes]


def body(number: int, **changes: Any) -> dict[str, Any]:
    """A container as an engine describes it."""
    config = {"Image": "acme/app", "Labels": {}, "ExposedPorts": {"8000/tcp": {}}}
    config |= changes.pop("config", {})
    address = changes.pop("address", f"10.9.{number // 200}.{number % 200 + 1}")
    return {
        "Id": f"{number:012x}".ljust(64, "0"),
        "Name": f"/c{number:03}",
        "State": {"Status": "running", "Pid": 0, "StartedAt": "", "ExitCode": 0},
        "Config": config,
        "HostConfig": {},
        "NetworkSettings": {"Networks": {"n": {"IPAddress": address}}},
        **changes,
    }


class PlayedEngine:
    """Answers as an engine does; every call is counted."""

    def __init__(self, *bodies: dict[str, Any], logs: Mapping[str, list[bytes]] = {}) -> None:
        self.bodies = {one["Id"]: one for one in bodies}
        self.printed = dict(logs)
        self.calls: list[str] = []
        self.clock = VirtualClock(100.0)

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        self.calls.append("containers")
        assert labels == {}
        return [
            {"Id": key, "Names": [one["Name"]], "State": one["State"]["Status"]}
            for key, one in self.bodies.items()
        ]

    def inspect(self, container: str) -> dict[str, Any]:
        self.calls.append("inspect")
        one = self.bodies[container]
        if "refused" in one:
            raise EngineRefused(404, "No such container")
        return one

    def logs(self, container: str, tail: int, follow: bool) -> Iterator[bytes]:
        self.calls.append("logs")
        assert not follow
        yield from self.printed.get(self.bodies[container]["Name"][1:], [])


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Fetch]:
    """The last one answers instead of containers."""
    answers: list[Fetch] = []

    def fetch(
        address: str, port: int, path: str, feed: Callable[[bytes], None], within_s: float
    ) -> None:
        if not answers:
            raise Unanswered("Connection refused")
        feed(answers[-1](address, port, path, within_s))

    monkeypatch.setattr(sampling, "fetch", fetch)
    show_gpus(monkeypatch)
    return answers


def show_gpus(monkeypatch: pytest.MonkeyPatch, *gpus: GpuFact) -> None:
    played = SimpleNamespace(poll=lambda _: SimpleNamespace(devices=gpus), close=lambda: None)
    monkeypatch.setattr(sampling, "Inventory", lambda **_: played)


def probed(engine: PlayedEngine, *names: str, **more: Any) -> dict[str, Probed]:
    managed = more.pop("managed", None)
    options, clock = ProbeOptions(names, **more), engine.clock
    with patch.object(sampling, "time", SimpleNamespace(sleep=clock.advance, time=lambda: 0.0)):
        found = probe(engine, package_presets(), options, managed, clock.now_s)  # type: ignore[arg-type]
    return {one.name: one for one in found}


def page(count: int, mean_s: float = 0.07, name: str = "http_request_duration_seconds") -> bytes:
    labels = 'handler="/predict"'
    return (
        f"# TYPE {name} histogram\n"
        # By this the page of FastAPI's instrumentator is recognised.
        "http_request_duration_highr_seconds_count 1\n"
        f'{name}_bucket{{{labels},le="0.1"}} {count}\n'
        f'{name}_bucket{{{labels},le="+Inf"}} {count}\n'
        f"{name}_count{{{labels}}} {count}\n"
        f"{name}_sum{{{labels}}} {count * mean_s}\n"
    ).encode()


def test_of_containers_that_never_answer_each_port_is_waited_for_once(
    pages: list[Fetch],
) -> None:
    def hang(_: str, __: int, ___: str, within_s: float) -> bytes:
        raise Unanswered(f"the page was not received whole within {within_s:.2g} s")

    pages.append(hang)
    engine = PlayedEngine(*[body(number) for number in range(50)])
    assert len(probed(engine)) == 50
    # None is asked twice: a port that hangs once has had its two seconds.
    assert engine.calls.count("inspect") == 50


def test_a_page_says_what_was_counted_since_its_start(pages: list[Fetch]) -> None:
    pages.append(lambda *_: page(1030))
    (one,) = probed(PlayedEngine(body(1))).values()
    assert (one.preset, one.where, one.sources) == ("fastapi", "port 8000", ("fastapi",))
    assert (one.reading.requests, one.reading.over_s, one.reading.quantile) == (1030, None, 0.95)
    # The mean is 70 ms; of the p95 the bucket's bounds are known.
    assert (one.reading.above_s, one.reading.seconds) == (0.0, 0.1)
    pages.append(lambda *_: page(0))
    (one,) = probed(PlayedEngine(body(1))).values()
    assert (one.reading, one.unread) == (None, "the metrics page counts no request yet")


def test_a_page_of_no_preset_is_proposed_by_name(pages: list[Fetch]) -> None:
    pages.append(lambda *_: page(40, name="app_latency_seconds"))
    (one,) = probed(PlayedEngine(body(1))).values()
    assert one.preset is None
    assert one.sources == ("port=8000", "name=app_latency_seconds")
    assert one.reading is not None


def test_another_port_or_path_stands_beside_the_preset(pages: list[Fetch]) -> None:
    def there(_: str, port: int, path: str, __: float) -> bytes:
        if (port, path) == (9100, "/metrics/"):
            return page(5)
        raise OtherStatus("the page is answered with HTTP status 307")

    pages.append(there)
    config = {"Image": "acme/app", "Labels": {}, "ExposedPorts": {"9100/tcp": {}, "53/udp": {}}}
    (one,) = probed(PlayedEngine(body(1, config=config))).values()
    assert one.sources == ("fastapi", "port=9100", "http_path=/metrics/")


def test_a_refused_port_is_asked_once_and_no_other_path_of_it(pages: list[Fetch]) -> None:
    asked: list[tuple[int, str]] = []

    def refuse(_: str, port: int, path: str, __: float) -> bytes:
        asked.append((port, path))
        raise Unanswered("Connection refused")

    pages.append(refuse)
    probed(PlayedEngine(body(1)))
    assert asked == [(8000, "/metrics")]


def test_a_known_image_that_does_not_answer_says_what_it_needs(pages: list[Fetch]) -> None:
    config = {"Image": "lmsysorg/sglang:latest", "Labels": {}}
    (one,) = probed(PlayedEngine(body(1, config=config))).values()
    assert (one.preset, one.where) == ("sglang", None)
    assert one.unread == "port 30000: Connection refused; start the program with --enable-metrics"


def test_the_log_is_read_within_its_bounds(pages: list[Fetch]) -> None:
    junk = [b"\xff" * 100_000 + b"\n"] * 5
    lines = [b"step 5: train loss 1.0, val loss 2.0\n", b"step 6: train loss 1.0, val loss 1.5\r0%"]
    (one,) = probed(PlayedEngine(body(1), logs={"c001": junk + lines})).values()
    assert (one.preset, one.where) == ("nanogpt", "its log")
    assert (one.reading.step, one.reading.metrics) == (6, (("val_loss", 1.5),))


def test_an_endless_log_ends_the_reading(pages: list[Fetch]) -> None:
    taken = [0]

    class Endless(PlayedEngine):
        def logs(self, container: str, tail: int, follow: bool) -> Iterator[bytes]:
            while True:
                taken[0] += 1
                yield b"x" * 65536

    (one,) = probed(Endless(body(1))).values()
    assert one.reading is None
    assert taken[0] * 65536 <= 2 * sampling.LOG_READ_BYTES


def test_one_that_cannot_be_described_costs_the_others_nothing(pages: list[Fetch]) -> None:
    engine = PlayedEngine(body(1, refused=True), body(2, State={"Status": "running"}), body(3))
    found = probed(engine)
    assert found["c001"].unread == "No such container"
    assert found["c003"].unread is None


def test_only_running_ones_and_those_named(pages: list[Fetch]) -> None:
    stopped = body(2, State={"Status": "exited", "Pid": 0, "StartedAt": "", "ExitCode": 1})
    engine = PlayedEngine(body(1), stopped, body(3))
    assert list(probed(engine)) == ["c001", "c003"]
    assert list(probed(engine, "c003")) == ["c003"]
    assert list(probed(engine, left_out=frozenset({body(1)["Id"]}))) == ["c003"]
    with pytest.raises(UnknownContainer, match="'c002'"):
        probed(engine, "c002")


def test_what_is_managed_already_says_how(pages: list[Fetch]) -> None:
    labels = {"Labels": {"dlsched.enable": "true"}, "Image": "x"}
    engine = PlayedEngine(body(1, config=labels), body(2), body(3))
    found = probed(engine, managed={body(2)["Id"][:12]: "adopted: `dlsched why two`"})
    assert [found[name].managed for name in ("c001", "c002", "c003")] == [
        "the container's labels already adopt it",
        "adopted: `dlsched why two`",
        None,
    ]


def test_the_limit_is_the_engines_and_the_use_unknown_where_the_kernel_does_not_say(
    pages: list[Fetch],
) -> None:
    found = probed(PlayedEngine(body(1, HostConfig={"CpuQuota": 30_000}), body(2)))
    assert [one.limit_cores for one in found.values()] == [pytest.approx(0.3), None]
    assert [one.cpu_cores for one in found.values()] == [None, None]


def test_no_page_is_asked_for_without_http(pages: list[Fetch]) -> None:
    def never(*_: object) -> bytes:
        pytest.fail("a page was asked for")

    pages.append(never)
    config = {"Image": "vllm/vllm-openai:1", "Labels": {}}
    unknown, known = probed(PlayedEngine(body(1), body(2, config=config)), http=False).values()
    assert (unknown.preset, unknown.unread) == (None, None)
    assert known.unread == "the container's metrics page was not read: leave out --no-http"


def test_a_container_on_the_hosts_network_says_why_it_is_not_asked(pages: list[Fetch]) -> None:
    config = {"Image": "vllm/vllm-openai:1", "Labels": {}}
    (one,) = probed(PlayedEngine(body(1, config=config, address=""))).values()
    assert "no address that can be asked" in one.unread  # it has no process here


@pytest.fixture
def listens(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[ListeningSocket]]:
    """Where the kernel says that containers listen, by id; of others it does not say."""
    sockets: dict[str, list[ListeningSocket]] = {}
    monkeypatch.setattr(sampling, "shows_sockets", lambda _, container: container in sockets)
    monkeypatch.setattr(sampling, "listening_of", lambda _, container: sockets[container])
    return sockets


def at(port: int, address: str = "0.0.0.0") -> ListeningSocket:
    return ListeningSocket(ip_address(address), port, "1")


def test_a_page_is_found_on_whatever_port_listens(
    pages: list[Fetch], listens: dict[str, list[ListeningSocket]]
) -> None:
    def there(_: str, port: int, __: str, ___: float) -> bytes:
        assert port == 18999, "no port is asked on which nothing listens"
        return page(40)

    pages.append(there)
    listens[body(1)["Id"]] = [at(18999)]
    (one,) = probed(PlayedEngine(body(1))).values()
    assert (one.preset, one.sources) == ("fastapi", ("fastapi", "port=18999"))
    assert one.ports == (ProbedPort(18999, ("0.0.0.0",)),)


def test_a_container_that_listens_nowhere_is_asked_nothing(
    pages: list[Fetch], listens: dict[str, list[ListeningSocket]]
) -> None:
    def never(*_: object) -> bytes:
        pytest.fail("a port was asked")

    pages.append(never)
    config = {"Image": "lmsysorg/sglang:latest", "Labels": {}}
    listens[body(1)["Id"]] = []
    (one,) = probed(PlayedEngine(body(1, config=config))).values()
    assert (one.ports, one.where) == ((), None)
    assert one.unread == "the container listens on no port; start the program with --enable-metrics"


@pytest.mark.parametrize(
    ("counts_core_s", "short"), [((5.0, 5.0), False), ((5.0, 1e6), True), ((None, 5.0), None)]
)
def test_the_use_of_the_host_is_that_of_the_time_of_the_samples(
    pages: list[Fetch],
    listens: dict[str, list[ListeningSocket]],
    monkeypatch: pytest.MonkeyPatch,
    counts_core_s: tuple[float | None, float],
    short: bool | None,
) -> None:
    counts = iter(counts_core_s * 2)
    monkeypatch.setattr(sampling.host, "busy_core_s", lambda: next(counts))
    listens[body(1)["Id"]] = []
    (one,) = probed(PlayedEngine(body(1))).values()
    assert (None if one.host is None else one.host.is_short) is short
    del listens[body(1)["Id"]]  # of an engine on another host
    (one,) = probed(PlayedEngine(body(1))).values()
    assert one.host is None


class NeverRead:
    """A tap whose process never starts."""

    problem: str | None = None

    def watch(self, pid: int, container: str, *, paths: object) -> Watched:
        self.problem = "no right to read packets"
        return Watched(lambda _: None, pid, container, (), "")


@pytest.mark.parametrize("says", [True, False])
def test_sockets_that_are_not_read_cost_no_other_reading(
    pages: list[Fetch], listens: dict[str, list[ListeningSocket]], says: bool
) -> None:
    tap, why = NeverRead(), "no right to read packets"
    if not says:
        tap.watch = lambda pid, container, **_: Watched(  # type: ignore[method-assign]
            lambda _: None, pid, container, (), ""
        )
        why = "dlsched's process that reads packets did not start in time"
    listens[body(1)["Id"]] = [at(8000)]
    (one,) = probed(PlayedEngine(body(1)), http=False, tap=tap).values()
    assert one.unread == f"the container's sockets are not measured: {why}"


def test_a_port_bound_inside_the_container_says_where(
    pages: list[Fetch], listens: dict[str, list[ListeningSocket]]
) -> None:
    config = {"Image": "vllm/vllm-openai:1", "Labels": {}}
    listens[body(1)["Id"]] = [at(8000, "127.0.0.1")]
    (one,) = probed(PlayedEngine(body(1, config=config))).values()
    assert one.unread == "port 8000: the container listens on 127.0.0.1 only, not on 10.9.0.2"


def test_a_port_that_never_answers_leaves_time_for_the_next(
    pages: list[Fetch], listens: dict[str, list[ListeningSocket]]
) -> None:
    engine = PlayedEngine(body(1))

    def hang(_: str, port: int, __: str, within_s: float) -> bytes:
        if port == 18999:
            return page(40)
        engine.clock.advance(within_s)
        raise Unanswered("no whole answer")

    pages.append(hang)
    listens[body(1)["Id"]] = [at(port) for port in (7001, 7002, 18999)]
    (one,) = probed(engine).values()
    assert one.where == "port 18999"


def test_a_container_in_anothers_network_is_asked_at_its_address(
    pages: list[Fetch],
    listens: dict[str, list[ListeningSocket]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = body(1)
    guest = body(2, address="", HostConfig={"NetworkMode": f"container:{owner['Id']}"})
    listens[guest["Id"]] = [at(18999)]
    monkeypatch.setattr(reading, "shares_network", lambda _, __, other="self": other != "self")
    monkeypatch.setattr(reading, "require_own", lambda *_: None)
    asked = []

    def there(address: str, port: int, _: str, __: float) -> bytes:
        asked.append((address, port))
        return page(40)

    pages.append(there)
    assert probed(PlayedEngine(owner, guest), "c002")["c002"].where == "port 18999"
    assert set(asked) == {("10.9.0.2", 18999)}


def test_memory_on_gpus_is_added_up_by_container(
    pages: list[Fetch], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = body(1)["Id"], body(2)["Id"]
    on_b = (GpuProcess(8, first, 1 << 30), GpuProcess(9, None, 5), GpuProcess(5, second))
    gpus = (
        GpuFact("a", 0, "H100", 80 << 30, processes=(GpuProcess(7, first, 3 << 30),)),
        GpuFact("b", 1, "H100", 80 << 30, processes=on_b),
    )
    show_gpus(monkeypatch, *gpus)
    found = probed(PlayedEngine(body(1), body(2)))
    assert [one.gpu_memory_bytes for one in found.values()] == [4 << 30, None]

"""A client's address, or its port on the host, as the name of a container."""

from __future__ import annotations

import pytest

from dlsched.runtime.wire import callers
from dlsched.runtime.wire.callers import ON_THE_HOST, RESOLVE_S, Caller, Callers

GATEWAY = Caller("gateway", "c" * 64, 7, None)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The connections in the host's network: port and inode; the gateway's socket is 101."""
    connections = [(40001, "101"), (40002, "999")]
    monkeypatch.setattr(callers, "shares_network", lambda *_: True)
    monkeypatch.setattr(callers, "sockets_of", lambda *_: frozenset({"101"}))
    monkeypatch.setattr(callers, "connected_in", lambda *_: iter(connections))
    return connections


def test_an_address_is_named_by_its_container() -> None:
    known = Callers()
    known.know([Caller("web", "d" * 64, 8, "172.17.0.5")])
    assert known.name("172.17.0.5") == "web"
    assert known.name("192.168.1.7") == "192.168.1.7"


def test_a_port_of_the_host_is_named_by_whose_socket_it_is(host: list[tuple[int, str]]) -> None:
    known = Callers()
    known.know([GATEWAY])
    known.resolve([":40001", ":40002"], {8000}, 100.0)
    assert known.name(":40001") == "gateway"
    assert known.name(":40002") == ON_THE_HOST


def test_descriptors_are_not_read_again_at_once(host: list[tuple[int, str]]) -> None:
    known = Callers()
    known.know([GATEWAY])
    known.resolve([":40001"], {8000}, 100.0)
    host[:] = [(40003, "101")]
    known.resolve([":40003"], {8000}, 100.0 + RESOLVE_S / 2)
    assert known.name(":40003") == ON_THE_HOST
    known.resolve([":40003"], {8000}, 100.0 + RESOLVE_S)
    assert known.name(":40003") == "gateway"

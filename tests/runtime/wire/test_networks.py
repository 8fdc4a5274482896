"""The table of sockets, which takes long to read, is read where something may have changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from dlsched.runtime.wire import networks
from dlsched.runtime.wire.networks import BUSY_S, CHECK_S, SAME_S, Networks

PID = 77
LISTENS = "   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {inode} 1 0 100 0 0 10 0\n"


@dataclass
class Proc:
    """A process' files, and how often its table of sockets was read."""

    folder: Path
    reads: int = 0
    tables: tuple[str, ...] = ()
    """Those that were read."""

    def write(
        self, *ports: int, used: int, used6: int | None = 0, interfaces: str = "eth0"
    ) -> None:
        net = self.folder / str(PID) / "net"
        net.mkdir(parents=True, exist_ok=True)
        lines = [LISTENS.format(port=port, inode=port) for port in ports]
        (net / "tcp").write_text("head\n" + "".join(lines))
        (net / "sockstat").write_text(f"sockets: used 9\nTCP: inuse {used} orphan 0\n")
        if used6 is not None:
            (net / "sockstat6").write_text(f"TCP6: inuse {used6}\n")
        (net / "dev").write_text(f"head\nhead\n  {interfaces}: 5 5\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    made = Proc(tmp_path)
    made.write(80, used=1)
    (tmp_path / str(PID) / "ns").mkdir()
    (tmp_path / str(PID) / "ns" / "net").symlink_to("net:[5]")
    read = networks.listening_in

    def counted(pid: int, folder: Path, tables: tuple[str, ...]):
        made.reads += 1
        made.tables = tables
        return read(pid, folder, tables)

    monkeypatch.setattr(networks, "listening_in", counted)
    return made


def ports(proc: Proc, known: Networks, now_s: float, *, soon: bool = False) -> list[int]:
    return [one.port for one in known.of(PID, now_s, soon=soon).sockets]


def test_an_unchanged_network_is_the_same_object(proc: Proc) -> None:
    known = Networks(proc.folder)
    first = known.of(PID, 0.0, soon=False)
    assert known.of(PID, SAME_S - 1, soon=False) is first
    assert known.of(PID, SAME_S + CHECK_S, soon=False) is first
    assert proc.reads == 2


def test_a_new_socket_is_found_by_the_number_of_sockets(proc: Proc) -> None:
    known = Networks(proc.folder)
    assert ports(proc, known, 0.0) == [80]
    proc.write(80, 81, used=2)
    assert ports(proc, known, BUSY_S + 1) == [80, 81]


@pytest.mark.parametrize(
    ("used", "used6", "read"),
    [(1, 0, ("tcp",)), (0, 2, ("tcp6",)), (0, 0, ()), (1, 10, ("tcp", "tcp6"))],
)
def test_an_empty_table_is_not_read(
    proc: Proc, used: int, used6: int, read: tuple[str, ...]
) -> None:
    proc.write(80, used=used, used6=used6)
    Networks(proc.folder).of(PID, 0.0)
    assert proc.tables == read


def test_a_table_of_unknown_size_is_read(proc: Proc) -> None:
    (proc.folder / str(PID) / "net" / "sockstat6").unlink()
    proc.write(80, used=1, used6=None)
    assert ports(proc, Networks(proc.folder), 0.0) == [80]
    assert proc.tables == ("tcp", "tcp6")


def test_a_busy_network_is_read_seldom(proc: Proc) -> None:
    known = Networks(proc.folder)
    for second in range(0, 121, 5):
        proc.write(80, used=second)
        known.of(PID, float(second), soon=False)
    assert proc.reads == 1 + 120 / BUSY_S


def test_who_waits_for_a_port_finds_it_soon(proc: Proc) -> None:
    proc.write(used=0)
    known = Networks(proc.folder)
    assert ports(proc, known, 0.0, soon=True) == []
    assert ports(proc, known, 5.0, soon=True) == []
    assert proc.reads == 1
    proc.write(80, used=1)
    assert ports(proc, known, 10.0, soon=True) == [80]


def test_one_call_reads_for_all_containers_of_a_network(proc: Proc) -> None:
    known = Networks(proc.folder)
    for _ in range(3):
        known.of(PID, 0.0, soon=True)
    assert proc.reads == 1


def test_another_interface_is_another_network(proc: Proc) -> None:
    known = Networks(proc.folder)
    first = known.of(PID, 0.0, soon=False)
    proc.write(80, used=1, interfaces="eth1")
    assert known.of(PID, CHECK_S + 1, soon=False) is not first
    assert proc.reads == 1


def test_networks_without_a_container_are_forgotten(proc: Proc) -> None:
    known = Networks(proc.folder)
    first = known.of(PID, 0.0)
    known.keep([])
    assert known.of(PID, 0.0) is not first


def test_a_process_that_has_ended_has_no_network(proc: Proc) -> None:
    with pytest.raises(OSError, match="No such file"):
        Networks(proc.folder).of(PID + 1, 0.0)

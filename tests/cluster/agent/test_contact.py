"""What the next agent knows of the last contact."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dlsched.cluster.agent.contact import KEPT_S, Contact


class Host:
    def __init__(self, folder: Path) -> None:
        self.now_s, self.boot, self.file = 1000.0, "one", folder / "contact.json"

    def contact(self) -> Contact:
        return Contact(self.file, self.boot, lambda: self.now_s)

    def renewed(self) -> Contact:
        """There is contact, and it is written."""
        made = self.contact()
        made.renew()
        made.keep()
        return made


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_next_agent_goes_on_counting(host: Host) -> None:
    assert host.contact().age_s() == math.inf and host.contact().host_started
    first = host.renewed()
    host.now_s += 70.0
    assert first.age_s() == 70.0
    after = host.contact()
    assert after.age_s() == 70.0 and not after.host_started


def test_of_an_earlier_start_of_the_host_nothing_is_known(host: Host) -> None:
    host.renewed()
    host.boot = "two"
    assert host.contact().age_s() == math.inf and host.contact().host_started


def test_it_is_written_now_and_then(host: Host) -> None:
    first = host.renewed()
    written = host.file.stat().st_mtime_ns
    for _ in range(2):
        host.now_s += KEPT_S / 2 - 0.1
        first.renew()
        first.keep()
    assert host.file.stat().st_mtime_ns == written
    assert host.contact().age_s() <= KEPT_S
    host.now_s += 1.0
    first.renew()
    first.keep()
    assert host.contact().age_s() == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"boot": "one"}', '{"boot": "one", "at_s": "x"}', '{"at_s": 5}',
     '{"boot": "one", "at_s": 5000}', '{"boot": "one", "at_s": NaN}'],
)  # fmt: skip
def test_a_broken_file_is_no_contact(host: Host, text: str) -> None:
    host.file.write_text(text)
    assert host.contact().age_s() == math.inf


def test_a_full_disk_only_shortens_the_next_lease(host: Host) -> None:
    first = host.contact()
    first.renew()
    host.file.mkdir()
    first.keep()
    assert first.age_s() == 0.0

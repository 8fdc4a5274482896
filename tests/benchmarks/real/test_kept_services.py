"""Kept journals of services: one place a set and policy, found again with all that was noted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.real.kept import keep_services, load_services


class Stopped:
    """A session whose daemon has stopped."""

    def __init__(self, text: str) -> None:
        self.text = text

    def keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal.db").write_text(self.text)


def test_what_is_kept_is_found_again_and_a_later_run_takes_its_place(tmp_path: Path):
    targets = {"a": 0.04}
    spelled = "benchmarks.peers.proportional:ProportionalPolicy"
    for text in ("first", "second"):
        keep_services(Stopped(text), 2, "adaptive?mode=slo", 3, targets, 15.0, tmp_path)
    other = keep_services(Stopped("other"), 2, spelled, 4, targets, 20.0, tmp_path)
    found = {one.policy: one for one in load_services(tmp_path)}
    assert found == {"adaptive?mode=slo": found["adaptive?mode=slo"], spelled: other}
    ours = found["adaptive?mode=slo"]
    assert (ours.seed, ours.first_cycle, ours.targets, ours.judged_from_s) == (2, 3, targets, 15.0)
    assert (ours.folder / "journal.db").read_text() == "second"
    assert ours.folder.parent == tmp_path / "2"

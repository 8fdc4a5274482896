"""What Lightning loads from the installed copy: it never raises, whatever else is in the way."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from dlsched.report import entry_points
from dlsched.runtime.allotment import install_reporter
from tests.report.jobs import run_job
from tests.report.test_import import old_python

# As Lightning does it, on old and new Pythons.
TRAINER = """
import sys
from importlib.metadata import entry_points

def load(group):
    every = entry_points()
    found = every.select(group=group) if hasattr(every, "select") else every.get(group, ())
    made = [callback for entry in found for callback in entry.load()()]
    assert len(list(found)) == 1
    return made

ours = load("lightning.pytorch.callbacks_factory")
theirs = load("pytorch_lightning.callbacks_factory")
"""
LIGHTNING = """
class Callback:
    pass
"""


def packages(place: Path, **files: str) -> Path:
    """A folder with these modules on it, dots for folders."""
    for name, text in files.items():
        target = place / (name.replace(".", "/") + ".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return place


@pytest.mark.process
@pytest.mark.parametrize("old", [False, True])
def test_each_group_gives_one_callback_of_its_family(tmp_path: Path, old: bool) -> None:
    command = old_python() if old else [sys.executable]
    image = packages(
        tmp_path / "image",
        **{"lightning.pytorch.__init__": LIGHTNING, "pytorch_lightning": LIGHTNING},
    )
    text = f"""
import lightning.pytorch, pytorch_lightning
from types import SimpleNamespace
{TRAINER}
assert [isinstance(each, lightning.pytorch.Callback) for each in ours] == [True]
assert [isinstance(each, pytorch_lightning.Callback) for each in theirs] == [True]
trainer = SimpleNamespace(callbacks=ours, global_rank=0, global_step=7, callback_metrics={{}})
ours[0].setup(trainer, None, "fit")
ours[0].on_train_batch_end(trainer)
"""
    path = f"{image}:{install_reporter(tmp_path)}"
    told = run_job(text, tmp_path / "metrics.jsonl", *command, "-W", "error", PYTHONPATH=path)
    assert [line["step"] for line in told] == [7]


@pytest.mark.process
@pytest.mark.parametrize(
    "files",
    [
        {},
        {"lightning.pytorch.__init__": "raise RuntimeError('half installed')"},
        {"lightning.pytorch.__init__": "Callback = None"},
        {"dlsched": "'the job has a module of this name'"},
        {"dlsched.report": "raise SystemExit('and it ends')"},
        {"dlsched.report.__init__": "from __future__ import braces"},
        {"queue": "raise SystemExit('a file of the job shadows the standard library')"},
    ],
    ids=["no Lightning", "broken", "too old", "other dlsched", "exits", "no syntax", "shadowed"],
)
def test_whatever_is_broken_the_trainer_gets_no_callback_and_no_error(
    tmp_path: Path, files: dict[str, str]
) -> None:
    image = packages(tmp_path / "image", **files)
    path = f"{image}:{install_reporter(tmp_path)}"
    run_job(f"{TRAINER}\nassert ours == theirs == []", tmp_path / "metrics.jsonl", PYTHONPATH=path)


def test_what_is_loaded_unguarded_can_be_read_by_any_python_3() -> None:
    ast.parse(Path(entry_points.__file__).read_text(), feature_version=(3, 4))


@pytest.mark.parametrize("family", ["lightning", "pytorch_lightning"])
def test_the_functions_are_what_the_entry_points_name(tmp_path: Path, family: str) -> None:
    installed = install_reporter(tmp_path)
    (info,) = installed.glob("*.dist-info")
    assert f"= dlsched_report:{family}\n" in (info / "entry_points.txt").read_text()
    assert (installed / "dlsched_report.py").is_file()
    assert callable(getattr(entry_points, family))

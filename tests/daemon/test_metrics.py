"""`metrics` in a job file on a real engine: read, and changed while it runs."""

from __future__ import annotations

import pytest

from tests.daemon.test_daemon import reaches, shows
from tools.base_image import BASE
from tools.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

JOB = f"""\
name: train
image: {BASE}
network: none
target: {{metric: accuracy, deliver: 0.9, finish: 0.97}}
command:
  - python
  - -c
  - |
    import itertools, time
    for epoch in itertools.count(1):
        print(f"Epoch {{epoch}}/25\\nval_accuracy: 0.5 - test_acc: 0.625", flush=True)
        time.sleep(0.2)
"""


def test_a_job_file_names_a_preset_and_another_pattern_while_it_runs(node: Session) -> None:
    node.drop("train", f"{JOB}metrics: keras\n")
    node.start("none")
    container = reaches(node, "train", "running")["container"]
    shows(node, "train", lambda one: one["metric"] == 0.5, "to report the preset's metric")
    node.drop("train", f"{JOB}metrics: {{pattern: 'test_acc: (?P<accuracy>[0-9.]+)'}}\n")
    after = shows(node, "train", lambda one: one["metric"] == 0.625, "to be read by the pattern")
    assert after["container"] == container, "no restart"

"""Puts a job file into a manager's watch folder, after the checks of `SubmittedFolder`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlsched.cluster.core.records import Submission
from dlsched.cluster.store import (
    ClusterStore,
    NotStorable,
    StaleRecord,
    StoreError,
    can_withdraw,
)
from dlsched.cluster.submitted import not_carried
from dlsched.config.inbox.submit import submit
from dlsched.config.metrics.resolving import Presets
from dlsched.config.yaml import Path as Place
from dlsched.model.spec import JobSpec


def submit_file(
    text: str, file_name: str, folder: Path, store: ClusterStore, by: str, presets: Presets
) -> tuple[JobSpec, str]:
    """Check the text and write it into the folder of the manager `by`; returns the job, and why it
    was not compared with the cluster's jobs, if it was not. Raises SpecError and OSError."""
    silent = ""

    def refusals(spec: JobSpec) -> Iterator[tuple[Place, str]]:
        nonlocal silent
        try:
            there = store.submissions().get(spec.name)
            if there is not None and there.by == by and there.name != file_name:
                if (folder / there.name).is_file():
                    yield ("name",), f"{spec.name} is the job of {there.name}"
            elif there and there.by != by and can_withdraw(nodes := store.nodes(), there.by):
                host = nodes[there.by].host or there.by
                yield ("name",), f"manager {host} has submitted a job of that name"
            else:
                store.check(Submission(spec.name, text, by, file_name))
        except (NotStorable, StaleRecord) as error:
            yield ("name",), str(error)
        except StoreError as error:
            silent = str(error)

    spec = submit(text, file_name, folder, refusals, presets, not_carried)
    return spec, silent

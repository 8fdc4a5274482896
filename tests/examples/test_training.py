"""examples/images/training: data, options and checkpoint files here, trainings in containers."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import numpy as np
import pytest
from docker.errors import APIError

from dlsched.runtime.allotment import LIB, install_reporter
from tests.examples.modules import example
from tests.waiting import until

FOLDER = Path(__file__).parents[2] / "examples" / "images" / "training"
DEADLINE_S = 120.0


@pytest.fixture(autouse=True)
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's modules are found as in its container, and forgotten afterwards."""
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


# ---- data


def test_the_bundle_is_every_digit_between_0_and_1() -> None:
    everything = example.digits.load()
    assert everything.images.shape == (1797, 1, 16, 16)
    assert everything.images.dtype == np.float32
    assert (everything.images.min(), everything.images.max()) == (0, 1)
    # The counts that the set's description gives for 0 to 9.
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(everything.labels).tolist() == counts


def test_the_split_is_stratified_complete_and_the_same_whatever_the_seed() -> None:
    everything = example.digits.load()
    np.random.seed(3)
    learn, held_out = example.digits.split(everything)
    assert (len(learn.labels), len(held_out.labels)) == (1347, 450)
    assert set(np.bincount(held_out.labels)) <= {44, 45, 46}
    both = np.concatenate([learn.images, held_out.images])
    assert sorted(map(bytes, both)) == sorted(map(bytes, everything.images))
    assert np.array_equal(example.digits.split(everything)[1].images, held_out.images)


# ---- checkpoint files


def test_the_newest_two_checkpoints_are_kept_and_nothing_else_of_ours(tmp_path: Path) -> None:
    (tmp_path / "step-x.ckpt").write_text("another's")
    for step in (9, 10, 100):
        example.checkpoints.save(tmp_path, step, b"at %d" % step)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-10.ckpt", "step-100.ckpt", "step-x.ckpt"]
    told: list[str] = []
    stored = [content for _, content in example.checkpoints.newest_first(tmp_path, told.append)]
    assert (stored, told) == ([b"at 100", b"at 10"], [])


@pytest.mark.parametrize("keep_bytes", [0, 20, 36])
def test_a_damaged_checkpoint_is_told_of_and_the_one_before_it_used(
    tmp_path: Path, keep_bytes: int
) -> None:
    example.checkpoints.save(tmp_path, 1, b"older")
    newest = example.checkpoints.save(tmp_path, 2, b"newer")
    newest.write_bytes(newest.read_bytes()[:keep_bytes])
    told: list[str] = []
    stored = [content for _, content in example.checkpoints.newest_first(tmp_path, told.append)]
    assert stored == [b"older"]
    assert told == [f"checkpoint {newest}: damaged: leaving it out"]


def test_what_is_saved_is_kept_beside_damaged_ones_of_later_steps(tmp_path: Path) -> None:
    for step in (180, 200):
        (tmp_path / f"step-{step}.ckpt").write_bytes(b"damaged")
    saved = example.checkpoints.save(tmp_path, 160, b"whole")
    stored = example.checkpoints.newest_first(tmp_path, lambda _: None)
    assert list(stored) == [(saved, b"whole")]


def test_what_killed_containers_left_half_written_does_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", killed)
        for step in (1, 2, 3):
            with pytest.raises(KeyboardInterrupt):
                example.checkpoints.save(tmp_path, step, b"half")
    example.checkpoints.save(tmp_path, 4, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["step-4.ckpt"]


def test_a_save_that_fails_leaves_the_older_one_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    example.checkpoints.save(tmp_path, 1, b"older")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        example.checkpoints.save(tmp_path, 2, b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["step-1.ckpt"]


# ---- in containers

Start = Callable[..., str]


@pytest.fixture
def start(
    docker_client: docker.APIClient,
    training_image: str,
    instance: str,
    cgroup_parent: str,
    tmp_path: Path,
) -> Start:
    """Start a strict container with the reporter in it, which reports to a file of that name."""
    reporter = install_reporter(tmp_path / "state")
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)

    def start(command: list[str], name: str, checkpoints: Path | None = None) -> str:
        binds = [f"{reporter}:{LIB}:ro", f"{out}:/out"]
        if checkpoints is not None:
            checkpoints.mkdir(exist_ok=True)
            checkpoints.chmod(0o777)
            binds.append(f"{checkpoints}:/ckpt")
        made = docker_client.create_container(
            training_image,
            ["python", *command],
            environment={
                "PYTHONPATH": f"/opt/site-packages:{LIB}",
                "DLSCHED_METRICS_FILE": f"/out/{name}.jsonl",
                "DLSCHED_ALLOTMENT_FILE": f"/out/{name}.json",
            },
            host_config=docker_client.create_host_config(
                network_mode="none",
                read_only=True,
                tmpfs={"/tmp": ""},
                cap_drop=["ALL"],
                binds=binds,
                cgroup_parent=cgroup_parent,
            ),
            labels={"dlsched.instance": instance},
        )
        docker_client.start(made["Id"])
        return str(made["Id"])

    return start


def ended(client: docker.APIClient, container: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a container, waited for."""
    code = client.wait(container, timeout=int(DEADLINE_S))["StatusCode"]
    stdout = client.logs(container, stderr=False).decode()
    return code, stdout, client.logs(container, stdout=False).decode()


def reported(folder: Path, name: str) -> list[dict[str, Any]]:
    """What the container of that name has reported so far."""
    whole = (folder / "out" / f"{name}.jsonl").read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def tensors(checkpoint: Path) -> dict[str, bytes]:
    """The tensors of a checkpoint (weights, optimiser, random numbers), as bytes by number."""

    content = checkpoint.read_bytes()[example.checkpoints.DIGEST_BYTES :]
    with zipfile.ZipFile(io.BytesIO(content)) as stored:
        found = {name: stored.read(name) for name in stored.namelist() if "/data/" in name}
    assert len(found) > 20
    return found


ALL_MODELS = """
import json, torch, train
torch.set_num_threads(1)
told = {}
for model in train.DEFAULTS:
    chosen = train.parse(["--model", model, "--steps", "90", "--width", "24", "--lr", "0.005"])
    training = train.Training(chosen)
    before = training.evaluate()
    while training.step < 90:
        training.advance()
    metric = training.network.metric
    told[model] = [metric, before[metric], training.evaluate()[metric]]
print(json.dumps(told))
"""


@pytest.mark.engine
def test_every_model_learns(docker_client: docker.APIClient, start: Start) -> None:
    code, stdout, stderr = ended(docker_client, start(["-c", ALL_MODELS], "all"))
    assert code == 0, stderr
    told = json.loads(stdout)
    assert sorted(told) == ["birnn", "cnn", "gru", "lstm", "mlp", "vae"]
    for model, (metric, before, after) in told.items():
        if model == "vae":
            assert metric == "elbo"
            assert 0 < after < before - 20, model
        else:
            assert metric == "accuracy"
            assert before < 0.25, model
            assert before + 0.1 < after <= 1, model


@pytest.mark.engine
def test_a_stopped_training_acknowledges_and_resumes_as_if_it_had_not_been_stopped(
    docker_client: docker.APIClient, start: Start, tmp_path: Path
) -> None:
    steps = ["--steps", "300", "--evaluate-every", "30"]
    command = ["train.py", "--model", "mlp", "--width", "256", "--threads", "1", *steps]
    whole = start(command, "whole", tmp_path / "whole")
    for attempt in range(5):
        name = f"parts-{attempt}"
        parts = start(command, name, tmp_path / name)
        until(lambda parts=parts: b"step 30 " in docker_client.logs(parts, stderr=False), "step 30")
        with suppress(APIError):  # it has ended
            docker_client.kill(parts, "SIGTERM")
        code, before, stderr = ended(docker_client, parts)
        if "step 300 " not in before:
            break  # else the stop came too late
    assert code == 143, stderr
    assert stderr.startswith("stopped after step ")
    saved = [line["checkpoint"] for line in reported(tmp_path, name) if "checkpoint" in line][-1]
    step = saved["step"]
    assert 30 <= step < 300
    assert saved["path"] == f"/ckpt/step-{step}.ckpt"

    code, after, stderr = ended(docker_client, start(command, "rest", tmp_path / name))
    assert code == 0, stderr
    assert stderr == f"checkpoint {saved['path']}: resuming at step {step}\n"
    code, uninterrupted, stderr = ended(docker_client, whole)
    assert code == 0, stderr
    assert before + after == uninterrupted
    told = [line for line in reported(tmp_path, "whole") if "elbo" in line or "accuracy" in line]
    assert {line["total_steps"] for line in told} == {300}
    final = [tensors(tmp_path / folder / "step-300.ckpt") for folder in ("whole", name)]
    assert final[0] == final[1]


@pytest.mark.engine
def test_a_training_that_is_to_be_moved_saves_itself_and_holds_until_that_is_over(
    docker_client: docker.APIClient, start: Start, tmp_path: Path
) -> None:
    command = ["train.py", "--model", "mlp", "--width", "64", "--steps", "1000000"]
    every = ["--evaluate-every", "1", "--checkpoint-every", "1000000"]
    job = start([*command, *every], "job", tmp_path / "job")

    def told() -> bytes:
        return bytes(docker_client.logs(job, stderr=False))

    def allot(**words: object) -> None:
        partial = tmp_path / "out" / "partial"
        partial.write_text(json.dumps(words))
        partial.rename(tmp_path / "out" / "job.json")

    until((tmp_path / "out" / "job.jsonl").exists, "the job's reports")
    allot(checkpoint_wanted=True)
    until(lambda: any("checkpoint" in line for line in reported(tmp_path, "job")), "a checkpoint")
    saved = [line["checkpoint"]["step"] for line in reported(tmp_path, "job") if len(line) == 3]
    # The engine logs what a job prints later than the job saves itself.
    until(
        lambda: (told().splitlines() or [b""])[-1].startswith(b"step %d " % saved[-1]),
        "the step of the checkpoint",
    )
    held = told()
    time.sleep(0.5)
    assert told() == held
    allot(checkpoint_wanted=False)
    until(lambda: told() != held, "it goes on")
    docker_client.kill(job, "SIGTERM")
    assert ended(docker_client, job)[0] == 143


@pytest.mark.timed
def test_holding_ends_with_a_stop_with_the_wish_and_with_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, asked = threading.Event(), []
    example.train.hold(lambda: bool(asked.append(1)) or len(asked) < 3, stop)
    assert len(asked) == 3
    stop.set()
    example.train.hold(lambda: True, stop)
    monkeypatch.setattr(example.train, "HOLD_S", 0.1)
    example.train.hold(lambda: True, threading.Event())


@pytest.mark.engine
def test_lightning_without_a_word_of_ours_and_trainer_with_one_line_report(
    docker_client: docker.APIClient, start: Start, tmp_path: Path
) -> None:
    assert "dlsched" not in (FOLDER / "lightning_digits.py").read_text()
    lines = (FOLDER / "transformers_digits.py").read_text().splitlines()
    code = [line.strip() for line in lines if "ProgressCallback" in line]
    assert code == [
        "from dlsched.report.transformers import ProgressCallback",
        "callbacks=[ProgressCallback()],",
    ]
    short = ["--steps", "22", "--evaluate-every", "11", "--width", "16"]
    runs = {
        "lightning": start(["lightning_digits.py", "--epochs", "2", "--width", "4"], "lightning"),
        "trainer": start(["transformers_digits.py", *short], "trainer"),
    }
    for name, container in runs.items():
        exit_code, stdout, stderr = ended(docker_client, container)
        assert exit_code == 0, stderr
        assert "accuracy" in stdout
        told = reported(tmp_path, name)
        assert max(line["step"] for line in told) == 22
        values = [line["accuracy"] for line in told if "accuracy" in line]
        assert values
        assert all(0 < value <= 1 for value in values)

"""The callbacks under the real Lightning and the real Hugging Face Trainer, in a container."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.runtime.allotment import Allotment, job_dir, write_allotment
from tests.report.conftest import Start

pytestmark = [pytest.mark.slow, pytest.mark.engine]

DEADLINE_S = 300.0
Trained = Callable[[str], dict[str, Any]]

DATA = """
import json, os, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
torch.manual_seed(0)
x = torch.randn(640, 4)
y = (x.sum(1) > 0).long()
STEP_S = 0.01  # so that a step is long enough, on any host, to be paced and told of

def tell(**more):
    from dlsched.report.writer import current
    current().flush()
    with open(os.environ["DLSCHED_METRICS_FILE"]) as file:
        print(json.dumps({"lines": [json.loads(line) for line in file], **more}))
"""
LIGHTNING = """
from types import ModuleType
import pytorch_lightning as pl

class Linear(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        time.sleep(STEP_S)
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        hits = self.layer(batch[0]).argmax(1) == batch[1]
        self.log("val_acc", hits.float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)

def trainer():
    return pl.Trainer(max_epochs=2, default_root_dir="/tmp/run", accelerator="cpu", logger=False,
                      enable_progress_bar=False, enable_model_summary=False)

def ours(made):
    return [each for each in made.callbacks if type(each).__module__.startswith("dlsched")]

def fit(made):
    torch.manual_seed(1)
    model = Linear()
    made.fit(model, data, data)
    return [each for each in model.layer.weight.flatten().tolist()]

# An environment that is broken in this way or that: a Trainer as without us.
sys.modules["dlsched"] = ModuleType("dlsched")
assert ours(trainer()) == []
del sys.modules["dlsched"]
base = pl.Callback
del pl.Callback
broken = trainer()
assert ours(broken) == []
pl.Callback = base
alone = fit(broken)

made = trainer()
assert len(ours(made)) == 1
assert fit(made) == alone, "the same weights with us as without"
saved = torch.load(made.checkpoint_callback.best_model_path, weights_only=False)
assert not any("Progress" in key for key in saved["callbacks"]), saved["callbacks"]
tell(accuracy=float(made.callback_metrics["val_acc"]))
"""
TRANSFORMERS = """
from dlsched.report.transformers import ProgressCallback
from transformers import Trainer, TrainingArguments

class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels=None):
        if self.training:
            time.sleep(STEP_S)
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

examples = [{"x": each, "labels": label} for each, label in zip(x, y)]
trainer = Trainer(
    Linear(),
    TrainingArguments("/tmp/run", num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch",
                      logging_steps=10, report_to=[], disable_tqdm=True, use_cpu=True),
    train_dataset=examples,
    eval_dataset=examples,
    compute_metrics=lambda seen: {
        "accuracy": float((seen.predictions.argmax(1) == seen.label_ids).mean())
    },
    callbacks=[ProgressCallback()],
)
trainer.train()
tell(accuracy=trainer.state.log_history[-2]["eval_accuracy"])
"""
THREADS = """
from dlsched.report import fit_to_allotment
torch.set_num_threads(4)
fit_to_allotment()
assert torch.get_num_threads() == 1, torch.get_num_threads()
assert torch.randn(64, 64).mm(torch.randn(64, 64)).shape == (64, 64)
"""


@pytest.fixture
def train(
    start: Start, docker_client: docker.APIClient, training_image: str, tmp_path: Path
) -> Trained:
    """Run a training to its end as a job of 0.3 cores that paces itself; its last line, as JSON."""
    write_allotment(job_dir(tmp_path, "train"), Allotment(cpu_cores=0.3, gpu_share=0.2))

    def trained(program: str) -> dict[str, Any]:
        container = start("train", training_image, program)
        ended = docker_client.wait(container, timeout=DEADLINE_S)
        logs = docker_client.logs(container).decode()
        assert ended["StatusCode"] == 0, logs
        (told,) = (line for line in logs.splitlines() if line.startswith('{"lines"'))
        answer: dict[str, Any] = json.loads(told)
        return answer

    return trained


def last(lines: list[dict[str, Any]], key: str) -> Any:
    """The value that was told last of that."""
    return [line[key] for line in lines if key in line][-1]


def test_a_lightning_script_reports_unchanged_and_trains_the_same(train: Trained) -> None:
    told = train(DATA + LIGHTNING)
    lines = told["lines"]
    assert last(lines, "step") == 80
    assert last(lines, "val_acc") == last(lines, "accuracy") == told["accuracy"]
    assert 0 < last(lines, "train_loss") < 1
    checkpoint = last(lines, "checkpoint")
    assert checkpoint["step"] == 80
    assert checkpoint["path"].startswith("/tmp/run/")
    assert 0.1 < last(lines, "gpu")["busy_ratio"] < 0.25


def test_a_hugging_face_script_reports_by_one_line(train: Trained) -> None:
    told = train(DATA + THREADS + TRANSFORMERS)
    lines = told["lines"]
    assert last(lines, "step") == 160
    assert last(lines, "accuracy") == told["accuracy"]
    assert 0 < last(lines, "loss") < 2
    assert last(lines, "checkpoint") == {"step": 160, "path": "/tmp/run/checkpoint-160"}
    assert 0.1 < last(lines, "gpu")["busy_ratio"] < 0.25

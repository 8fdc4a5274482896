"""Learning curves out of the lines that training programs print, in each program's own format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.model.facts import Sample
from dlsched.model.sources import LogPattern
from dlsched.model.state import NAMES_KEPT
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.samples import Step, When

Curve = list[tuple[int | None, float]]
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "read-logs.md"

PRESETS = {
    "nanoGPT": "nanogpt",
    "Ultralytics YOLO": "yolo",
    "Hugging Face Trainer": "hf-trainer",
    "Keras": "keras",
    "timm": "timm",
    "DeiT, PVT, MAE": "deit",
    "PyTorch's MNIST example": "pytorch-mnist",
    "Lightning's progress bar": "lightning",
    "Stable-Baselines3": "sb3",
    "XGBoost": "xgboost",
    "LightGBM": "lightgbm",
    "LightGBM's command line": "lightgbm-cli",
    "fairseq": "fairseq",
    "Flax's examples": "flax",
}


def preset(name: str) -> LogPattern:
    (source,) = package_presets().sources(MetricsKeys(base=name))
    assert isinstance(source, LogPattern)
    return source


TRAINERS: dict[str, tuple[str, Step | None]] = {
    trainer: (preset(name).pattern, preset(name).step) for trainer, name in PRESETS.items()
}
"""The presets' patterns, which docs/how-to/read-logs.md recommends."""


def samples(
    pattern: str,
    text: str,
    step: Step | None = None,
    when: When | None = None,
) -> list[Sample]:
    """The samples of a program that prints these lines, a minute between its writes. A form feed
    in the text ends a write."""
    lines, batch = LogLines(pattern, step, when), LogBatch()
    for minute, write in enumerate(text.encode().split(b"\f")):
        lines.take(write, lines.parsed(write), 60.0 * minute, batch)
    assert batch.refused is None, batch.refused
    return batch.samples


def printed(trainer: str, text: str, when: When | None = None) -> list[Sample]:
    """The samples of that program."""
    pattern, step = TRAINERS[trainer]
    return samples(pattern, text, step, when)


def curve(found: Sequence[Sample], metric: str) -> Curve:
    """What a policy fits: steps and values."""
    return [(one.step, value) for one in found for name, value in one.metrics if name == metric]


def test_the_page_recommends_these_patterns() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \| (?:`(\w+)`)? ?\|$", PAGE.read_text(), re.MULTILINE)
    told = {name: (pattern.replace(r"\|", "|"), step or None) for name, pattern, step in rows}
    assert {**told, "timm": TRAINERS["timm"]} == TRAINERS
    assert f"dlsched.metrics.pattern: '{TRAINERS['timm'][0]}'" in PAGE.read_text()


@pytest.mark.parametrize(
    ("trainer", "text", "metric", "expected"),
    [
        (
            "nanoGPT",
            """\
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2664, time 34155.93ms, mfu -100.00%
iter 10: loss 3.2408, time 9.68ms, mfu 38.47%
step 250: train loss 1.9673, val loss 2.0700
saving checkpoint to out-shakespeare-char
step 500: train loss 1.5271, val loss 1.7243
""",
            "val_loss",
            [(0, 4.2823), (250, 2.07), (500, 1.7243)],
        ),
        (
            "Keras",
            """\
Epoch 1/25
\r1/1875 [..............................] - ETA: 1:12 - loss: 2.4 - accuracy: 0.0625
1875/1875 [====] - 7s 4ms/step - loss: 0.49 - accuracy: 0.82 - val_loss: 0.41 - val_accuracy: 0.8516
Epoch 2/25
1875/1875 [====] - 6s 3ms/step - loss: 0.37 - accuracy: 0.86 - val_loss: 0.38 - val_accuracy: 0.8616
""",
            "accuracy",
            [(1, 0.8516), (2, 0.8616)],
        ),
        (
            "DeiT, PVT, MAE",
            """\
{"train_loss": 6.91, "test_loss": 6.8, "test_acc1": 1.59, "test_acc5": 5.2, "epoch": 0, "n": 28}
{"train_loss": 3.91, "test_loss": 1.8, "test_acc1": 67.59, "test_acc5": 88.2, "epoch": 50, "n": 28}
""",
            "acc1",
            [(0, 1.59), (50, 67.59)],
        ),
        (
            "PyTorch's MNIST example",
            """\
Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300
Train Epoch: 1 [640/60000 (0%)]\tLoss: 2.30640

Test set: Average loss: 0.0485, Accuracy: 9843/10000 (98%)

Train Epoch: 2 [0/60000 (0%)]\tLoss: 2.300

Test set: Average loss: 0.0485, Accuracy: 9867/10000 (99%)
""",
            "accuracy",
            [(1, 98.0), (2, 99.0)],
        ),
        (
            "XGBoost",
            """\
[0]\tvalidation_0-auc:0.90\tvalidation_1-auc:0.67
[1]\tvalidation_0-auc:0.91\tvalidation_1-auc:0.671
""",
            "auc",
            [(0, 0.67), (1, 0.671)],
        ),
        (
            "LightGBM",
            """\
[50]\tvalid_0's auc: 0.84\tvalid_1's auc: 0.836
[100]\tvalid_0's auc: 0.85\tvalid_1's auc: 0.841
""",
            "auc",
            [(50, 0.836), (100, 0.841)],
        ),
        (  # each rank prints the same evaluation
            "LightGBM's command line",
            "[LightGBM] [Info] Iteration:63, valid_1 auc : 0.8179\n" * 4
            + "[LightGBM] [Info] Iteration:64, valid_1 auc : 0.8181\n" * 4,
            "auc",
            [(63, 0.8179), (64, 0.8181)],
        ),
        (
            "fairseq",
            """\
| epoch 001 | valid on 'valid' subset | valid_loss 6.43844 | valid_ppl 50 | num_updates 21896
2020-06-01 | INFO | valid | epoch 002 | valid on 'valid' subset | valid_loss 5.1 | num_updates 43792
""",
            "valid_loss",
            [(21896, 6.43844), (43792, 5.1)],
        ),
        (
            "Flax's examples",
            """\
I0712 train.py:151] epoch:  1, train_loss: 0.21, test_loss: 0.06, test_accuracy: 98.11
I0712 train.py:151] epoch:  2, train_loss: 0.21, test_loss: 0.06, test_accuracy: 98.62
""",
            "test_accuracy",
            [(1, 98.11), (2, 98.62)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value in PRESETS else "",
)
def test_evaluations_are_read_as_the_program_prints_them(
    trainer: str, text: str, metric: str, expected: Curve
) -> None:
    assert curve(printed(trainer, text), metric) == expected


@pytest.mark.parametrize(
    ("trainer", "train", "valid"),
    [
        ("XGBoost", "train-auc:0.99", "valid-auc:0.90"),
        ("XGBoost", "training-auc:0.99", "test-auc:0.90"),
        ("LightGBM", "training's auc: 0.99", "valid_0's auc: 0.90"),
        ("LightGBM", "train's auc: 0.99", "test's auc: 0.90"),
    ],
)
def test_the_training_set_is_no_evaluation(trainer: str, train: str, valid: str) -> None:
    text = f"[5]\t{train}\n[6]\t{valid}\t{train}\n[7]\t{train}\t{valid}\n[8]\t{valid}\n"
    assert curve(printed(trainer, text), "auc") == [(6, 0.9), (7, 0.9), (8, 0.9)]


def test_ultralytics_prints_the_epoch_on_a_progress_bar_and_the_metric_below() -> None:
    head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    text = ""
    for epoch, (map50, map_) in enumerate([(0.551, 0.331), (0.612, 0.402), (0.640, 0.431)], 1):
        text += head
        for done in (0, 6, 12, 16, 16):
            text += f"\r      {epoch}/300      6.73G      1.21      1.02      1.1     "
            text += f"12        640: {done * 100 // 16:3d}%|###| {done}/16 [00:03<00:00,  4.3it/s]"
        text += "\n                 Class     Images  Instances      Box(P          R      mAP50\n"
        text += f"                   all        722       1444      0.939      0.927      {map50}"
        text += f"      {map_}\n"
    found = printed("Ultralytics YOLO", text)
    assert curve(found, "map") == [(1, 0.331), (2, 0.402), (3, 0.431)]
    assert curve(found, "map50") == [(1, 0.551), (2, 0.612), (3, 0.64)]


def test_hugging_face_trainer_counts_evaluations() -> None:
    text = """\
{'loss': 0.6931, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5}
 50%|#####     | 17/34 [00:11<00:09,  1.81it/s]
100%|##########| 9/9 [00:00<00:00, 33.2it/s]
{'eval_loss': 0.41, 'eval_accuracy': 0.81, 'eval_runtime': 0.3, 'epoch': 0.5882}
\f{'eval_loss': '0.36', 'eval_accuracy': '0.85', 'eval_runtime': '0.3', 'epoch': '1'}
"""
    found = printed("Hugging Face Trainer", text)
    assert curve(found, "eval_loss") == [(1, 0.41), (2, 0.36)]
    assert curve(found, "accuracy") == [(1, 0.81), (2, 0.85)]
    assert samples(TRAINERS["Hugging Face Trainer"][0], text) == found, (
        "without a group step, evaluations are counted"
    )


def test_timm_counts_only_the_last_batch_of_a_validation() -> None:
    text = ""
    for top in (61.2, 68.9, 74.312):
        for at in (0, 24, 48):
            text += f"Test: [{at:>4d}/48]  Time: 0.15 (0.2)  Loss:  0.98 (1.1)  "
            text += f"Acc@1:  76.250 ({top - (48 - at) / 10:>7.3f})  Acc@5:  93.1 ( 92.2)\n"
        text += "\f"
    found = printed("timm", text, preset("timm").when)
    assert curve(found, "acc1") == [(1, 61.2), (2, 68.9), (3, 74.312)]
    assert all(dict(one.metrics).keys() == {"acc1"} for one in found)


def test_lightnings_bar_has_a_value_for_sure_when_the_next_epoch_begins() -> None:
    """At 100% it still has the accuracy of the epoch before: validation follows."""
    text, before = "", ""
    for epoch, accuracy in enumerate((0.91, 0.95, 0.981)):
        now = f", val_acc={accuracy}"
        for name, part, shown in (
            (epoch - 1, "  0%", before),
            (epoch, "  0%", before),
            (epoch, "100%", before),
            (epoch, "100%", now),
        ):
            text += f"Epoch {max(name, 0)}: {part}|###| 94/94 [00:03<00:00, 30.1it/s{shown}]\r"
        before = now
    found = printed("Lightning's progress bar", text)
    assert curve(found, "accuracy") == [(0, 0.91), (1, 0.95)]


def sb3(*rows: tuple[int, str]) -> str:
    return "".join(
        f"""\
-----------------------------------------
| rollout/                |             |
|    ep_len_mean          | 22          |
|    ep_rew_mean          | {reward:<11} |
| time/                   |             |
|    fps                  | 1012        |
|    iterations           | 1           |
|    total_timesteps      | {step:<11} |
-----------------------------------------
"""
        for step, reward in rows
    )


def test_stable_baselines_prints_the_step_below_the_reward() -> None:
    text = sb3((2048, "-1.1e+03"), (4096, "-980"), (6144, "-640"))
    found = printed("Stable-Baselines3", text)
    assert curve(found, "reward") == [(2048, -1100.0), (4096, -980.0), (6144, -640.0)]
    carried = samples(TRAINERS["Stable-Baselines3"][0], text, "carried")
    assert curve(carried, "reward") == [(None, -1100.0), (2048, -980.0), (4096, -640.0)]


@pytest.mark.parametrize("form", ["\r{}: val_acc={}", "{}: val_acc={}\r", "\r{}: val_acc={}\n"])
def test_a_bar_without_a_step_that_is_drawn_again_is_one_evaluation(form: str) -> None:
    values = [0.96] * 6 + [0.97] * 3
    text = "\f".join(form.format(at, value) for at, value in enumerate(values)) + "\f\n"
    found = samples(r"^[0-9]: val_acc=(?P<accuracy>[0-9.]+)", text)
    assert curve(found, "accuracy") == [(1, 0.96), (2, 0.97)]
    lines = text.replace("\r", "").replace("\f", "\n\f")
    assert len(samples(r"^[0-9]: val_acc=(?P<accuracy>[0-9.]+)", lines)) == len(values)


@pytest.mark.parametrize("step", [None, "evaluations"])
def test_torchrun_with_four_ranks_counts_one_evaluation(step: Step | None) -> None:
    text = "\f".join(
        "".join(f"[default{rank}]:epoch {epoch} accuracy {value}\n" for rank in range(4))
        for epoch, value in ((1, 0.91), (2, 0.91), (3, 0.93))
    )
    pattern = r"default[0-9]+\]:epoch (?P<step>[0-9]+) accuracy (?P<accuracy>[0-9.]+)"
    if step is not None:
        pattern = pattern.replace("(?P<step>[0-9]+)", "[0-9]+")
    found = samples(pattern, text, step)
    assert curve(found, "accuracy") == [(1, 0.91), (2, 0.91), (3, 0.93)]


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_a_diverged_training_says_so_although_the_pattern_asks_for_digits(word: str) -> None:
    text = f"step 100: train loss 2.1, val loss 2.2\nstep 200: train loss {word}, val loss {word}\n"
    pattern = r"step (?P<step>[0-9]+): train loss [-]?[0-9.]+, val loss (?P<val_loss>-?[0-9.]+)"
    first, second = samples(pattern, text)
    assert (first.metrics, first.diverged) == ((("val_loss", 2.2),), ())
    assert (second.step, second.metrics) == (200, ())
    assert second.diverged == (("val_loss", f"{float(word):g}"),)


def test_names_are_seen_until_a_metric_is_read() -> None:
    """Preset keras after `compile(metrics=["f1"])`."""
    lines = LogLines(*TRAINERS["Keras"])
    read_into(lines, "Epoch 1/3\n9/9 - 7s - 4ms/step - f1: 0.85 - loss: 0.41 - val_f1: 0.88\n")
    assert lines.fact.named == ("f1", "loss", "val_f1")
    assert (lines.fact.lines, lines.fact.matched) == (2, 1)
    read_into(lines, "9/9 - 7s - val_accuracy: 0.8\n")
    assert lines.fact.named == ()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{'eval_f1': 0.5, 'epoch': 1}", ("eval_f1", "epoch")),
        ('{"acc": "0.5"}', ("acc",)),
        ("acc=-.5 time: 12:30 http://1", ("acc", "time")),
        ("\x1b[31mred: 1 \u202e: 2 acc : 3", ("acc",)),
        ("x" * 65 + "=1", ()),
        ("loss: nan", ()),
    ],
)
def test_what_stands_before_a_number_is_a_name(line: str, named: tuple[str, ...]) -> None:
    lines = LogLines("^accuracy (?P<accuracy>[0-9.]+)")
    read_into(lines, line + "\n")
    assert lines.fact.named == named


def test_names_in_a_hostile_log_are_bounded() -> None:
    lines = LogLines("^accuracy (?P<accuracy>[0-9.]+)")
    read_into(lines, " ".join(f"m{number}=1" for number in range(400)) + "\n")
    assert len(lines.fact.named) == NAMES_KEPT


def read_into(lines: LogLines, text: str) -> None:
    lines.take(text.encode(), lines.parsed(text.encode()), 0.0, LogBatch())


def test_an_empty_group_is_refused_by_name() -> None:
    batch = LogBatch()
    lines = LogLines("acc: (?P<acc>[0-9.]*)")
    lines.take(b"x", lines.parsed(b"epoch 1 acc: none\n"), 0.0, batch)
    assert (
        batch.refused
        == "acc: the pattern's group is empty at 'epoch 1 acc: none': there is no number to read"
    )

"""Train the five networks on scikit-learn's digits and write models/ anew.

Owns training and export; nothing here is needed to run a model. For a seed, a machine and the
pinned packages the result is the same each time: one thread, deterministic algorithms, a fixed
number of epochs, and no look at the test images before the last one is over.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import classifier
import digits
import numpy as np
import onnx
import torch
from networks import NETWORKS
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

BATCH = 64
EPOCHS = 16
PEAK_RATE = 4e-3
SIZE_LIMIT_BYTES = 2 << 20
COST_BATCH = 64
COST_BATCHES = 100


def distort(images: Tensor, random: torch.Generator) -> Tensor:
    """Turn, scale and shift each image a little: 1,347 digits are few to learn from."""
    count = len(images)

    def uniform(reach: float) -> Tensor:
        return (torch.rand(count, generator=random) * 2 - 1) * reach

    turn, scale = uniform(math.radians(10)), 1 + uniform(0.1)
    cosine, sine = scale * turn.cos(), scale * turn.sin()
    rows = [cosine, -sine, uniform(0.1), sine, cosine, uniform(0.1)]
    grid = functional.affine_grid(
        torch.stack(rows, dim=1).view(count, 2, 3), list(images.shape), align_corners=False
    )
    return functional.grid_sample(images, grid, align_corners=False)


def train(network: nn.Module, inputs: Tensor, labels: Tensor, seed: int) -> None:
    """Fit `network` in place: AdamW, one rise and fall of the rate over all epochs."""
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
    steps = EPOCHS * math.ceil(len(inputs) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, total_steps=steps)
    network.train()
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(inputs), generator=random).split(BATCH):
            logits = network(distort(inputs[chosen], random))
            loss = functional.cross_entropy(logits, labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def export(network: nn.Module) -> bytes:
    """The network as one self-contained ONNX file with a free batch size."""
    program = torch.onnx.export(
        network.eval(),
        (torch.zeros(2, 1, digits.LARGE, digits.LARGE),),
        dynamo=True,
        external_data=False,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    model = program.model_proto
    # The exporter notes stack traces with the paths of this machine: not for a published file,
    # whose digest would depend on them.
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
        *model.graph.initializer,
    ):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def describe(name: str, content: bytes, network: nn.Module, test: digits.Digits) -> dict[str, Any]:
    """The catalogue's entry, measured on the exported file as the containers run it."""
    predict = classifier.open_session(content, threads=1)
    accuracy = float((predict(test.inputs) == test.labels).mean())
    some = test.batch(0, COST_BATCH).inputs
    predict(some)  # the first one also allocates
    began_s = time.process_time()
    for _ in range(COST_BATCHES):
        predict(some)
    batch_s = (time.process_time() - began_s) / COST_BATCHES
    return {
        "file": f"{name}.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "accuracy": round(accuracy, 4),
        "parameters": sum(weights.numel() for weights in network.parameters()),
        "cpu_ms_per_batch_of_64": round(batch_s * 1e3, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the split, the weights, the order")
    parser.add_argument("--output", type=Path, default=classifier.MODELS, help="folder to fill")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)

    images, answers = load_digits(return_X_y=True)
    images = images.reshape(-1, digits.SMALL, digits.SMALL)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, answers, test_size=0.25, stratify=answers, random_state=options.seed
    )
    split = output / digits.TEST_SPLIT.name
    digits.save(split, test_images, test_labels)
    test = digits.load(split)
    inputs = torch.from_numpy(digits.upsample(train_images))
    labels = torch.from_numpy(train_labels.astype(np.int64))

    print(f"seed {options.seed}, {len(labels)} images to learn from, {len(test.labels)} held out")
    head = f"{'model':<10} {'accuracy':>8} {'parameters':>10} {'KiB':>5}"
    print(f"{head} {'ms CPU/64':>9} {'took s':>6}")
    models = {}
    for name, build in NETWORKS.items():
        began = time.monotonic()
        torch.manual_seed(options.seed)
        network = build()
        train(network, inputs, labels, options.seed)
        content = export(network)
        (output / f"{name}.onnx").write_bytes(content)
        entry = models[name] = describe(name, content, network, test)
        print(
            f"{name:<10} {entry['accuracy']:>8.4f} {entry['parameters']:>10,}"
            f" {entry['bytes'] >> 10:>5} {entry['cpu_ms_per_batch_of_64']:>9.2f}"
            f" {time.monotonic() - began:>6.0f}",
            flush=True,
        )

    catalogue = {
        "seed": options.seed,
        "epochs": EPOCHS,
        "trained_with": {name: version(name) for name in ("torch", "scikit-learn", "onnxruntime")},
        "test_split": {
            "file": split.name,
            "images": len(test.labels),
            "sha256": hashlib.sha256(split.read_bytes()).hexdigest(),
        },
        "models": models,
    }
    (output / classifier.CATALOGUE.name).write_text(json.dumps(catalogue, indent=2) + "\n")
    size_bytes = sum(path.stat().st_size for path in output.iterdir())
    print(f"{size_bytes:,} bytes in {output}")
    if size_bytes > SIZE_LIMIT_BYTES:
        raise SystemExit(f"{output}: {size_bytes:,} bytes, over the limit of {SIZE_LIMIT_BYTES:,}")


if __name__ == "__main__":
    main()

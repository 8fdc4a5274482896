"""Train one of six networks on the bundled digits, reporting, checkpointing, resuming.

Owns the loop, its options and its signals. SIGTERM ends it at the next step with exit code 143,
SIGUSR1 lets it go on; both save it first where there is a checkpoint folder. When dlsched wants to
move it, it saves itself and holds, so that no step is made in vain. For a seed and a number of
threads the result is the same each time, also when it was stopped and resumed.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKPOINTS = Path("/ckpt")
SHIFT = 2
THREADS = 2
HOLD_S = 60.0
"""After a save that dlsched asked for: an agent that died meanwhile must not hold it for ever."""
STOPPED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a model is trained with unless the command line says otherwise."""

    steps: int
    every: int
    batch: int
    rate: float
    width: int


DEFAULTS = {
    "cnn": Defaults(steps=700, every=20, batch=128, rate=2e-3, width=32),
    "mlp": Defaults(steps=800, every=20, batch=256, rate=2e-4, width=1024),
    "vae": Defaults(steps=1000, every=25, batch=256, rate=1e-3, width=768),
    "lstm": Defaults(steps=600, every=15, batch=256, rate=4e-3, width=192),
    "gru": Defaults(steps=600, every=15, batch=256, rate=2e-3, width=192),
    "birnn": Defaults(steps=600, every=15, batch=256, rate=2e-3, width=256),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, a model's own defaults among them."""
    parser = argparse.ArgumentParser(prog="train.py", description=__doc__.splitlines()[0])
    known = sorted(DEFAULTS)
    parser.add_argument("--model", choices=known, default="cnn", help="network (default cnn)")
    parser.add_argument("--steps", type=int, help="steps in all")
    parser.add_argument(
        "--evaluate-every", type=int, dest="every", help="steps between evaluations"
    )
    parser.add_argument("--batch", type=int, help="images a step")
    parser.add_argument("--lr", type=float, dest="rate", help="learning rate of Adam")
    parser.add_argument("--width", type=int, help="channels, or units of a layer")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument(
        "--threads",
        type=int,
        help="torch's threads (default: as many as suit what dlsched allots, up to 2)",
    )
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="where to save and resume (default /ckpt where something is mounted there)",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        metavar="EVALUATIONS",
        default=4,
        help="evaluations between checkpoints (default 4)",
    )
    chosen = parser.parse_args(arguments)
    for name, value in asdict(DEFAULTS[chosen.model]).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    if chosen.checkpoint_dir is None:
        # Only a mount: what is saved in the container's own layer goes with the container.
        if CHECKPOINTS.is_mount():
            chosen.checkpoint_dir = CHECKPOINTS
    elif not chosen.checkpoint_dir.is_dir():
        parser.error(f"argument --checkpoint-dir: {chosen.checkpoint_dir} is not a directory")
    return chosen


@dataclass(frozen=True, slots=True)
class Asked:
    """What signals have asked of the training; it looks between two steps."""

    stop: threading.Event
    save: threading.Event


def heed_signals() -> Asked:
    """From now on signals ask for what `Asked` holds; process 1 would not get them otherwise."""
    asked = Asked(threading.Event(), threading.Event())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.stop.set())
    signal.signal(signal.SIGUSR1, lambda *_: asked.save.set())
    return asked


class Training:
    """One network, its optimiser and its random numbers: all that a checkpoint holds."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        import digits
        import networks
        import torch

        # What a checkpoint must share with the training that resumes from it.
        self.recipe = {
            name: getattr(chosen, name) for name in ("model", "width", "batch", "rate", "seed")
        }
        torch.manual_seed(chosen.seed)
        self.network: Any = networks.NETWORKS[chosen.model](chosen.width)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=chosen.rate)
        self.random = torch.Generator().manual_seed(chosen.seed)
        self.batch = chosen.batch
        self.step = 0
        self.loss = torch.zeros(())
        self._shift = networks.shift
        learn, held_out = digits.split(digits.load())
        self._learn = [torch.from_numpy(learn.images), torch.from_numpy(learn.labels)]
        self._held_out = [torch.from_numpy(held_out.images), torch.from_numpy(held_out.labels)]

    def advance(self) -> None:
        """Make one step."""
        import torch

        images, labels = self._learn
        at = torch.randint(0, len(labels), (self.batch,), generator=self.random)
        moved = self._shift(images[at], SHIFT, self.random)
        loss = self.network.loss(moved, labels[at], self.random)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.step += 1
        self.loss = loss.detach()

    def evaluate(self) -> dict[str, float]:
        """Loss of the last batch, and the network's own measure of the held-out images."""
        import torch

        with torch.no_grad():
            held_out = self.network.measure(*self._held_out)
        return {"loss": float(self.loss), self.network.metric: held_out}

    def dump(self) -> bytes:
        """All that `load` needs to go on from here."""
        import torch

        into = io.BytesIO()
        state = {
            "recipe": self.recipe,
            "step": self.step,
            "loss": self.loss,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": self.random.get_state(),
        }
        torch.save(state, into)
        return into.getvalue()

    def load(self, content: bytes) -> None:
        """Go on from what `dump` gave. Raises ValueError when another training gave it."""
        import torch

        state = torch.load(io.BytesIO(content), weights_only=True)
        if state["recipe"] != self.recipe:
            raise ValueError(f"it is of {state['recipe']}, this is {self.recipe}")
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.random.set_state(state["random"])
        self.loss, self.step = state["loss"], state["step"]


def tell(text: str) -> None:
    """Say it on stderr."""
    print(text, file=sys.stderr, flush=True)


def resume(training: Training, folder: Path | None) -> None:
    """Go on from the newest whole checkpoint of the folder, if there is one."""
    import checkpoints

    if folder is None:
        return
    try:
        stored = list(checkpoints.newest_first(folder, tell))
    except OSError as error:
        sys.exit(f"train.py: checkpoints in {folder}: {error.strerror}")
    for path, content in stored:
        try:
            training.load(content)
        except ValueError as error:
            sys.exit(f"train.py: checkpoint {path}: {error}")
        tell(f"checkpoint {path}: resuming at step {training.step}")
        return


def hold(wanted: Callable[[], bool], stop: threading.Event) -> None:
    """Make no step, which would be lost, until told to end or until it is not wanted any more."""
    until_s = time.monotonic() + HOLD_S
    while wanted() and not stop.wait(0.05) and time.monotonic() < until_s:
        pass


def run(training: Training, chosen: argparse.Namespace, asked: Asked) -> int:
    """Train to the last step or until a signal says stop; the exit code."""
    import checkpoints
    import reporting
    import torch

    progress = reporting.Progress()
    # The reporter never goes beyond the number that torch had when it was first asked.
    torch.set_num_threads(chosen.threads or THREADS)
    fit = reporting.fit_to_allotment if chosen.threads is None else lambda: None
    wanted, saved_at = reporting.checkpoint_wanted, -1

    def save() -> None:
        nonlocal saved_at
        if chosen.checkpoint_dir is None:
            return
        try:
            path = checkpoints.save(chosen.checkpoint_dir, training.step, training.dump())
        except OSError as error:
            tell(f"checkpoint in {chosen.checkpoint_dir}: {error.strerror}: not saved")
            return
        progress.checkpoint(training.step, path)
        saved_at = training.step

    evaluations, answered = 0, False
    while training.step < chosen.steps and not asked.stop.is_set():
        is_wanted = wanted()
        if asked.save.is_set() or (is_wanted and not answered):
            asked.save.clear()
            save()
            if is_wanted and saved_at == training.step:
                hold(wanted, asked.stop)
        answered = is_wanted
        fit()
        training.advance()
        reporting.pace()
        last = training.step == chosen.steps
        if training.step % chosen.every == 0 or last:
            measured = training.evaluate()
            progress.step(training.step, total_steps=chosen.steps, **measured)
            figures = " ".join(f"{name} {value:.4f}" for name, value in measured.items())
            print(f"step {training.step} {figures}", flush=True)
            evaluations += 1
            if evaluations % chosen.checkpoint_every == 0 or last:
                save()
    if training.step < chosen.steps:
        save()
        tell(f"stopped after step {training.step}")
        return STOPPED
    return 0


def main() -> None:
    chosen = parse()
    # Importing torch takes seconds under a small quota: a signal in the meantime is not lost.
    asked = heed_signals()

    import torch

    torch.use_deterministic_algorithms(True)
    training = Training(chosen)
    resume(training, chosen.checkpoint_dir)
    sys.exit(run(training, chosen, asked))


if __name__ == "__main__":
    main()

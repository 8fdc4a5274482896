"""One paced job of the bench: computes steps for a time, and tells what it has done.

Runs in a process of its own, by any Python from 3.8 on, with torch where the device is a GPU. It
finds its allotment as a container's job does. Without a GPU the device is the core that it is
pinned to, and CPU time is the device's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time

from dlsched.report import fit_to_allotment, pace

SIZE = 2048
"""Of the matrices that a GPU multiplies."""
CHUNK = 20000


class Core:
    """A core as the device: a loop of additions."""

    name = "a CPU core"

    def compute(self, chunks):  # type: ignore[no-untyped-def]
        """Work that takes as long, as a number of equal pieces."""
        for _ in range(chunks):
            sum(range(CHUNK))

    def finish(self):  # type: ignore[no-untyped-def]
        """It is done."""

    def used_s(self):  # type: ignore[no-untyped-def]
        """The device's time so far."""
        return time.process_time()


class Gpu:
    """The first GPU: products of matrices, which it computes while the job goes on."""

    def __init__(self):  # type: ignore[no-untyped-def]
        import torch

        self._torch = torch
        self.name = torch.cuda.get_device_name(0)
        self._left = torch.randn(SIZE, SIZE, device="cuda")
        self._right = torch.randn(SIZE, SIZE, device="cuda")

    def compute(self, chunks):  # type: ignore[no-untyped-def]
        """Launch so many products."""
        for _ in range(chunks):
            self._torch.mm(self._left, self._right)

    def finish(self):  # type: ignore[no-untyped-def]
        """Wait for them."""
        self._torch.cuda.synchronize()

    def used_s(self):  # type: ignore[no-untyped-def]
        """Not known to the process: other processes' slices lie within its own."""
        return


def chunks_of(device, step_s):  # type: ignore[no-untyped-def]
    """How many pieces take so long, by the best of some tries."""
    best_s = float("inf")
    for _ in range(5):
        began_s = time.monotonic()
        device.compute(16)
        device.finish()
        best_s = min(best_s, (time.monotonic() - began_s) / 16)
    return max(1, round(step_s / best_s))


def cap():  # type: ignore[no-untyped-def]
    """Allocate below and beyond the granted memory; what came of it."""
    import torch

    most_bytes = fit_to_allotment().gpu_memory_bytes
    below = torch.empty(most_bytes // 2, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(most_bytes, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return {"cap_bytes": most_bytes, "below_bytes": below.numel(), "beyond": "OutOfMemoryError"}
    return {"cap_bytes": most_bytes, "below_bytes": below.numel(), "beyond": "allocated"}


def main():  # type: ignore[no-untyped-def]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--cap", action="store_true", help="try the memory cap, and end")
    parser.add_argument("--chunks", type=int, help="of a step; without it one step is measured")
    parser.add_argument("--step", type=float, default=0.01, help="seconds of a step to measure")
    parser.add_argument("--irregular", type=int, help="seed of steps of 1/4 to 4 times the length")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--paced", action="store_true")
    chosen = parser.parse_args()
    if chosen.cap:
        print(json.dumps(cap()))
        return
    device = Gpu() if chosen.gpu else Core()
    if chosen.chunks is None:
        print(json.dumps({"device": device.name, "chunks": chunks_of(device, chosen.step)}))
        return
    chance = random.Random(chosen.irregular)
    device.compute(4 * chosen.chunks)
    device.finish()
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    used_s, began_s = device.used_s(), time.monotonic()
    if chosen.paced:
        pace()
    while time.monotonic() - began_s < chosen.seconds:
        chunks = chosen.chunks
        if chosen.irregular is not None:
            chunks = max(1, round(chunks * 4 ** chance.uniform(-1, 1)))
        device.compute(chunks)
        done += chunks
        if chosen.paced:
            pace()
    device.finish()
    took_s = time.monotonic() - began_s
    used_s = None if used_s is None else device.used_s() - used_s
    print(json.dumps({"pid": os.getpid(), "chunks": done, "took_s": took_s, "used_s": used_s}))


if __name__ == "__main__":
    main()

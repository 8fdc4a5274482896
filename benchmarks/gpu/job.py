"""One paced job of the bench: computes steps for a time, and tells what it has done.

Runs in a process of its own, by any Python from 3.8 on. It finds its allotment as a container's job
does. A training and inference need torch and a GPU; work of kind `core` takes the core that it is
pinned to for its device, and CPU time is the device's.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import sys
import time

from benchmarks.options import options
from dlsched.report import fit_to_allotment, pace

CHUNK = 20000


class Core:
    """A core as the device: a loop of additions."""

    name = "a CPU core"

    def compute(self, chunks):  # type: ignore[no-untyped-def]
        for _ in range(chunks):
            sum(range(CHUNK))

    def finish(self):  # type: ignore[no-untyped-def]
        """It is done."""


WIDTH, TRAINED, ASKED = 2048, 4096, 512
"""Of each layer; examples in a training's step (some 10 ms on an H100) and in a request (1 ms)."""
CPU_WIDTH, CPU_TRAINED, CPU_ASKED = 256, 128, 16
"""The same for a rehearsal on a CPU."""
LAYERS = 4


class Network:
    """One network with its data, on a device."""

    def __init__(self, device, seed, reproducible):  # type: ignore[no-untyped-def]
        """Raises LookupError where torch sees no such device. `reproducible`: the same weights in
        each run, which takes torch some seconds more to set up."""
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise LookupError("torch sees no GPU")
        self._torch = torch
        self._cuda = device == "cuda"
        self.name = torch.cuda.get_device_name(0) if self._cuda else "a CPU, as a rehearsal"
        width, trained, asked = WIDTH, TRAINED, ASKED
        if not self._cuda:
            torch.set_num_threads(1)
            width, trained, asked = CPU_WIDTH, CPU_TRAINED, CPU_ASKED
        if reproducible:
            torch.use_deterministic_algorithms(True)
        torch.manual_seed(seed)
        layers = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers).to(device)
        self._inputs = torch.randn(trained, width).to(device)
        self._targets = torch.randn(trained, width).to(device)
        self._request = torch.randn(asked, width).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._held = []

    def compute(self, steps):  # type: ignore[no-untyped-def]
        for _ in range(steps):
            self._optimizer.zero_grad(set_to_none=True)
            loss = ((self._model(self._inputs) - self._targets) ** 2).mean()
            loss.backward()
            self._optimizer.step()

    def answer(self):  # type: ignore[no-untyped-def]
        """Compute one request, and have its result on the host."""
        with self._torch.no_grad():
            return self._model(self._request).sum(dim=1).cpu()

    def finish(self):  # type: ignore[no-untyped-def]
        if self._cuda:
            self._torch.cuda.synchronize()

    def hold(self, most_bytes):  # type: ignore[no-untyped-def]
        """Allocate that much more; returns what torch has reserved in all."""
        if not self._cuda:
            return 0
        self._held.append(self._torch.zeros(most_bytes, dtype=self._torch.uint8, device="cuda"))
        self.finish()
        return self._torch.cuda.memory_reserved()

    def checksum(self):  # type: ignore[no-untyped-def]
        """SHA-256 of all weights and of the optimizer's momenta."""
        digest = hashlib.sha256()
        for parameter in self._model.parameters():
            momentum = self._optimizer.state[parameter].get("momentum_buffer", parameter)
            for tensor in (parameter, momentum):
                here = tensor.detach().cpu().contiguous()
                # numpy, which torch would need for its bytes, may be missing.
                digest.update(ctypes.string_at(here.data_ptr(), here.nbytes))
        return digest.hexdigest()


def chunks_of(device, step_s):  # type: ignore[no-untyped-def]
    """How many pieces take so long, by the best of some tries."""
    best_s = float("inf")
    for _ in range(5):
        began_s = time.monotonic()
        device.compute(16)
        device.finish()
        best_s = min(best_s, (time.monotonic() - began_s) / 16)
    return max(1, round(step_s / best_s))


PIECE_BYTES = 1 << 26
"""Allocated at a time where a cap is tried."""


def cap():  # type: ignore[no-untyped-def]
    """Allocate up to twice the granted memory; how far it came, and what ended it."""
    import torch

    if not torch.cuda.is_available():
        return {"not_run": "torch sees no GPU"}
    asked_bytes = fit_to_allotment().gpu_memory_bytes
    free_bytes = torch.cuda.mem_get_info()[0]
    held, error = [], None
    try:
        while len(held) * PIECE_BYTES < 2 * asked_bytes:
            held.append(torch.empty(PIECE_BYTES, dtype=torch.uint8, device="cuda"))
    except RuntimeError as raised:
        error = raised
    return {
        "asked_bytes": asked_bytes,
        "reached_bytes": len(held) * PIECE_BYTES,
        "device_bytes": free_bytes - torch.cuda.mem_get_info()[0],
        "error": None if error is None else type(error).__name__,
        "message": None if error is None else str(error).partition("\n")[0][:300],
    }


def made(chosen):  # type: ignore[no-untyped-def]
    """The device with its work. Raises LookupError where there is none."""
    if chosen.work == "core":
        return Core()
    return Network(chosen.torch_device, chosen.seed, chosen.steps is not None)


def steps(device, count, every):  # type: ignore[no-untyped-def]
    """So many steps, a line each few; the state that the training has reached then.

    Nothing waits for the device between: steps are launched ahead, as a training does that seldom
    reads its loss.
    """
    for step in range(1, count + 1):
        device.compute(1)
        if step % every == 0:
            print(json.dumps({"step": step, "at_s": time.monotonic()}), flush=True)
    device.finish()
    return {"steps": count, "checksum": device.checksum()}


def requests(device, seconds, pause_s, paced):  # type: ignore[no-untyped-def]
    """The latency of each request of a client that pauses between two."""
    latencies_ms = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        if paced:
            with pace:
                device.answer()
        else:
            device.answer()
        latencies_ms.append(1e3 * (time.monotonic() - began_s))
        time.sleep(pause_s)
    return {"latencies_ms": latencies_ms}


def compute(device, chosen):  # type: ignore[no-untyped-def]
    chance = random.Random(chosen.irregular)
    done = 0
    used_s, began_s = time.process_time(), time.monotonic()
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
    # Of a GPU it is not known to the process: others' slices lie within its own.
    used_s = time.process_time() - used_s if chosen.work == "core" else None
    return {"pid": os.getpid(), "chunks": done, "took_s": took_s, "used_s": used_s}


def main():  # type: ignore[no-untyped-def]
    chosen = options(
        __doc__,
        None,
        work=("core", "core, training or inference"),
        torch_device=("cuda", "of a training or of inference"),
        seed=(7, "of a training's weights and data"),
        hold=(0, "bytes of the GPU to allocate besides"),
        steps=(int, "of a training, in place of a time"),
        every=(10, "steps between two lines"),
        pause=(0.005, "seconds between two requests"),
        cap=(False, "try the memory cap, and end"),
        chunks=(int, "of a step; without it one step is measured"),
        step=(0.01, "seconds of a step to measure"),
        irregular=(int, "seed of steps of 1/4 to 4 times the length"),
        seconds=(10.0, "of all steps"),
        paced=(False, "wait for the turns and the share of the allotment"),
    )
    if chosen.cap:
        print(json.dumps(cap()))
        return
    try:
        device = made(chosen)
    except LookupError as error:
        print(json.dumps({"not_run": str(error)}), flush=True)
        return
    if chosen.chunks is None:
        print(json.dumps({"device": device.name, "chunks": chunks_of(device, chosen.step)}))
        return
    ready = {"ready": device.name}
    if chosen.work == "inference":
        for _ in range(20):
            device.answer()
    elif chosen.steps is None:
        device.compute(4 * chosen.chunks)
    if chosen.hold:
        ready["reserved_bytes"] = device.hold(chosen.hold)
    device.finish()
    print(json.dumps(ready), flush=True)
    sys.stdin.readline()
    if chosen.work == "inference":
        told = requests(device, chosen.seconds, chosen.pause, chosen.paced)
    elif chosen.steps is not None:
        told = steps(device, chosen.steps, chosen.every)
    else:
        told = compute(device, chosen)
    print(json.dumps(told))


if __name__ == "__main__":
    main()

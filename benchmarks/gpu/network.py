"""A small network of torch's: trainings with reproducible weights, and requests.

Its steps are long beside what it takes to launch them, so that the device is what is short.
"""

from __future__ import annotations

import ctypes
import hashlib

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
        """Launch so many steps of the training."""
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
        """Wait for the device."""
        if self._cuda:
            self._torch.cuda.synchronize()

    def used_s(self):  # type: ignore[no-untyped-def]
        """Not known to the process."""
        return

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

"""What is divided, and how amounts of it read."""

from __future__ import annotations

from dlsched.model.resource import CPU, GpuTime


def test_amounts_of_cpu_are_cores() -> None:
    assert CPU.amount(0.5) == "0.500 cores"
    assert CPU.amount(4.0, ".2f") == "4.00 cores"
    assert CPU.work(12.3) == "12 core-s"
    assert (CPU.name, CPU.time) == ("CPU", "CPU time")


def test_amounts_of_a_gpus_time_are_parts_of_it() -> None:
    gpu = GpuTime("GPU-0", "GPU 0")
    assert gpu.amount(0.5) == "0.500 of GPU 0's time"
    assert gpu.work(12.3) == "12 s of GPU 0's time"
    assert gpu.name == gpu.time == "time on GPU 0"

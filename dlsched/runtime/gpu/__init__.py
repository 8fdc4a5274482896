"""The host's GPUs and the processes on them, through NVIDIA's NVML. Only this package imports
`pynvml`."""

from dlsched.runtime.gpu.inventory import GpuSnapshot, Inventory
from dlsched.runtime.gpu.nvml import remedy
from dlsched.runtime.gpu.processes import UserNames

__all__ = ["GpuSnapshot", "Inventory", "UserNames", "remedy"]

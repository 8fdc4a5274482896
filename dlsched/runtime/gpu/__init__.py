"""What GPUs the host has, and who uses them, through NVIDIA's NVML.

Owns `pynvml`: nothing else imports it. `nvml` finds and types it, `session` reads devices,
`processes` tells whose a process is, `inventory` keeps the loop from waiting for a driver that
hangs. It must not change a device, nor know jobs.
"""

from dlsched.runtime.gpu.inventory import Inventory, Look, reading_costs_s
from dlsched.runtime.gpu.nvml import remedy

__all__ = ["Inventory", "Look", "reading_costs_s", "remedy"]

"""The day a machine with one NVIDIA GPU can be had: `python3 -m benchmarks.gpu.truth`.

Eight parts compare what dlsched assumes of GPUs with what the hardware does. Needs the standard
library, torch with CUDA and nvidia-ml-py, and of dlsched the reporter alone.
"""

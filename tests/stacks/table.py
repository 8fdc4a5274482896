"""Which programs people run, what reads them, and how far each was tried."""

from __future__ import annotations

from tests.stacks.serving import SERVING
from tests.stacks.stack import LATENCY, MEAN, Stack, Tried
from tests.stacks.training import TORCH, TRAINING


def _documented(
    title: str, preset: str, reads: str, note: str = "", tried: Tried = Tried.DOCUMENTED
) -> Stack:
    return Stack(preset, title, preset, reads, tried=tried, note=note)


RUN = (*SERVING, *TRAINING, *TORCH)

DOCUMENTED = (
    _documented("vLLM", "vllm", LATENCY),
    _documented("vLLM, time to first token", "vllm-ttft", LATENCY),
    _documented("vLLM, time between tokens", "vllm-itl", LATENCY),
    _documented("SGLang", "sglang", LATENCY),
    _documented("SGLang, time to first token", "sglang-ttft", LATENCY),
    _documented(
        "Triton", "triton", MEAN, "percentiles with `--metrics-config summary_latencies=true`"
    ),
    _documented("TorchServe", "torchserve", MEAN),
    _documented("TensorFlow Serving", "tfserving", LATENCY),
    _documented("Text Generation Inference", "tgi", LATENCY),
    _documented("Text Embeddings Inference", "tei", LATENCY),
    _documented("Ollama, by its log", "ollama", LATENCY),
    _documented("llama.cpp's server, by its log", "llama.cpp", LATENCY),
    _documented("nanoGPT", "nanogpt", "learning curve: val_loss"),
    _documented("PyTorch's MNIST example", "pytorch-mnist", "learning curve: accuracy"),
    _documented("timm's train.py", "timm", "learning curve: acc1"),
    _documented("DeiT, PVT, MAE", "deit", "learning curve: acc1"),
    _documented("LightGBM's command line", "lightgbm-cli", "learning curve: auc"),
    _documented("fairseq", "fairseq", "learning curve: val_loss"),
    _documented("Flax's examples", "flax", "learning curve: accuracy"),
    _documented("Traefik as proxy", "traefik", LATENCY, tried=Tried.NOT_TRIED),
    _documented("OpenTelemetry eBPF Instrumentation", "obi", LATENCY, tried=Tried.NOT_TRIED),
    Stack(
        "uvicorn-log",
        "uvicorn's access log",
        "",
        "nothing: it has no durations",
        tried=Tried.NOT_TRIED,
        note="use an exporter, or gunicorn's log",
    ),
    Stack(
        "kserve",
        "KServe, Seldon",
        "",
        "not looked at: they need Kubernetes",
        tried=Tried.NOT_TRIED,
    ),
)

STACKS = (*RUN, *DOCUMENTED)
BY_NAME = {one.name: one for one in STACKS}


def counts() -> dict[Tried, int]:
    """How many rows were tried how far."""
    return {tried: sum(one.tried is tried for one in STACKS) for tried in Tried}

"""Options that runner and server share, also from the environment, as containers like them."""

from __future__ import annotations

import argparse
import os

from classifier import catalogue


def model(text: str) -> str:
    """The name of a network that models/ holds."""
    known = sorted(catalogue())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
    return text


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model and --threads, or MODEL and THREADS."""
    parser.add_argument(
        "--model",
        type=model,
        default=os.environ.get("MODEL", "mobilenet"),
        help="network to run (environment: MODEL; default mobilenet)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.environ.get("THREADS", "1"),
        help="threads of ONNX Runtime (environment: THREADS; default 1)",
    )

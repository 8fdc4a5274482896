"""Blocks of Markdown are what the result files give."""

from __future__ import annotations

import pytest

from benchmarks.publish import blocks


@pytest.mark.parametrize("name", blocks.BLOCKS)
def test_every_block_can_be_made_from_the_kept_results(name: str) -> None:
    assert "Host: " in blocks.BLOCKS[name]() or name in WITHOUT_HOST


WITHOUT_HOST = {
    "adaptive-inference",
    "adaptive-training",
    "sim-vs-real",
    "gpu-truth",
}

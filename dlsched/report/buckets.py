"""The logarithmic buckets of latency, shared by writer and reader. Imports nothing of dlsched.

Bucket i counts seconds in (g^(i-1), g^i] x 1e-6 with g = 1.01/0.99; shorter ones count in the first
bucket. A bucket's value is within 1 % of both ends.
"""

from __future__ import annotations

import math
from functools import lru_cache

GROWTH = 1.01 / 0.99
UNIT_S = 1e-6
LAST_BUCKET = 2000

_LOG_GROWTH = math.log(GROWTH)
LONGEST_S = UNIT_S * math.exp(_LOG_GROWTH * LAST_BUCKET)
"""The longest latency with a bucket: some thousand years."""


def bucket_index(seconds: float) -> int:
    """The bucket of this latency; ValueError if it is negative, NaN or infinite."""
    if not 0.0 <= seconds <= LONGEST_S:
        raise ValueError(f"{seconds!r} is not a latency in seconds")
    if seconds <= UNIT_S:
        return 0
    return min(LAST_BUCKET, math.ceil(math.log(seconds / UNIT_S) / _LOG_GROWTH))


@lru_cache(LAST_BUCKET + 1)
def bucket_value_s(index: int) -> float:
    """The latency in seconds that represents a bucket, within 1 %."""
    return 2.0 / (1.0 + GROWTH) * UNIT_S * math.exp(_LOG_GROWTH * index)

"""A container of the bench of memory limits: holds memory or page cache as its words say, or
answers small requests of its own and says how long they took.

    memory.py leak|steps|peaks|cache BASE_MIB END_MIB MIB_PER_S EVERY_S
    memory.py serve
"""

import os
import sys
import time
from pathlib import Path

FILE = Path("/tmp/file")
MIB = 1 << 20
PIECE_MIB = 4


def hold(kept, to_mib, mib_per_s):
    """Take or free memory up to that, at that pace."""
    while len(kept) * PIECE_MIB > to_mib:
        kept.pop()
    while (len(kept) + 1) * PIECE_MIB <= to_mib:
        kept.append(b"x" * (PIECE_MIB * MIB))
        time.sleep(PIECE_MIB / mib_per_s)


def grow(kind, base, end, pace, every_s):
    kept, level = [], base
    hold(kept, base, 100.0)
    while kind == "leak":
        hold(kept, end, pace)
        time.sleep(1.0)
    while True:
        time.sleep(every_s)
        if kind == "peaks":
            hold(kept, end, pace)
            time.sleep(3.0)
            hold(kept, base, pace)
        else:
            level = min(level + (end - base) / 4, end)
            hold(kept, level, pace)


def cache(base, files):
    """Hold some memory, and read files that are larger than what is left."""
    kept = []
    hold(kept, base, 100.0)
    with FILE.open("wb") as file:
        for _ in range(int(files)):
            file.write(os.urandom(MIB))
    while True:
        with FILE.open("rb") as file:
            while file.read(MIB):
                time.sleep(0.005)


def serve():
    """Ten small answers a second: each takes some memory and some CPU."""
    while True:
        began_s = time.monotonic()
        work = bytearray(2 * MIB)
        total = sum(work[:: MIB // 64])
        for number in range(20_000):
            total += number
        print(f"{time.monotonic() - began_s:.6f}", flush=True)
        time.sleep(0.1)


if sys.argv[1] == "serve":
    serve()
elif sys.argv[1] == "cache":
    cache(float(sys.argv[2]), float(sys.argv[3]))
else:
    grow(sys.argv[1], *map(float, sys.argv[2:6]))

"""The waiting of tests: see `tools.waiting`."""

from tools.waiting import WITHIN_S, until

__all__ = ["WITHIN_S", "until"]

"""Shared tuning constants of estimates and policies. None is exact; each is defined only here."""

from __future__ import annotations

CLEARLY = 1.25
"""Factor by which two values must differ to be clearly different, in either direction."""
MARGIN = 1.1
"""Factor for trials and comparisons: a smaller difference may be noise."""
ROOM_RATIO = 0.85
"""Utilisation up to which jobs do not slow each other down and no queue grows."""
FULL_RATIO = 0.95
"""Utilisation from which nothing more can be had: the kernel cannot hand out all of the rest."""
LITTLE = 0.05
"""A small but noticeable fraction."""
FINE = 0.02
"""A fraction that is not noticeable: dead bands, rounding, buckets."""
MOSTLY = 0.5
"""More than this fraction is most of something."""
SAMPLE_WEIGHT = 0.2
"""Weight of a new sample in an exponential average over the last few."""
SAMPLES = 30.0
"""Samples after which older ones fade, in an average over about a minute."""
FEW_REQUESTS = 20
"""Statistics of fewer requests may be chance."""
SIGMAS = 4.0
"""Standard errors that are not chance, even if tested once a second."""
THROTTLED_RATIO = 0.7
"""Fraction of the kernel's periods throttled from which a ceiling binds all the time. Up to
`LITTLE` of them it does not bind, in between a part of the time."""
AHEAD = 16.0
"""Factor on the weight of a job that precedes others."""
QUIET_S = 3.0
"""A longer silence is no normal gap between two reports, nor the pause of a start or a move."""
SETTLED_S = 10.0
"""The load, and the clients, observed in so many first seconds are too often wrong: bursts in them
made ten services change weights two to five times each."""
AGAIN_S = 120.0
"""Time until a trial that failed is repeated."""

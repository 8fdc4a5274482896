"""Numbers that several estimates and policies go by, so that a word means the same in all of them.

None of them is exact. One home for each keeps those who tune from choosing it anew in every place.
It must not compute anything.
"""

from __future__ import annotations

CLEARLY = 1.25
"""So many times as much, or less by the same ratio, is clearly more or less."""
MARGIN = 1.1
"""What is known is exceeded by so much in trying and comparing: less may be chance."""
ROOM_RATIO = 0.85
"""Up to this part of what there is, nobody is in another one's way, and no queue grows."""
FULL_RATIO = 0.95
"""From this part of what there is on, nothing more can be had: the rest is what the kernel cannot
hand out at once."""
LITTLE = 0.05
"""A part that is felt, but small."""
FINE = 0.02
"""A part that is not felt: dead-band, rounding, buckets."""
MOSTLY = 0.5
"""More than this part is most of it."""
LOOK_WEIGHT = 0.2
"""Weight of one more look beside all before, where the last few tell."""
LOOKS = 30.0
"""Looks after which older ones fade, where a minute tells."""
FEW_REQUESTS = 20
"""What fewer requests tell may be chance."""
SIGMAS = 4.0
"""So many standard errors are no chance, also where it is looked at once a second."""
THROTTLED_RATIO = 0.7
"""Part of the kernel's periods from which on a ceiling set the pace; where only `LITTLE` of them
were throttled it did not, and in between it did a part of the time."""
AHEAD = 16.0
"""Who comes first weighs so many times as much."""
QUIET_S = 3.0
"""Without a word for so long it is no pause between two of them."""
SETTLED_S = 10.0
"""What the first so many seconds say of a load, and of who sends it, is wrong too often. Bursts in
them made ten services change weights two to five times each."""
AGAIN_S = 120.0
"""What was in vain is not tried again for so long."""

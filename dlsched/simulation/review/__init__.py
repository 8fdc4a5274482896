"""Reviews a range of a journal: targets kept, changes and effects, who gave and got, beside an
estimate of what plain Docker would have done."""

from dlsched.simulation.review.gathering import NothingToReport, review

__all__ = ["NothingToReport", "review"]

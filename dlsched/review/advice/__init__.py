"""What limits recorded containers needed: from a journal, by the fits that make traces of it."""

from dlsched.review.advice.adviser import Adviser, NothingToAdvise
from dlsched.review.advice.result import Advice, Use

__all__ = ["Advice", "Adviser", "NothingToAdvise", "Use"]

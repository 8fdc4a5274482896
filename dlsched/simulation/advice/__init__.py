"""What limits recorded containers needed: from a journal, by the fits that make traces of it."""

from dlsched.simulation.advice.adviser import Adviser, NothingToAdvise
from dlsched.simulation.advice.result import Advice, Use

__all__ = ["Advice", "Adviser", "NothingToAdvise", "Use"]

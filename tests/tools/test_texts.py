"""The list of texts that users can meet."""

from __future__ import annotations

from tools.texts import of_module

MODULE = '''
"""A docstring that no user ever meets."""

class SomeKeys:
    wait_s: float = 1.0
    """Seconds that it waits at most."""

def check(job):
    """Nor this docstring of a function."""
    db.execute("SELECT a FROM jobs WHERE b")
    raise ValueError(f"{job.name} has no container: start it again")

@group.command()
def ps():
    """Show every job and target."""
'''


def test_messages_help_and_reference_are_listed_and_docstrings_are_not() -> None:
    assert list(of_module(MODULE, "a.py")) == [
        (6, "Seconds that it waits at most."),
        (11, "{job.name} has no container: start it again"),
        (15, "Show every job and target."),
    ]


COMPARED = """
_PASSING = ("is marked for removal",)

def check(job):
    log.debug("the check of %s begins", job)
    raise ValueError(f"{job.name}: there is no container of it")
"""


def test_what_is_compared_or_debugged_is_not_listed() -> None:
    (found,) = of_module(COMPARED, "a/creation.py")
    assert found == (6, "{job.name}: there is no container of it")

"""The list of texts that users can meet."""

from __future__ import annotations

from tools.texts import all_texts, of_module, of_page

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
    found = {one.text: one.where for one in of_module(MODULE, "a.py")}
    assert list(found) == [
        "Seconds that it waits at most.",
        "{job.name} has no container: start it again",
        "Show every job and target.",
    ]
    assert found["Show every job and target."] == "a.py:15 ps"


def test_strings_of_the_page_are_listed() -> None:
    source = "// \"a comment of no use\"\nshow(`${name}: no job of that name`, 'data-key')"
    assert [one.text for one in of_page(source, "a.js")] == ["${name}: no job of that name"]


def test_the_product_has_texts_of_python_and_of_the_page() -> None:
    places = {one.where.partition("/")[2].partition("/")[0] for one in all_texts()}
    assert {"cli", "control", "policies", "runtime", "web"} <= places

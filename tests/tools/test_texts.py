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
    db.executescript(f"BEGIN; {STEPS[1]}; PRAGMA user_version = {2}; COMMIT;")
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
    assert found["Show every job and target."] == "a.py:16 ps"


PARTS = """
_PASSING = ("is marked for removal",)

def check(job):
    has = "no image of it" if job.image else "no container of it"
    log.debug("the check of %s begins", job)
    raise ValueError(f"{job.name}: there is {has}")
"""


def test_a_part_is_shown_within_its_whole_and_what_is_compared_or_debugged_is_not() -> None:
    (found,) = of_module(PARTS, "a/creation.py")
    whole = "{job.name}: there is [no image of it | no container of it]"
    assert (found.where, found.text) == ("a/creation.py:7 check", whole)


WHOLES = """
from other import ELSEWHERE
_AGAIN = "then try again"

def check(job):
    how = "no"
    if job.image:
        how = "its image is gone"
    line = f"{job.name} was not started"
    if job.late:
        line += f", and is {job.late} s late"
    raise ValueError(f"{how}: {ELSEWHERE}; {_AGAIN}{_hint(job)}")

def _hint(job):
    return f"; {job.owner} has the file" if job.owner else ""
"""


def test_what_is_added_returned_or_constant_is_shown_within_its_whole() -> None:
    found = {one.text for one in of_module(WHOLES, "a.py", {"other.ELSEWHERE": "move it away"})}
    assert found == {
        "{job.name} was not started[ | , and is {job.late} s late]",
        "[no | its image is gone]: move it away; then try again[; {job.owner} has the file | ]",
    }


def test_a_text_that_is_set_again_after_its_use_or_is_shown_alone_too_stays_by_itself() -> None:
    source = """
_LEFT = "it is left out now"

def check(job):
    what = "the name is used"
    yield f"{job}: {what} and {_LEFT}"
    what = "the file is gone"
    yield what
    return _LEFT
"""
    texts = [one.text for one in of_module(source, "a.py")]
    alone = ["it is left out now", "the name is used", "the file is gone"]
    assert sorted(texts) == sorted([*alone, "{job}: {what} and it is left out now"])


def test_strings_of_the_page_are_listed() -> None:
    source = "// \"a comment of no use\"\nshow(`${name}: no job of that name`, 'data-key')"
    assert [one.text for one in of_page(source, "a.js")] == ["${name}: no job of that name"]
    sentence = 'el("p", {}, "Write ", el("code", { text: "ps" }), " to see the jobs.")'
    nested = 'set(`This is ${old ? "late" : `${age} old`}: the host has ended.`)'
    assert [one.text for one in of_page(f"{sentence};{nested}", "a.js")] == [
        "Write `ps` to see the jobs.",
        'This is ${old ? "late" : `${age} old`}: the host has ended.',
    ]


def test_the_product_has_texts_of_python_and_of_the_page() -> None:
    places = {one.where.partition("/")[2].partition("/")[0] for one in all_texts()}
    assert {"cli", "control", "policies", "runtime", "web"} <= places

"""The wording check: each kind of rule and of text, each with an innocent neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import wording


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with our own rules, and nothing to check yet."""
    rules = tmp_path / "tools" / "words"
    rules.mkdir(parents=True)
    for path in wording.RULES.glob("[A-Z]*.yml"):
        (rules / path.name).write_text(path.read_text())
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "RULES", rules)
    monkeypatch.setattr(wording, "PATHS", ("src",))
    (tmp_path / "src").mkdir()
    return tmp_path


def errors_in(root: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = root / "src" / name
    path.write_text(text)
    code = wording.main([])
    lines = capsys.readouterr().out.splitlines()
    assert code == bool(lines)
    return lines


@pytest.mark.parametrize(
    "source",
    [
        "def fold_gpu(): ...",
        "class JobSeen: ...",
        "def run(told): ...",
        "trouble_s = 1",
        "self.wishes = ()",
        "for at_once in (): ...",
        "import yaml as word",
        "f = lambda look: look",
    ],
)
def test_a_word_of_the_list_is_an_error_in_each_kind_of_name(
    root: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = errors_in(root, "a.py", f"\n{source}\n", capsys)
    assert line.startswith("src/a.py:2: error: name ")
    assert line.endswith("(Names)")


@pytest.mark.parametrize(
    ("source", "at"),
    [
        ('"""Fine.\n\nWhoever asks is heard.\n"""\n', 3),
        ("# Fine:\n# this is in\n# force.\n", 2),
        ("x = 1  # told by nothing\n", 1),
        ('raise ValueError("limits in force differ")\n', 1),
        ('log(f"{name} told {count} times")\n', 1),
        ('x = {"help": ("the job",\n    "out of sight")}\n', 2),
    ],
)
def test_jargon_is_an_error_in_each_kind_of_prose(
    root: Path, source: str, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = errors_in(root, "a.py", source, capsys)
    assert line.startswith(f"src/a.py:{at}: error: ")
    assert line.endswith("(Jargon)")


def test_markdown_is_prose_outside_its_code(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# Read\n\n```\nnobody\n```\nSay `nobody`, but no limit in force.\n"
    [line] = errors_in(root, "a.md", text, capsys)
    assert line.startswith("src/a.md:6: error: 'in force'")


def test_a_rule_file_of_another_kind_is_refused(root: Path) -> None:
    (wording.RULES / "Other.yml").write_text("extends: existence\n")
    with pytest.raises(ValueError, match=r"Other\.yml: extends: not 'substitution'"):
        wording.main([])


@pytest.mark.parametrize(
    ("exception", "source"),
    [
        ("told_s", "told_s = 1\ntold = 2\n"),
        ("Kept.told", "class Kept:\n    told: int\nclass Other:\n    told: int\n"),
        ("Kept.told", "class Kept:\n    told: int\n    def take(self, told): ...\n"),
    ],
)
def test_an_exception_of_a_rule_is_no_finding(
    root: Path, exception: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = wording.RULES / "Names.yml"
    rule, _, _ = path.read_text().partition("exceptions:")
    path.write_text(f"{rule}exceptions: [{exception}]\n")
    [line] = errors_in(root, "a.py", source, capsys)
    assert line.startswith(f"src/a.py:{source.count(chr(10))}:")


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("{name!r} is no plain key", False),
        ("it does not run", False),
        ("standard input is none", False),
        ("{name!r} is not a key", True),
        ("{node} is no longer a member, and there is no node for it", True),
    ],
)
def test_texts_that_users_meet_have_rules_that_docstrings_have_not(
    root: Path, text: str, reads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "dlsched").mkdir()
    source = f'def fail(name, node):\n    """It is no key."""\n    raise ValueError(f"{text}")\n'
    (root / "dlsched" / "a.py").write_text(source)
    assert wording.main(["dlsched"]) == (not reads)
    assert ("dlsched/a.py:3: " in capsys.readouterr().out) == (not reads)

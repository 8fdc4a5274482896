"""README and the pages: their length, their links, and that nothing is left unexplained."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from dlsched.config.job import parse_spec
from dlsched.config.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    """Sphinx checks the pages' links among themselves; GitHub readers follow all of them."""
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_result_has_a_sentence_that_says_what_it_means() -> None:
    marked = 0
    for page in sorted((DOCS / "results").glob("*.md")):
        blocks = page.read_text().split("\n\n")
        for above, block in itertools.pairwise(blocks):
            if block.startswith("<!-- generated: result "):
                marked += 1
                assert re.match(r"(?s)[A-Z0-9].*[.:]$", above.strip()), f"{page.name}: {block}"
    assert marked > 20


def test_every_result_block_is_on_a_page() -> None:
    from benchmarks.publish.blocks import BLOCKS

    text = "".join(page.read_text() for page in (DOCS / "results").glob("*.md"))
    shown = re.findall(r"^<!-- generated: result (\S+) -->$", text, re.MULTILINE)
    assert sorted(shown) == sorted(BLOCKS)


def yaml_blocks() -> list[tuple[str, str]]:
    """Every block of YAML on README and the pages, by the page's name."""
    block = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    pages = [ROOT / "README.md", *PAGES]
    return [(page.stem, text) for page in pages for text in block.findall(page.read_text())]


@pytest.mark.parametrize(("page", "text"), [one for one in yaml_blocks() if "image: " in one[1]])
def test_a_job_file_on_a_page_is_right(page: str, text: str) -> None:
    assert parse_spec(text, page).name


@pytest.mark.parametrize(
    ("page", "text"),
    [
        one
        for one in yaml_blocks()
        if re.search(r"^(policy|tenants|state_dir|deliver_hook):", one[1], re.M)
    ],
)
def test_settings_on_a_page_are_right(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text(text.replace("  ann:", f"  {os.getuid() or 'nobody'}:"))
    assert load_settings(file, {}, {})

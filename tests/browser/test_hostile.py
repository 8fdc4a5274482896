"""Names, reasons and errors are written by others: they are text, wherever the page shows them."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open
from tests.browser.driver import expect
from tests.browser.scenes import MARKUP

pytestmark = [pytest.mark.browser]


@pytest.mark.gate
def test_markup_is_shown_and_never_made(visit: Open) -> None:
    # A name that no spec accepts: /v1/jobs/NAME/why is no path then.
    one = visit("hostile", allowed=("404",))
    one.shows("#alarms", f"alarm {MARKUP}")
    one.page.locator("#others").click()
    one.shows("#others-list", f"unit {MARKUP}", MARKUP)
    for selector in ("#jobs tbody th", ".silent", "#changes li", "#gpus .held li"):
        expect(one.page.locator(selector).filter(has_text="<img").first).to_be_visible()
    one.page.locator('tr[data-job="digits-resnet"]').click()
    one.shows("#why", f"slow {MARKUP}")
    one.page.locator("#ratio-chart .mark").first.hover()
    one.shows("#tip", f"slow {MARKUP}")
    one.page.locator("#jobs tbody th").filter(has_text="<img").click()
    one.state("selected", MARKUP)
    assert one.page.locator("img").count() == 0
    assert one.page.locator("body").get_attribute("data-owned") is None


@pytest.mark.parametrize("link", [f"#job={MARKUP}", "#job=__proto__&range=__proto__&from=x&to=-1"])
def test_a_hostile_link_does_nothing(visit: Open, link: str) -> None:
    one = visit("eight", link, allowed=("404",))
    one.state("range", "live")
    one.shows("#why", "no job")
    assert one.page.locator("img").count() == 0
    assert one.page.locator("body").get_attribute("data-owned") is None


def test_escape_sequences_of_a_job_are_no_trouble(visit: Open) -> None:
    one = visit("example")
    row = one.page.locator('tr[data-job="hostile"]')
    expect(row.locator(".state")).to_have_attribute(
        "title", "\x1b[31mred\x1b[0m\x07 and \u202ereversed"
    )

"""What the page shows, and its keys, in a real browser."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import Open
from tests.browser.driver import TIMES, expect, has, ink

pytestmark = [pytest.mark.browser]

JOBS = "#jobs tbody tr:visible"


def test_the_headline_says_in_words_how_it_stands(visit: Open) -> None:
    one = visit("example")
    said = one.page.get_by_role("status")
    has(
        said,
        "1 of 7 services on target, 1 slow, 1 just above",
        "0 of 1 training delivered",
        "Capacity 4.00 cores, 3.12 used, 0.10 by others",
        "CPU limits add up to 3.65, 1 job without a limit.",
        "Policy dqoes, engine ok.",
    )
    one.shows(
        "#alarms",
        "limits stay as they are: policy dqoes failed",
        "Not applied: bad.yaml",
        "bad.yaml:3:7: cpus.max: 0 is too low",
    )


def test_what_others_use_opens_to_who_they_are(visit: Open) -> None:
    one = visit("gpus", allowed=("503",))
    others, users = one.page.locator("#others"), one.page.locator("#others-list")
    expect(others).to_have_text("0.10 by others")
    expect(users).to_be_hidden()
    others.click()
    expect(others).to_have_attribute("aria-expanded", "true")
    has(users.get_by_role("listitem"), "container burner", "1.20 cores")
    has(users, "would help: dlsched adopt burner --background")
    others.click()
    expect(users).to_be_hidden()


@pytest.mark.gate
def test_jobs_are_worst_first_with_a_word_and_a_shape(visit: Open) -> None:
    one = visit("example")
    one.state("first", "typo")
    rows = one.page.locator(JOBS)
    expect(rows).to_have_count(8)
    expect(rows.nth(0)).to_contain_text("✕failed")
    has(rows.nth(1), "▲slow", f"1.63{TIMES}", "0.52 / 1.25", "p95 50 ms")
    training = one.page.locator('tr[data-job="lenet-train"]')
    has(training, "◐training", "?")  # what was expected has not come true


def test_the_order_stays_under_the_pointer(visit: Open) -> None:
    one = visit("eight")
    one.page.locator(JOBS).nth(3).hover()
    one.state("order", "held")
    before = one.page.locator("#jobs tbody th").all_inner_texts()
    one.reaches("cycle", int(one.now("cycle")) + 8)
    assert one.page.locator("#jobs tbody th").all_inner_texts() == before
    one.page.mouse.move(5, 5)
    one.state("order", "free")


@pytest.mark.parametrize(("first", "then"), [("light", "dark"), ("dark", "light")])
def test_both_themes_and_a_change_redraws_the_charts(visit: Open, first: str, then: str) -> None:
    one = visit("eight", theme=first)
    one.pause()  # so that nothing but the theme changes
    one.state("drawn", first)
    before = {box: ink(one.page, box) for box in ("#ratio-chart", "#limits-chart")}
    one.page.emulate_media(color_scheme=then)
    one.state("drawn", then)
    for box, was in before.items():
        now = ink(one.page, box)
        assert min(was["drawn"], now["drawn"]) > 5000
        assert now["light"] != was["light"]
    back = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(14, 19, 27)") == (then == "dark")


def test_keys(visit: Open) -> None:
    one = visit("eight", allowed=("503",))  # it has no journal
    names = one.page.locator("#jobs tbody th").all_inner_texts()
    one.page.mouse.move(5, 5)
    one.press("j")
    one.state("selected", re.compile("job-00"))
    first = one.now("selected")
    assert first in names
    one.press("j")
    one.leaves("selected", first)
    one.press("Enter")
    one.state("why", one.now("selected"))
    expect(one.page.locator("#why")).to_be_visible()
    one.press("Escape")
    expect(one.page.locator("#why")).to_be_hidden()
    one.press("Escape")
    one.state("selected", "")

    one.press("/")
    one.page.keyboard.type("job-003")
    expect(one.page.locator(JOBS)).to_have_count(1)
    one.press("Escape")
    expect(one.page.locator(JOBS)).to_have_count(8)

    one.press("?")
    expect(one.page.get_by_role("dialog")).to_be_visible()
    one.press("Escape")
    expect(one.page.get_by_role("dialog")).to_be_hidden()

    for key, name in [("2", "1h"), ("3", "6h"), ("4", "1d"), ("1", "live")]:
        one.press(key)
        one.state("range", name)


def test_a_job_is_pinned_to_the_top_by_key_and_by_its_star(visit: Open) -> None:
    one = visit("example")
    one.state("first", "typo")  # the worst
    names = one.page.locator("#jobs tbody th")
    by_rank = names.all_inner_texts()
    one.page.locator('tr[data-job="queued"]').click()
    one.press("t")
    one.state("first", "queued")
    star = one.page.locator('tr[data-job="digits-vgg"] .pin')
    expect(star).to_have_attribute("aria-pressed", "false")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    one.state("selected", "queued")  # a star selects nothing
    # Both in their own order, under the pointer too.
    top = [name for name in by_rank if name in ("queued", "digits-vgg")]
    wanted = [*top, *(name for name in by_rank if name not in top)]
    expect(names).to_have_text(wanted)

    one.page.reload()
    expect(names).to_have_text(wanted)
    one.page.locator('tr[data-job="digits-vgg"] .pin').click()
    one.page.locator('tr[data-job="queued"]').click()
    one.press("t")
    one.page.mouse.move(5, 5)
    expect(names).to_have_text(by_rank)


def test_a_pause_holds_what_is_shown(visit: Open) -> None:
    one = visit("eight")
    one.pause()
    one.state("paused", "true")
    cycle = one.now("cycle")

    def followed() -> int:
        return int(one.page.request.get(f"{one.url}v1/jobs").json()["cycle"])

    until_cycle = followed() + 4
    while followed() < until_cycle:
        one.page.wait_for_timeout(100)
    assert one.now("cycle") == cycle
    one.press("p")
    one.state("paused", "false")
    one.leaves("cycle", cycle)
    assert int(one.now("cycle")) > int(cycle)


def test_why_says_what_the_daemon_says_with_the_effect_of_a_change(visit: Open) -> None:
    one = visit("example")
    one.page.locator('tr[data-job="digits-resnet"]').click()
    one.state("why", "digits-resnet")
    one.shows(
        "#why",
        "slow: p95 81 ms of 50 ms, grows by a tenth",
        "1.4 cores cut to 1.25: the node is full",
        "resize: failed, engine said: busy",
        "helped: 90 -> 81.7 ms (212 requests), 2 other jobs changed too; expected 84 ms",
        "limit 1.000 -> 1.100 cores",
        "cannot be met beside the other jobs",
    )
    one.page.get_by_role("button", name="Copy command").click()
    one.shows("#copy", "Copied")
    copied = one.page.evaluate("navigator.clipboard.readText()")
    assert copied == "dlsched why digits-resnet"


def test_a_link_leads_to_a_job(visit: Open) -> None:
    one = visit("example", "#job=digits-vgg")
    one.state("selected", "digits-vgg")
    one.shows("#why", "digits-vgg")
    expect(one.page.locator('tr[data-job="digits-vgg"]')).to_have_attribute("aria-current", "true")
    one.page.locator('tr[data-job="queued"]').click()
    one.state("selected", "queued")
    assert one.page.url.endswith("#job=queued")


def test_decisions_are_marks_with_their_reasons_and_a_list(visit: Open) -> None:
    one = visit("eight")
    one.pause()
    one.page.locator("#ratio-chart .mark").nth(3).hover()
    one.shows(
        "#tip",
        "p95 81 ms of 50 ms: one step up",
        re.compile(r"job-00\d limit 0\.400 -> \d\.\d\d\d cores"),
        "expected 45 ms",
    )
    one.page.mouse.move(5, 5)
    expect(one.page.locator("#tip")).to_be_hidden()

    items = one.page.locator("#changes li")
    expect(items.nth(2)).to_contain_text("expected 45 ms")
    job = items.nth(2).get_attribute("data-job")
    items.nth(2).click()
    one.state("selected", str(job))
    expect(one.page.locator(f'#changes li:not([data-job="{job}"])')).to_have_count(0)
    for chart in ("#ratio-chart", "#limits-chart"):
        moved = one.page.locator(f"{chart} .u-cursor-x")
        expect(moved).to_have_attribute("style", re.compile(r"translate\([1-9]"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("resize", "CPU weight 1024 -> 205"), "CPU weight 1024 -> 205"),
        (("resize", ""), "resize"),
        (("start", "limit 2.000 cores"), "start, limit 2.000 cores"),
        (("remove", ""), "remove"),
    ],
)
def test_a_change_is_named_as_by_why(visit: Open, change: tuple[str, str], said: str) -> None:
    one = visit("example")
    ask = "async (change) => (await import('/static/js/words.js')).changed(change)"
    assert one.page.evaluate(ask, dict(zip(("kind", "changed"), change, strict=True))) == said


def test_the_forecast_is_of_the_next_target_that_is_not_met(visit: Open) -> None:
    one = visit("example")
    ask = "async (job) => (await import('/static/js/words.js')).outlookOf(job)?.text"
    met, soon = {"kind": "met", "text": "met"}, {"kind": "expected", "text": "in 4 min"}
    assert one.page.evaluate(ask, {"blind": None, "outlook": [met, soon]}) == "in 4 min"
    assert one.page.evaluate(ask, {"blind": None, "outlook": [met, met]}) == "met"
    assert one.page.evaluate(ask, {"blind": "no report", "outlook": [met, soon]}) is None
    assert one.page.evaluate(ask, {"idle": "no request", "outlook": [met, soon]}) is None
    assert one.page.evaluate(ask, {"blind": None, "outlook": []}) is None


def test_a_phone_shows_three_columns_without_scrolling(opened: Open) -> None:
    one = opened("example")
    one.page.set_viewport_size({"width": 390, "height": 844})
    one.go()
    shown = one.page.locator("#jobs thead th:visible")
    expect(shown).to_have_text(["Job", "State", "Of target"])
    box = one.page.locator("#jobs-scroll")
    assert box.evaluate("(it) => it.scrollWidth <= it.clientWidth")
    row = one.page.locator('tr[data-job="digits-resnet"]')
    expect(row.locator("td:visible")).to_have_text(["▲slow", f"1.63{TIMES}"])


def test_zoom_stands_still_until_live_is_asked_for(visit: Open) -> None:
    one = visit("eight")
    box = one.page.locator("#ratio-chart .u-over").bounding_box()
    assert box is not None
    one.page.mouse.move(box["x"] + 80, box["y"] + 90)
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 240, box["y"] + 90, steps=5)
    one.page.mouse.up()
    one.state("zoom", "on")
    assert "from=" in one.page.url
    one.page.get_by_role("button", name="Back to live").click()
    one.state("zoom", "")


def test_the_charts_have_a_text_of_the_same_figures(visit: Open) -> None:
    one = visit("eight")
    text = re.compile(
        rf"^Latency relative to its target at \d\d:\d\d:\d\d: job-000 \d\.\d\d{TIMES}, job-001 "
    )
    expect(one.page.locator("#ratio-chart")).to_have_attribute("aria-label", text)
    text = re.compile(r"^CPU limits in cores at .*not dlsched's 0\.10, job-007 \d\.\d\d")
    expect(one.page.locator("#limits-chart")).to_have_attribute("aria-label", text)


def test_long_dashes_are_what_the_shadow_policy_would_set(visit: Open) -> None:
    one = visit("shadow")
    one.pause()
    one.shows("#limits-note", "dashed: CPU used, long dashes: shadow")
    # One of the three would have no ceiling, and counts with the 0.1 that it uses.
    one.shows("#limits-legend", "shadow fair1.65")
    one.page.locator('tr[data-job="job-001"]').click()
    one.shows("#limits-legend", "shadow fair, job-0011.25")


@pytest.mark.parametrize(
    ("selected", "line"),
    [
        # Without a ceiling a job counts with its use; one that does not run yet not at all.
        (None, [0.3 + 0.1, 0.3 + 0.2, None]),
        ("b", [0.5 + 0.3, 0.6 + 0.3, None]),  # on the limit of `a`
        ("a", [0.1, 0.2, None]),
    ],
)
def test_the_line_of_the_shadow_policy_is_a_sum_or_the_end_of_a_layer(
    visit: Open, selected: str | None, line: list[float | None]
) -> None:
    one = visit("eight")
    ask = """async (selected) => {
        const {limitLines} = await import("/static/js/lines.js");
        const {Series} = await import("/static/js/store.js");
        const series = new Series();
        const job = (name, limit, usage) => ({name, limit_cores: limit, usage_cores: usage});
        const add = (x, a, use, shadow) => series.add(x, {
            capacity_cores: 2, used_cores: 1, foreign_cores: 0, shadow,
            jobs: [job("a", a, use), job("b", 0.4, 0.4), job("constructor", null, null)],
        });
        const shadow = {policy: "fair", limit_cores: {a: null, b: 0.3}};
        add(1, 0.5, 0.1, shadow);
        add(2, 0.6, 0.2, shadow);
        add(3, 0.6, 0.2, null);
        const app = {selected, theme: "light", colourOf: () => 0, pins: new Set()};
        return limitLines(app, series).data.at(-1);
    }"""
    found = one.page.evaluate(ask, selected)
    assert found == [one and pytest.approx(one) for one in line]


def test_gpus_with_who_is_on_them(visit: Open) -> None:
    one = visit("gpus")
    rows = one.page.locator("#gpus tbody tr")
    expect(rows).to_have_count(4)
    has(rows.nth(0), "shared-one", "shared-two", "83 %")
    # The made-up daemon's clock goes on from a time long after the report.
    has(rows.nth(0), re.compile(r"container notebook-ada foreign, 2 GiB, idle for \d+ days"))
    has(rows.nth(0), "process 4242 of ada foreign, 1 GiB, in use")
    own = "job shared-one (dlsched-default-shared-one)"
    has(rows.nth(0), f"{own} own, owner uid 1000, 12 GiB, in use")
    has(rows.nth(1), "use unknown (MIG)", "process 77, which dlsched cannot see", "and 2 more")
    has(rows.nth(1), "job solitary own, owner uid 1000, memory unknown, use unknown (MIG)")
    expect(rows.nth(2)).to_contain_text("fell off the bus")
    expect(rows.nth(2).locator(".held")).to_have_text("\N{EN DASH}")
    expect(rows.nth(3).locator(".held")).to_have_text("nothing")
    expect(rows.nth(3)).to_contain_text("kept for shared-one")
    expect(one.page.locator('tr[data-job="shared-one"]')).to_contain_text("GPU lost")


def test_without_jobs_the_page_says_how_to_begin(visit: Open) -> None:
    one = visit("empty")
    one.state("jobs", "0")
    one.shows("#empty", "No jobs yet", "/etc/dlsched/jobs.d", "dlsched submit")
    expect(one.page.locator("#jobs-card")).to_be_hidden()


def test_before_the_first_cycle_the_page_says_so(opened: Open) -> None:
    one = opened("no-cycle", allowed=("503",))
    one.page.goto(one.url)
    one.shows("#banner", "the daemon's first control cycle has not ended yet")


def test_two_hundred_jobs(visit: Open) -> None:
    one = visit("many")
    one.state("jobs", "200")
    one.state("points", re.compile(r"^9\d\d$"))
    one.shows("#ratio-note", "median and middle 80 % of 200 jobs, the 5 worst")
    expect(one.page.locator("#ratio-legend .chip")).to_have_count(6)
    one.shows("#limits-legend", "188 others")
    while ink(one.page, "#limits-chart")["drawn"] <= 20_000:
        one.page.wait_for_timeout(100)
    one.press("/")
    one.page.keyboard.type("job-19")
    expect(one.page.locator(JOBS)).to_have_count(10)
    one.press("Enter")
    one.state("selected", re.compile("job-19"))
    expect(one.page.locator("#ratio-legend")).to_contain_text(one.now("selected"))

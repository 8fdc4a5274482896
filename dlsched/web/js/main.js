// The page. Its state is on <body> as data-*.

import { Changes } from "./changes.js";
import { Chart } from "./chart.js";
import { $, forgetColours, setData, setHidden, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { History, RANGES } from "./history.js";
import { Hosts } from "./hosts.js";
import { keys } from "./keys.js";
import { limitLines, ratioLines } from "./lines.js";
import { hideTip } from "./marks.js";
import { Notices } from "./notices.js";
import { Pins } from "./pins.js";
import { LIVE_S, Store } from "./store.js";
import { Table } from "./table.js";
import { Why } from "./why.js";

const COLOURS = 12;
const TICK_MS = 250;
const LEAST_S = 60; // of time shown, when there is little yet

class App {
  constructor() {
    this.store = new Store();
    this.selected = null;
    this.paused = false;
    this.zoomed = null; // {from, to}
    this.colours = new Map();
    this.pins = new Pins();
    this.table = new Table(this);
    this.changes = new Changes(this);
    this.why = new Why(this);
    this.notices = new Notices(this);
    this.history = new History(this);
    this.hosts = new Hosts(this);
    this.ratio = new Chart(this, $("ratio-chart"), $("ratio-legend"), "Latency relative to its target");
    this.limits = new Chart(this, $("limits-chart"), $("limits-legend"), "CPU limits in cores");
    this.feed = new Feed(this.store, (kind) => { if (kind === "status") this.#schedule(); });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", (event) => this.#recolour(event));
    this.#recolour(dark);
    keys(this);
    for (const button of document.querySelectorAll("nav [data-range]")) button.addEventListener("click", () => this.show(button.dataset.range));
    $("pause").addEventListener("click", () => this.pause(!this.paused));
    $("resume").addEventListener("click", () => this.zoom(null));
    addEventListener("hashchange", () => this.#fromLink());
    this.#fromLink();
    setInterval(() => this.#tick(), TICK_MS);
    this.#about();
    this.feed.open();
  }

  // Jobs in the table's order: pinned ones first, then worst first.
  get ranked() { return this.table.order; }

  colourOf(name) {
    if (!this.colours.has(name)) this.colours.set(name, this.colours.size % COLOURS);
    return this.colours.get(name);
  }

  select(name, why = false) {
    this.selected = name;
    setData(document.body, "selected", name ?? "");
    this.table.mark();
    if (name !== null) this.table.reveal(name);
    if (why || this.why.job !== null || name === null) this.why.open(name);
    this.#link();
    this.redraw();
  }

  pin(name) {
    this.pins.toggle(name);
    this.redraw();
  }

  step(by) {
    const { names } = this.table;
    if (!names.length) return;
    const at = names.indexOf(this.selected);
    const next = at < 0 ? 0 : Math.min(names.length - 1, Math.max(0, at + by));
    this.select(names[next]);
  }

  // Escape: closes what is open, then clears what is chosen.
  back() {
    hideTip();
    if (this.why.job !== null) this.why.open(null);
    else if (this.zoomed) this.zoom(null);
    else if ($("filter").value) { $("filter").value = ""; this.redraw(); } else this.select(null);
  }

  pause(paused) {
    this.paused = paused;
    setData(document.body, "paused", paused);
    $("pause").setAttribute("aria-pressed", String(paused));
    setText($("pause"), paused ? "Go on" : "Pause");
    this.redraw();
  }

  show(range) {
    setData(document.body, "range", range);
    for (const button of document.querySelectorAll("nav [data-range]")) button.setAttribute("aria-pressed", String(button.dataset.range === range));
    this.history.show(range);
    this.zoom(null);
  }

  zoom(range) {
    this.zoomed = range;
    setData(document.body, "zoom", range ? "on" : "");
    setHidden($("resume"), !range);
    this.#link();
    this.redraw();
  }

  // Moves the cursor of all charts, once they are drawn.
  pointAt(x) {
    this.pointed = x;
    this.redraw();
  }

  redraw() { this.#schedule(true); }

  #schedule(asked = false) {
    this.asked ||= asked;
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.#render(); });
  }

  #render() {
    const { store, asked } = this;
    const { status } = store;
    this.asked = false;
    this.notices.showAge(this.feed, store);
    if (!status || (this.paused && !asked)) return;
    for (const { name } of status.jobs) this.colourOf(name);
    setData(document.body, "jobs", status.jobs.length);
    setData(document.body, "cycle", store.cycle);
    setData(document.body, "points", store.series.length);
    this.notices.show(status);
    this.table.show(status, store, $("filter").value.trim().toLowerCase());
    this.why.ask();
    this.#charts();
  }

  #charts() {
    const { store, history } = this;
    const series = history.series ?? store.series;
    const changes = history.series ? history.changes : store.changes;
    const trouble = history.range !== "live" && history.trouble;
    setData(document.body, "trouble", trouble || "");
    setText($("changes-trouble"), trouble ? `The last ${RANGES[history.range].text}: ${trouble}.` : "");
    setHidden($("changes-trouble"), !trouble);
    if (!series.length) return;
    const range = this.zoomed ?? this.#range(series);
    // Paused: time stands still, and what is chosen still shows.
    if (this.paused) this.stood ??= range; else this.stood = undefined;
    const shown = this.zoomed ?? this.stood ?? range;
    this.changes.show(changes.filter((one) => one.x >= shown.from && one.x <= shown.to), this.selected);
    this.changes.ask(changes, this.selected);
    const { theme } = this; // it may change before the second frame, and both are then drawn again
    // Each in a frame of its own, so that none is long.
    requestAnimationFrame(() => {
      this.ratio.show(ratioLines(this, series), shown, changes);
      requestAnimationFrame(() => {
        this.limits.show(limitLines(this, series), shown, changes);
        if (this.pointed !== undefined) for (const chart of [this.ratio, this.limits]) chart.point(this.pointed);
        this.pointed = undefined;
        setData(document.body, "drawn", theme);
      });
    });
  }

  #range({ x }) {
    const to = x.at(-1);
    if (this.history.series) return { from: to - RANGES[this.history.range].s, to };
    return { from: Math.max(to - LIVE_S, Math.min(x[0], to - LEAST_S)), to };
  }

  #tick() {
    this.notices.showAge(this.feed, this.store);
    this.why.ask();
    this.hosts.ask();
  }

  // `matches` is read nowhere else: in Chromium, asking it just after a change suppresses the event.
  #recolour({ matches }) {
    this.theme = matches ? "dark" : "light";
    forgetColours();
    this.ratio.forget();
    this.limits.forget();
    this.redraw();
  }

  async #about() {
    try {
      const about = await (await fetch("v1/about")).json();
      this.store.about = about;
      setText($("about"), `${about.version}${about.instance === "default" ? "" : `, ${about.instance}`}${about.dry_run ? ", dry run" : ""}`);
      this.redraw();
    } catch { /* it is asked for the text of an empty page alone */ }
  }

  // #job=NAME&range=1h&from=SECONDS&to=SECONDS
  #fromLink() {
    const link = new URLSearchParams(location.hash.slice(1));
    const [from, to] = ["from", "to"].map((key) => Number(link.get(key)));
    const range = Object.hasOwn(RANGES, link.get("range") ?? "") ? link.get("range") : "live";
    const job = link.get("job");
    if (range !== document.body.dataset.range || this.history.series === null) this.show(range);
    if (to > from && from > 0) this.zoom({ from, to });
    if (job !== this.selected) this.select(job, job !== null);
  }

  #link() {
    const link = new URLSearchParams();
    if (this.selected !== null) link.set("job", this.selected);
    if (this.history.range !== "live") link.set("range", this.history.range);
    if (this.zoomed) for (const key of ["from", "to"]) link.set(key, this.zoomed[key].toFixed(0));
    const hash = link.size ? `#${link}` : location.pathname;
    if (location.hash !== `#${link}` && (link.size || location.hash)) history.replaceState(null, "", hash);
  }
}

new App();

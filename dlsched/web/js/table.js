// The table of jobs: pinned ones, then worst first, its order held while the pointer is on it.

import { BAND } from "./band.js";
import { $, drawing, el, setData, setHidden, setStyle, setText } from "./dom.js";
import { cores, latency, metric, outlookOf, stateOf } from "./words.js";

const SPARK_S = 300;
const SORTED_EVERY_MS = 3000; // rows that move each second cannot be read
const SPARK = { width: 80, height: 22 };

// Where a ratio stands on a bar from half to twice the target, equally far from 1.
const place = (ratio) => Math.min(1, Math.max(0, (Math.log2(ratio) + 1) / 2));
const percent = (part) => `${(100 * Math.min(1, Math.max(0, part))).toFixed(1)}%`;

export class Table {
  constructor(app) {
    this.app = app;
    this.rows = new Map();
    this.order = [];
    this.sortedAt = -Infinity;
    this.held = false;
    this.body = document.querySelector("#jobs tbody");
    this.body.addEventListener("pointerenter", () => this.#hold(true));
    this.body.addEventListener("pointerleave", () => this.#hold(false));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row) return;
      const pin = event.target.closest(".pin");
      if (pin) { app.pin(row.dataset.job); pin.blur(); } // so that Enter asks why
      else app.select(row.dataset.job, true);
    });
    // Rows out of sight are brought up to date when they come into sight.
    this.sight = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = this.rows.get(entry.target.dataset.job);
        if (!row) continue;
        row.seen = entry.isIntersecting;
        if (row.seen && row.stale) this.#fill(row);
      }
    }, { root: $("jobs-scroll"), rootMargin: "80px" });
  }

  #hold(held) {
    this.held = held;
    setData(document.body, "order", held ? "held" : "free");
    setHidden($("held"), !held);
    this.sortedAt = -Infinity;
    if (!held) this.app.redraw();
  }

  // Names in the order shown, without those that the filter leaves out.
  get names() { return this.order.filter((name) => !this.rows.get(name).tr.hidden); }

  show(status, store, filter) {
    const jobs = new Map(status.jobs.map((job) => [job.name, job]));
    const due = !this.held && performance.now() - this.sortedAt > SORTED_EVERY_MS;
    if (due || status.jobs.some((job) => !this.rows.has(job.name))) this.#sort(status, store);
    else this.order = this.order.filter((name) => jobs.has(name));
    this.order = this.app.pins.first(this.order);
    for (const [name, row] of this.rows) {
      if (!jobs.has(name)) { this.sight.unobserve(row.tr); row.tr.remove(); this.rows.delete(name); }
    }
    this.order.forEach((name, at) => {
      const row = this.rows.get(name) ?? this.#make(name);
      row.job = jobs.get(name);
      const wanted = name.includes(filter) || stateOf(row.job).word.includes(filter);
      setHidden(row.tr, !wanted);
      if (this.body.children[at] !== row.tr) this.body.insertBefore(row.tr, this.body.children[at] ?? null);
      if (row.seen) this.#fill(row); else row.stale = true;
    });
    this.mark();
    setData(document.body, "first", this.names[0] ?? "");
  }

  #sort(status, store) {
    const key = (job) => {
      const ratio = store.meanRatio(job.name) ?? job.ratio;
      return [stateOf(job).severity, -(ratio ?? 0), job.name];
    };
    const keys = new Map(status.jobs.map((job) => [job.name, key(job)]));
    const compared = (a, b) => a[0] - b[0] || a[1] - b[1] || (a[2] < b[2] ? -1 : 1);
    this.order = [...keys.keys()].sort((a, b) => compared(keys.get(a), keys.get(b)));
    this.sortedAt = performance.now();
  }

  // Shows which job is selected.
  mark() {
    const chosen = this.rows.get(this.app.selected)?.tr;
    if (chosen === this.marked) return;
    this.marked?.removeAttribute("aria-current");
    chosen?.setAttribute("aria-current", "true");
    this.marked = chosen;
  }

  reveal(name) { this.rows.get(name)?.tr.scrollIntoView({ block: "nearest" }); }

  #make(name) {
    const cell = (...children) => el("td", { role: "cell", class: children.length ? "drawn" : "" }, ...children);
    const part = (kind) => el("i", { class: kind });
    const row = { seen: this.rows.size < 40, stale: true, swatch: part("swatch") };
    row.shape = el("span", { class: "shape", "aria-hidden": "true" });
    row.word = el("span");
    row.state = el("span", { class: "state" }, row.shape, row.word);
    row.target = el("td", { role: "cell", class: "number" });
    row.measured = el("td", { role: "cell", class: "number" });
    const band = part("band"), [low, high] = [1 - BAND, 1 + BAND].map(place);
    setStyle(band, "left", percent(low));
    setStyle(band, "width", percent(high - low));
    row.ratio = { bar: el("div", { class: "bar ratio" }, band, part("fill"), part("one")), text: el("span", { class: "figure" }) };
    row.cpu = { bar: el("div", { class: "bar cpu" }, part("fill"), part("floor"), part("ceiling"), part("limit")), text: el("span", { class: "figure" }) };
    row.curve = drawing("path");
    row.spark = drawing("svg", { viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, "aria-hidden": "true" },
      drawing("rect", { width: SPARK.width, y: (1 - high) * SPARK.height, height: (high - low) * SPARK.height }), row.curve);
    row.silent = el("span", { class: "silent" });
    row.outlook = cell();
    row.label = el("span", { text: name });
    // Not in the order of Tab, which 200 of them would fill: the key is t.
    row.pin = el("button", { type: "button", class: "pin", tabindex: "-1", title: "pin to the top ( t )", "aria-label": `pin ${name} to the top` });
    row.tr = el("tr", { role: "row", "data-job": name },
      el("th", { role: "rowheader", scope: "row", title: name }, row.pin, row.swatch, row.label), cell(row.state), row.target, row.measured,
      cell(el("div", { class: "pair" }, row.ratio.bar, row.ratio.text)), cell(row.spark, row.silent),
      cell(el("div", { class: "pair" }, row.cpu.bar, row.cpu.text)), row.outlook);
    this.rows.set(name, row);
    this.sight.observe(row.tr);
    return row;
  }

  #fill(row) {
    const { job } = row;
    row.stale = false;
    const said = stateOf(job);
    setStyle(row.swatch, "background", `var(--c${this.app.colourOf(job.name)})`);
    setData(row.tr, "state", said.key);
    const pinned = String(this.app.pins.has(job.name));
    if (row.pin.getAttribute("aria-pressed") !== pinned) row.pin.setAttribute("aria-pressed", pinned);
    setText(row.shape, said.shape);
    setText(row.word, said.word);
    const doubt = job.uncertain, why = job.blind ?? job.idle ?? "";
    const title = job.bottleneck?.text ?? job.reason ?? job.diverged ?? why;
    if (row.state.title !== title) row.state.title = title;
    setText(row.target, job.target?.text ?? "–");
    if (row.target.title !== row.target.textContent) row.target.title = row.target.textContent;
    setText(row.measured, job.target?.kind === "accuracy"
      ? (job.metric === null ? "–" : metric(job.metric)) : latency(job));
    this.#ratio(row, job);
    this.#cpu(row, job);
    const outlook = outlookOf(job);
    setText(row.outlook, outlook?.text ?? "");
    setData(row.outlook, "kind", outlook?.kind ?? "");
    const sentence = outlook?.sentence ?? "";
    if (row.outlook.title !== sentence) row.outlook.title = sentence;
    setText(row.silent, job.failing ?? (!doubt || doubt === "unclear" ? why : `${doubt}: ${why}`));
    setHidden(row.silent, !doubt && !job.failing);
    row.spark.classList.toggle("none", Boolean(doubt));
    row.spark.classList.toggle("bare", job.target?.kind !== "latency");
    if (!doubt) this.#spark(row, job);
  }

  // Drawn when it has moved by a pixel; not all rows at the same time.
  #spark(row, job) {
    const { series } = this.app.store;
    const step = `${Math.floor(((series.x.at(-1) ?? 0) * SPARK.width) / SPARK_S + this.app.colourOf(job.name) / 12)} ${series.length > 1}`;
    if (row.step === step) return;
    row.step = step;
    row.curve.setAttribute("d", sparkPath(series, job));
  }

  #ratio({ ratio: { bar, text } }, job) {
    const training = job.target?.kind === "accuracy";
    const fill = bar.children[1];
    setData(bar, "kind", training ? "training" : "latency");
    if (training && job.metric !== null && job.target.finish > job.target.deliver) {
      setStyle(fill, "left", "0%");
      setStyle(fill, "width", percent(job.metric / job.target.finish));
      setStyle(bar.children[2], "left", percent(job.target.deliver / job.target.finish));
      setText(text, `${Math.round((100 * job.metric) / job.target.deliver)} %`);
      setHidden(bar, false);
      return;
    }
    setHidden(bar, job.ratio === null);
    setText(text, job.ratio === null ? "" : `${job.ratio.toFixed(2)}×`);
    if (job.ratio === null) return;
    const at = place(job.ratio);
    setStyle(bar.children[2], "left", "50%");
    setStyle(fill, "left", percent(Math.min(at, 0.5)));
    setStyle(fill, "width", percent(Math.abs(at - 0.5)));
  }

  #cpu({ cpu: { bar, text } }, job) {
    const { usage_cores: usage, actual_cores: limit, floor_cores: floor, ceiling_cores: ceiling } = job.cpu;
    const end = Math.max(ceiling ?? this.app.store.status.node.capacity_cores, usage ?? 0, limit ?? 0, 1e-9);
    const [used, low, high, held] = bar.children;
    setHidden(bar, usage === null);
    setText(text, usage === null ? "" : `${usage.toFixed(2)} / ${cores(limit)}`);
    setStyle(used, "width", percent((usage ?? 0) / end));
    setStyle(low, "left", percent(floor / end));
    setStyle(high, "left", percent((ceiling ?? end) / end));
    setHidden(held, limit === null);
    setStyle(held, "left", percent((limit ?? 0) / end));
    const bounds = `used ${cores(usage)}, limit ${cores(limit)}, floor ${cores(floor)}, ceiling ${cores(ceiling)} cores`;
    if (bar.title !== bounds) bar.title = bounds;
  }
}

// A path and no canvas: each canvas is a layer of its own, and there is one in every row.
function sparkPath(series, job) {
  const training = job.target?.kind === "accuracy";
  const values = series.jobs.get(job.name)?.[training ? "metric" : "ratio"];
  if (!values) return "";
  const begin = series.x.at(-1) - SPARK_S;
  const shown = training ? values.filter((one) => one !== null) : [];
  const low = Math.min(...shown), span = Math.max(...shown) - low || 1;
  const part = training ? (value) => (value - low) / span : place;
  const steps = [];
  let joined = false;
  for (let at = series.length - 1; at >= 0 && series.x[at] >= begin; at -= 1) {
    if (values[at] === null) { joined = false; continue; }
    const x = ((series.x[at] - begin) / SPARK_S) * SPARK.width, y = 1.5 + (1 - part(values[at])) * (SPARK.height - 3);
    steps.push(`${joined ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
    joined = true;
  }
  return steps.join("");
}

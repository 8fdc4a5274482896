// What both charts share: making anew when the lines or the colours change, zoom, cursor, marks, legend.

import { colour, el, setText } from "./dom.js";
import { clock } from "./words.js";
import { Marks } from "./marks.js";

const HEIGHT = 220;
const ZOOM_PIXELS = 12; // less is a click

export class Chart {
  // title: begins the text alternative.
  constructor(app, box, legend, title) {
    Object.assign(this, { app, box, legend, title, key: null, plot: null, chips: [] });
    this.marks = new Marks(app);
    this.width = 500;
    new ResizeObserver(([{ contentRect }]) => {
      this.width = Math.floor(contentRect.width);
      this.plot?.setSize({ width: this.width, height: HEIGHT });
    }).observe(box);
  }

  // lines: {key, data, series, bands, scale, axis, under, entries}; entries: {name, colour, at(index)}.
  show(lines, range, changes) {
    this.lines = lines;
    this.marks.changes = changes;
    if (lines.key !== this.key || !this.plot) this.#make(lines, range);
    else {
      this.plot.batch(() => {
        this.plot.setData(lines.data, false);
        this.plot.setScale("x", { min: range.from, max: range.to });
      });
    }
    this.#legend();
  }

  forget() { this.key = null; }

  // Moves the cursor to x, as a pointer would.
  point(x) {
    // A chart that was just made has no scales before its first drawing.
    requestAnimationFrame(() => this.plot?.setCursor({ left: this.plot.valToPos(x, "x"), top: HEIGHT / 2 }));
  }

  #make(lines, range) {
    this.plot?.destroy();
    this.key = lines.key;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: this.width,
      height: HEIGHT,
      padding: [14, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "dlsched" }, drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      scales: { x: { time: true, auto: false, min: range.from, max: range.to }, y: lines.scale },
      axes: [
        { ...axis, size: 26, values: (plot, splits) => splits.map((at) => clock(at).slice(0, plot.scales.x.max - plot.scales.x.min > 240 ? 5 : 8)) },
        { ...axis, size: 48, ...lines.axis },
      ],
      series: [{}, ...lines.series],
      bands: lines.bands ?? [],
      hooks: {
        drawClear: [(plot) => this.lines.under?.(plot)],
        draw: [(plot) => this.marks.place(plot)],
        setCursor: [() => this.#legend()],
        setSelect: [(plot) => this.#zoom(plot)],
      },
    };
    this.plot = new uPlot(options, lines.data, this.box);
    this.plot.over.addEventListener("dblclick", () => this.app.zoom(null));
    this.chips = lines.entries.map((entry) => {
      const value = el("b");
      const chip = el("span", { class: "chip" }, el("i", { class: "swatch" }), el("span", { text: entry.name }), value);
      chip.firstChild.style.background = entry.colour;
      if (entry.job) chip.addEventListener("click", () => this.app.select(entry.name, true));
      return { entry, value, chip };
    });
    this.legend.replaceChildren(...this.chips.map((one) => one.chip));
  }

  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < ZOOM_PIXELS) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.app.zoom({ from, to });
  }

  // The values under the cursor, else the last ones; the same figures are the text alternative.
  #legend() {
    if (!this.plot || !this.lines) return;
    const at = this.plot.cursor.idx ?? this.lines.data[0].length - 1;
    const said = this.lines.entries.map((entry) => `${entry.name} ${entry.at(at)}`);
    this.chips.forEach(({ value }, index) => {
      const entry = this.lines.entries[index];
      if (entry) setText(value, entry.at(at) + (entry.mark ?? ""));
    });
    const time = this.lines.data[0][at];
    const text = time === undefined ? `${this.title}: nothing yet` : `${this.title} at ${clock(time)}: ${said.join(", ")}`;
    if (this.box.getAttribute("aria-label") !== text) this.box.setAttribute("aria-label", text);
  }
}

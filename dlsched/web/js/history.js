// An hour, six, or a day: from the journal, by /v1/history.

import { setData } from "./dom.js";
import { Series } from "./store.js";

export const RANGES = { live: { s: 900, text: "15 minutes" }, "1h": { s: 3600, text: "hour" }, "6h": { s: 21600, text: "6 hours" }, "1d": { s: 86400, text: "day" } };

const AGAIN_MS = 30000; // the journal's curves have steps of a minute at least
const BUSY_MS = 2000; // another one is being read

export class History {
  constructor(app) {
    this.app = app;
    this.range = "live";
    this.series = null;
    this.changes = [];
    this.trouble = null;
    this.timer = 0;
  }

  show(range) {
    this.range = range;
    this.series = null;
    this.trouble = null;
    clearTimeout(this.timer);
    setData(document.body, "history", range === "live" ? "" : "loading");
    if (range !== "live") this.#ask(range);
  }

  async #ask(range) {
    const { store } = this.app;
    const to = store.series.x.at(-1) ?? Date.now() / 1000;
    let wait = AGAIN_MS;
    try {
      const got = await fetch(`v1/history?from=${Math.floor(to - RANGES[range].s)}&to=${Math.ceil(to)}`);
      const answer = await got.json();
      if (range !== this.range) return;
      if (got.ok) {
        this.series = curves(answer);
        this.changes = answer.changes.map((one) => ({ ...one, x: Date.parse(one.wall_time) / 1000 }));
        answer.changes.forEach((one, at) => { if (answer.effects[at]) store.takeEffects(one.job, [answer.effects[at]]); });
        this.trouble = answer.notes.length ? answer.notes.join("; ") : null;
        setData(document.body, "history", "shown");
      } else {
        // What this daemon cannot answer is said, and the page stays as it is.
        this.trouble = got.status === 404 ? "this daemon has no history" : String(answer.error);
        wait = got.status === 503 ? BUSY_MS : AGAIN_MS;
        setData(document.body, "history", "failed");
      }
    } catch {
      if (range !== this.range) return;
      this.trouble = "no connection";
      setData(document.body, "history", "failed");
    }
    this.timer = setTimeout(() => this.#ask(range), wait);
    this.app.redraw();
  }
}

function curves(answer) {
  const series = new Series();
  const jobs = Object.entries(answer.jobs);
  answer.times.forEach((x, at) => {
    const known = answer.node.capacity_cores[at] !== null;
    series.add(x, known ? {
      capacity_cores: answer.node.capacity_cores[at], given_cores: answer.node.given_cores[at],
      used_cores: answer.node.used_cores[at], foreign_cores: answer.node.foreign_cores[at],
      shadow_cores: answer.node.shadow_cores?.[at],
      jobs: jobs.map(([name, job]) => ({
        name, ratio: job.ratio[at], limit_cores: job.limit_cores[at], usage_cores: job.usage_cores[at], metric: job.metric[at],
      })),
    } : null);
  });
  return series;
}

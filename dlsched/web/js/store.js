// What was received: curves of the last 15 minutes, and what happened in them. Names are keys of Maps only.

export const LIVE_S = 900;
const SLACK = 60; // points over the limit before the oldest are cut off
const CLOCK_STEP_S = 5; // a wall clock that differs by more from the daemon's own time was set
const CHANGES_MAX = 2000;
const GAP_PERIODS = 4; // silence that leaves a gap in the lines

export class Series {
  constructor() {
    this.x = [];
    this.node = { capacity: [], given: [], used: [], foreign: [], shadow: [] };
    this.band = { p10: [], p50: [], p90: [] };
    this.jobs = new Map();
    this.shadow = null; // name of the last shadow policy; the journal's curves do not have it
  }

  get length() { return this.x.length; }

  // point: {capacity_cores, used_cores, foreign_cores, jobs, shadow}; null: nothing is known at x.
  // From the journal it has no shadow, but shadow_cores: the sum.
  add(x, point) {
    const at = this.x.push(x) - 1;
    this.node.capacity.push(point?.capacity_cores ?? null);
    this.node.given.push(point?.given_cores ?? null);
    this.node.used.push(point?.used_cores ?? null);
    this.node.foreign.push(point?.foreign_cores ?? null);
    // What the shadow policy would set; without a limit a job counts with what it uses.
    const would = point?.shadow ? new Map(Object.entries(point.shadow.limit_cores)) : null;
    if (would) this.shadow = point.shadow.policy;
    let shadow = 0;
    const ratios = [];
    for (const job of point?.jobs ?? []) {
      const kept = this.#of(job.name, at);
      kept.ratio[at] = job.ratio ?? null;
      kept.limit[at] = job.limit_cores ?? null;
      kept.usage[at] = job.usage_cores ?? null;
      kept.metric[at] = job.metric ?? null;
      kept.shadow[at] = would?.has(job.name) ? would.get(job.name) ?? job.usage_cores ?? 0 : null;
      shadow += kept.shadow[at] ?? 0;
      if (job.ratio !== null && job.ratio !== undefined) ratios.push(job.ratio);
    }
    for (const kept of this.jobs.values()) {
      if (kept.ratio.length === at) for (const key in kept) kept[key].push(null);
    }
    this.node.shadow.push(would ? shadow : point?.shadow_cores ?? null);
    const sorted = Float64Array.from(ratios).sort();
    const quantile = (q) => (sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : null);
    for (const [key, q] of [["p10", 0.1], ["p50", 0.5], ["p90", 0.9]]) this.band[key].push(quantile(q));
  }

  #of(name, at) {
    if (!this.jobs.has(name)) {
      const empty = () => new Array(at).fill(null);
      this.jobs.set(name, { ratio: empty(), limit: empty(), usage: empty(), metric: empty(), shadow: empty() });
    }
    return this.jobs.get(name);
  }

  #arrays() {
    return [this.x, ...Object.values(this.node), ...Object.values(this.band),
      ...[...this.jobs.values()].flatMap((kept) => Object.values(kept))];
  }

  cutBefore(x) {
    const count = this.x.findIndex((one) => one >= x);
    if (count < SLACK) return;
    for (const array of this.#arrays()) array.splice(0, count);
    for (const [name, kept] of this.jobs) {
      if (kept.usage.every((one) => one === null) && kept.ratio.every((one) => one === null)) this.jobs.delete(name);
    }
  }

  shift(by) { for (let at = 0; at < this.x.length; at += 1) this.x[at] += by; }
}

export class Store {
  constructor() { this.clear(); this.about = null; }

  clear() {
    this.series = new Series();
    this.changes = [];
    this.status = null;
    this.lastId = "";
    this.cycle = 0;
    this.periodS = 1;
    this.run = null; // {boot, offset, last}: from the daemon's time to the wall clock
    this.pending = [];
    this.effects = new Map(); // "job cycle": what was measured before and after it
  }

  takeEvents(events) { this.pending.push(...events.changes); }

  takePoint(id, point) {
    const boot = id.split(":")[0];
    const wall = Date.parse(point.now) / 1000;
    const series = this.series;
    if (this.run?.boot !== boot) this.#begin(boot, wall, point.now_s);
    if (point.now_s <= this.run.last) { this.pending = []; return; } // sent again
    const stepped = wall - (point.now_s + this.run.offset);
    if (Math.abs(stepped) > CLOCK_STEP_S) {
      this.run.offset += stepped;
      series.shift(stepped);
      for (const change of this.changes) change.x += stepped;
    }
    const x = point.now_s + this.run.offset;
    const before = series.x.at(-1);
    if (before !== undefined) {
      const passed = x - before;
      if (passed > Math.max(3, GAP_PERIODS * this.periodS)) series.add(before + this.periodS, null);
      else this.periodS += 0.1 * (passed - this.periodS);
    }
    series.add(x, point);
    for (const change of this.pending) this.changes.push({ ...change, x: change.now_s + this.run.offset });
    this.pending = [];
    series.cutBefore(x - LIVE_S);
    if (this.changes.length > CHANGES_MAX) this.changes.splice(0, this.changes.length - CHANGES_MAX);
    Object.assign(this.run, { last: point.now_s });
    this.lastId = id;
    this.cycle = point.cycle;
  }

  // Another run of the daemon: its curve goes on where the clock goes on.
  #begin(boot, wall, nowS) {
    const last = this.series.x.at(-1);
    if (last !== undefined && wall + 1 <= last) { this.series = new Series(); this.changes = []; }
    const offset = Math.max(wall, last === undefined ? wall : last + 0.001) - nowS;
    this.run = { boot, offset, last: -Infinity };
  }

  takeStatus(status) { this.status = status; }

  takeEffects(job, effects) {
    for (const one of effects) this.effects.set(`${job} ${one.cycle}`, one);
    if (this.effects.size > 2 * CHANGES_MAX) this.effects.clear();
  }

  effectOf(change) { return this.effects.get(`${change.job} ${change.cycle}`); }

  // Mean ratio of the last 30 s; null: unknown.
  meanRatio(name) {
    const { x, jobs } = this.series;
    const ratio = jobs.get(name)?.ratio;
    if (!ratio) return null;
    let sum = 0, count = 0;
    for (let at = x.length - 1; at >= 0 && x[at] > x.at(-1) - 30; at -= 1) {
      if (ratio[at] !== null) { sum += ratio[at]; count += 1; }
    }
    return count ? sum / count : null;
  }
}

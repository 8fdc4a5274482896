// What the two charts draw, from a Series: the ratio of each job, and limits over capacity.

import { BAND } from "./band.js";
import { $, colour, setText } from "./dom.js";
import { cores } from "./words.js";

const EACH_MAX = 12; // lines that can be told apart
const WORST = 5;
const STACKED = 12;
const CHOSEN_FOR_MS = 10000; // a choice of lines stays for so long, as each makes the chart again
const FAR = 16; // of target, either way: beyond it a line lies at the edge

const clipped = (value) => (value === null ? null : Math.min(FAR, Math.max(1 / FAR, value)));
const faint = (hex) => `${hex}38`;

// The first of `names`, chosen again only after a while, or when one of them is gone.
const choices = new Map();

function chosen(which, names, count) {
  const { at = -Infinity, first = [] } = choices.get(which) ?? {};
  const there = new Set(names);
  if (performance.now() - at < CHOSEN_FOR_MS && first.length === Math.min(count, names.length) && first.every((name) => there.has(name))) return first;
  const found = names.slice(0, count);
  choices.set(which, { at: performance.now(), first: found });
  return found;
}

export function ratioLines(app, series) {
  const names = app.ranked.filter((name) => series.jobs.get(name)?.ratio.some((one) => one !== null));
  const many = names.length > EACH_MAX;
  const pinned = names.filter((name) => app.pins.has(name)).slice(0, EACH_MAX);
  const worst = () => chosen("worst", names.filter((name) => !app.pins.has(name)), WORST);
  const lines = (many ? [...pinned, ...worst()] : names).toSorted();
  if (many && names.includes(app.selected) && !lines.includes(app.selected)) lines.push(app.selected);
  setText($("ratio-note"), many ? `median and middle 80 % of ${names.length} jobs, the ${WORST} worst${pinned.length ? `, ${pinned.length} pinned` : ""}` : "1 = target, shaded: within 10 %");
  const line = (name) => {
    const own = name === app.selected;
    const stroke = colour(`--c${app.colourOf(name)}`);
    return { stroke: app.selected && !own && !many ? `${stroke}80` : stroke, width: own ? 2.5 : 1.4, spanGaps: false, points: { show: false } };
  };
  const values = lines.map((name) => series.jobs.get(name).ratio.map(clipped));
  const data = [series.x, ...values];
  const drawn = lines.map(line);
  const bands = [];
  if (many) {
    data.splice(1, 0, ...["p90", "p10", "p50"].map((key) => series.band[key].map(clipped)));
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    drawn.unshift(edge, edge, { stroke: colour("--muted"), width: 2, points: { show: false } });
    bands.push({ series: [1, 2], fill: colour("--spread") });
  }
  const entries = lines.map((name, at) => ({
    name, job: true, colour: colour(`--c${app.colourOf(name)}`),
    at: (index) => said(values[at][index]),
  }));
  if (many) entries.unshift({ name: "median", colour: colour("--muted"), at: (index) => said(series.band.p50[index]) });
  return {
    key: `${app.theme} ${many} ${app.selected} ${lines.join(" ")}`,
    data, series: drawn, bands, entries, under: targetBand,
    scale: { distr: 3, log: 2, range: (_plot, low, high) => powers(low, high) },
    axis: { splits: (plot) => doubled(plot.scales.y.min, plot.scales.y.max), values: (_plot, splits) => splits.map((one) => `${one}×`), filter: (_plot, splits) => splits },
  };
}

const said = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(2)}×`);
const powers = (low, high) => [
  Math.min(0.5, 2 ** Math.floor(Math.log2(low ?? 1))), Math.max(2, 2 ** Math.ceil(Math.log2(high ?? 1))),
];

function doubled(low, high) {
  const splits = [];
  for (let at = low; at <= high * 1.001; at *= 2) splits.push(at);
  return splits;
}

function targetBand(plot) {
  const pen = plot.ctx, { left, width } = plot.bbox;
  const [top, one, bottom] = [1 + BAND, 1, 1 - BAND].map((ratio) => plot.valToPos(ratio, "y", true));
  pen.save();
  pen.fillStyle = colour("--band");
  pen.fillRect(left, top, width, bottom - top);
  pen.fillStyle = colour("--target");
  pen.fillRect(left, one - devicePixelRatio / 2, width, devicePixelRatio);
  pen.restore();
}

// Limits on each other; a job without a limit counts with what it uses. Others on top: above the line of
// the capacity, the node is asked for more than it has.
export function limitLines(app, series) {
  const last = series.length - 1;
  const now = new Map([...series.jobs.keys()].map((name) => [name, held(series, [name], last)[0]]));
  const names = [...now.keys()].sort((a, b) => now.get(b) - now.get(a) || (a < b ? -1 : 1));
  const pinned = names.filter((name) => app.pins.has(name)).slice(0, STACKED);
  const others = names.filter((name) => !pinned.includes(name));
  const shown = [...pinned, ...chosen("stacked", others, STACKED - pinned.length)].toSorted();
  const rest = names.length > shown.length ? names.filter((name) => !shown.includes(name)) : [];
  const free = (name) => series.jobs.get(name).limit[last] === null && now.get(name) > 0;
  const shadow = series.node.shadow.some((one) => one !== null) ? `shadow ${series.shadow ?? "policy"}` : "";
  setText($("limits-note"), `line: capacity, dashed: CPU used${shadow && ", long dashes: shadow"}${names.some(free) ? "; *: a job without a limit, whose use is drawn" : ""}`);

  const layers = shown.map((name) => ({ name, job: true, colour: colour(`--c${app.colourOf(name)}`), values: held(series, [name]) }));
  if (rest.length) layers.push({ name: `${rest.length} others`, colour: colour("--others"), values: held(series, rest) });
  layers.push({ name: "not dlsched's", colour: colour("--foreign"), values: series.node.foreign.map((one) => one ?? 0) });
  const sums = new Array(series.length).fill(0);
  const gaps = series.node.capacity.map((one) => one === null);
  const own = layers.map((layer) => layer.values.map((value, at) => (gaps[at] ? null : value)));
  const stacked = own.map((values) => values.map((value, at) => (value === null ? null : (sums[at] += value))));

  const stepped = uPlot.paths.stepped({ align: 1 });
  const drawn = layers.map((layer, at) => ({
    stroke: layer.colour, width: 1, paths: stepped, points: { show: false },
    fill: at === 0 ? faded(layer, app) : undefined,
  }));
  const bands = layers.slice(1).map((layer, at) => ({ series: [at + 2, at + 1], fill: faded(layer, app) }));
  drawn.push(
    { stroke: colour("--text"), width: 1, dash: [3, 3], points: { show: false } },
    { stroke: colour("--capacity"), width: 2, paths: stepped, points: { show: false } },
  );
  const entries = layers.toReversed().map((layer) => {
    const values = own[layers.indexOf(layer)];
    return { name: layer.name, mark: layer.job && free(layer.name) ? "*" : "", job: layer.job, colour: layer.colour, at: (index) => (values[index] === null || values[index] === undefined ? "–" : cores(values[index])) };
  });
  const data = [series.x, ...stacked, series.node.used, series.node.capacity];
  if (shadow) {
    // Where the layer of the selected job would end, else all of them; of a job the journal does not know it.
    const at = layers.findIndex((layer) => layer.job && layer.name === app.selected && series.jobs.get(layer.name).shadow.some((one) => one !== null));
    const would = at < 0 ? series.node.shadow : series.jobs.get(app.selected).shadow;
    data.push(would.map((one, index) => (one === null || gaps[index] ? null : one + (at > 0 ? stacked[at - 1][index] : 0))));
    drawn.push({ stroke: colour("--text"), width: 1.5, dash: [10, 5], paths: stepped, points: { show: false } });
    entries.unshift({ name: at < 0 ? shadow : `${shadow}, ${app.selected}`, colour: colour("--text"), at: (index) => (typeof would[index] === "number" ? cores(would[index]) : "–") });
  }
  return {
    key: `${app.theme} ${app.selected} ${shadow} ${layers.map((layer) => layer.name).join(" ")}`,
    data,
    series: drawn, bands, entries,
    scale: { range: (_plot, _low, high) => [0, Math.max(high ?? 1, 0.1) * 1.06] },
    axis: { values: (_plot, splits) => splits.map((one) => String(Number(one.toFixed(2)))) },
  };
}

// The sum of these jobs' limits from an index on; of one without a limit, of what it uses.
function held(series, names, from = 0) {
  const sums = new Array(series.length - from).fill(0);
  for (const name of names) {
    const { limit, usage } = series.jobs.get(name);
    for (let at = from; at < series.length; at += 1) sums[at - from] += limit[at] ?? usage[at] ?? 0;
  }
  return sums;
}

const faded = (layer, app) => (layer.name === app.selected ? `${layer.colour}e6` : app.selected ? faint(layer.colour) : `${layer.colour}80`);

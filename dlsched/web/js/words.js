// How values read: units, states by word and shape, the headline.

const S = { day: 86400, hour: 3600, minute: 60 };

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  const [scale, unit] = value < 1e-3 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : value < 90 ? [1, "s"]
    : value < S.hour ? [1 / S.minute, "min"] : value < 2 * S.day ? [1 / S.hour, "h"] : [1 / S.day, "days"];
  return `${digits(value * scale)} ${unit}`;
}

// A latency, or between what it lies, as `dlsched ps` says it.
export function latency({ measured_s: measured, lowest_s: lowest, highest_s: highest }) {
  if (measured !== null || lowest === null) return seconds(measured);
  if (highest === null) return `> ${seconds(lowest)}`;
  return lowest ? `${seconds(lowest)} to ${seconds(highest)}` : `< ${seconds(highest)}`;
}

// A time that is never rounded up: whole seconds, minutes or hours.
export function idleTime(value) {
  const [scale, unit] = value < 2 * S.minute ? [1, "s"] : value < 2 * S.hour ? [S.minute, "min"]
    : value < 2 * S.day ? [S.hour, "h"] : [S.day, "days"];
  return `${Math.floor(value / scale)} ${unit}`;
}

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2))
  .replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

export const cores = (value) => (value === null || value === undefined ? "none" : value.toFixed(2));
export const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`);
export const gib = (bytes) => (bytes === null || bytes === undefined ? "–" : `${digits(bytes / 2 ** 30)} GiB`);
export const metric = (value) => String(Number(value.toPrecision(4)));
export const clock = (x) => new Date(x * 1000).toLocaleTimeString("en-GB");
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

// Severity orders the table: 0 needs a person, 9 is done.
const state = (key, word, shape, severity) => ({ key, word, shape, severity });
const OTHER = {
  waiting: state("wait", "waiting", "○", 4), pulling: state("wait", "pulling", "◔", 5),
  starting: state("wait", "starting", "◔", 5), restarting: state("wait", "restarting", "◔", 5),
  paused: state("wait", "paused", "‖", 5), moving: state("wait", "moving", "↷", 5),
  stopping: state("wait", "stopping", "◔", 8), stopped: state("done", "stopped", "■", 9),
  finished: state("done", "finished", "✓", 9), failed: state("bad", "failed", "✕", 0),
  unmanaged: state("bad", "left alone", "✕", 0),
};
const FAILS = state("bad", "fails", "✕", 1);
const DOUBT = {
  unclear: state("blind", "unclear", "◇", 2), blind: state("blind", "blind", "◆", 2), idle: state("wait", "idle", "○", 5),
};
const SLOW = state("bad", "slow", "▲", 1);
const NEAR = state("near", "just above", "△", 3);
const FINE = state("ok", "on target", "●", 7);
const JUDGED = { slow: SLOW, "just above": NEAR, "on target": FINE };

// What a job's row says of its state.
export function stateOf(job) {
  if (job.state !== "running") return OTHER[job.state] ?? state("wait", job.state, "?", 5);
  if (job.diverged) return state("bad", "diverged", "✕", 0);
  if (job.gpu?.lost) return state("bad", "GPU lost", "✕", 0);
  if (job.failing) return FAILS;
  if (DOUBT[job.uncertain]) return DOUBT[job.uncertain];
  if (!job.target) return state("plain", job.background ? "background" : "running", "–", 8);
  if (job.target.kind === "accuracy") {
    if (job.tiers?.finished) return state("ok", "finished", "✓", 7);
    return job.tiers?.delivered ? state("ok", "delivered", "●", 7) : state("train", "training", "◐", 6);
  }
  return JUDGED[job.judged] ?? state("wait", "no requests", "○", 5);
}

const OVER = ["stopping", "stopped", "finished"]; // as `dlsched ps` counts

// The targets in a sentence, and the node in one of three parts: the middle one is what others use.
export function headline(status) {
  const present = status.jobs.filter((job) => !OVER.includes(job.state));
  const services = present.filter((job) => job.target?.kind === "latency");
  const trainings = present.filter((job) => job.target?.kind === "accuracy");
  const of = (list, word) => list.filter((job) => stateOf(job).word === word).length;
  const said = [];
  if (services.length) said.push(`${of(services, FINE.word)} of ${plural(services.length, "service")} on target`);
  for (const { word } of [FAILS, SLOW, NEAR]) if (of(services, word)) said.push(`${of(services, word)} ${word}`);
  const delivered = trainings.filter((job) => job.tiers?.delivered).length;
  if (trainings.length) said.push(`${delivered} of ${plural(trainings.length, "training")} delivered`);
  for (const word of ["blind", "unclear", "idle", "waiting", "failed", "diverged"]) {
    if (of(status.jobs, word)) said.push(`${of(status.jobs, word)} ${word}`);
  }
  const node = status.node;
  const others = node.foreign_cores === null ? "" : `${cores(node.foreign_cores)} by others`;
  const free = node.unlimited_jobs ? `, ${plural(node.unlimited_jobs, "job")} without a limit` : "";
  const shadow = status.shadow ? ` (shadow ${status.shadow})` : "";
  const bound = node.bound_by ? ` (${node.bound_by})` : "";
  const capacity = node.throttled_ratio ? `unknown: throttled from outside, at most ${cores(node.capacity_cores)}`
    : cores(node.capacity_cores);
  const engine = status.engine.ok ? "engine ok" : "engine does not answer";
  return [`${said.join(", ") || plural(status.jobs.length, "job")}.`,
    `Capacity ${capacity} cores${bound}, ${cores(node.used_cores)} used${others && ", "}`, others,
    `, CPU limits add up to ${cores(node.given_cores)}${free}. Policy ${status.policy}${shadow}, ${engine}.`];
}

// The forecast of the next target that is not met, as `dlsched ps` has it; a blind or idle job has none.
export const outlookOf = ({ blind, idle, outlook }) => (blind || idle ? undefined : outlook.find(({ kind }) => kind !== "met") ?? outlook.at(-1));

// What was measured of a change, and what the policy expected of it, as `dlsched why` says it.
export const afterwards = (change, effect) => [change.kind === "resize" ? effect?.text : "",
  typeof change.expected_s === "number" ? `expected ${seconds(change.expected_s)}` : ""].filter(Boolean).join("; ");

// What a change did, as `dlsched why` says it: a resize is named by what it changed.
export const changed = ({ kind, changed: what }) => [["resize", "memory"].includes(kind) && what ? "" : kind, what].filter(Boolean).join(", ");

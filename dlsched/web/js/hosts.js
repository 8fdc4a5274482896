// A cluster's hosts, on the page of a manager: nodes, jobs, and what waits. Nothing where there is no cluster.

import { $, el, setData, setHidden, setText } from "./dom.js";
import { metric, plural, seconds } from "./words.js";

const AGAIN_MS = 3000;
const RARELY_MS = 30000; // where no controller has run
// As `dlsched cluster status` has it: the controller has ended, or hangs.
const OLD_S = 60;
const ROWS = 200;

const STATES = {
  ready: ["ok", "●"], running: ["ok", "●"], finished: ["done", "✓"],
  drain: ["near", "◔"], silent: ["blind", "◆"], unknown: ["blind", "◆"], down: ["bad", "✕"], failed: ["bad", "✕"],
  starting: ["wait", "◔"], saving: ["train", "↷"], leaving: ["train", "↷"], moving: ["train", "↷"],
  returning: ["train", "↷"], undoing: ["near", "↶"],
};

export class Hosts {
  constructor(app) {
    this.app = app;
    this.dueAt = 0;
    this.asking = false;
  }

  async ask() {
    if (this.asking || this.app.paused || document.hidden || this.app.feed.state !== "open" || performance.now() < this.dueAt) return;
    this.asking = true;
    try {
      const answer = await fetch("v1/cluster");
      const body = await answer.json();
      this.dueAt = performance.now() + (body.cluster === null ? RARELY_MS : AGAIN_MS);
      if (this.app.paused) return;
      if (answer.ok) this.#show(body); else this.#refused(String(body.error));
    } catch {
      this.dueAt = performance.now() + AGAIN_MS;
    } finally {
      this.asking = false;
    }
  }

  // To the section by a key; its tables scroll by the arrows then.
  focus() {
    if ($("hosts-card").hidden) return;
    $("hosts-card").scrollIntoView({ block: "nearest" });
    $("hosts-scroll").focus();
  }

  #refused(line) {
    setHidden($("hosts-card"), false);
    setData($("hosts-card"), "old", true);
    setData(document.body, "hosts", "unreadable");
    this.#trouble(line);
  }

  #trouble(line) {
    setText($("hosts-trouble"), line);
    setHidden($("hosts-trouble"), !line);
  }

  #show({ cluster, written_age_s: writtenS, observed_age_s: observedS }) {
    setHidden($("hosts-card"), cluster === null);
    setData(document.body, "hosts", cluster === null ? "none" : cluster.nodes.length);
    if (cluster === null) return;
    const old = writtenS === null || writtenS > OLD_S;
    const names = nodeNames(cluster.nodes);
    const moving = cluster.jobs.filter((job) => job.target !== null).length;
    const ready = cluster.nodes.filter((node) => node.state === "ready").length;
    setData($("hosts-card"), "old", old);
    const leads = cluster.leader === cluster.manager; // another one knows no nodes and no jobs
    const counts = [`${ready} of ${plural(cluster.nodes.length, "host")} ready`, plural(cluster.jobs.length, "job"), `${plural(moving, "move")} under way`, `${cluster.queue.length} waiting`];
    setText($("hosts-note"), [
      ...leads ? counts : [], `policy ${cluster.policy}`,
      observedS === null ? "" : `${seconds(Math.round(observedS))} old`,
    ].filter(Boolean).join(", "));
    this.#trouble([
      old ? `This view of the cluster is ${writtenS === null ? "of an unknown time" : `${seconds(writtenS)} old`}: the controller on this host has ended, or hangs.` : "",
      !cluster.leader ? "It is not known which manager leads." : "",
      cluster.leader && !leads ? `Manager ${cluster.leader} leads, and shows more than this one, ${cluster.manager}.` : "",
    ].filter(Boolean).join(" "));
    fill("nodes", cluster.nodes, (node) => nodeRow(node, names));
    fill("cluster-jobs", ranked(cluster.jobs), (job) => jobRow(job, names));
    fill("queue", cluster.queue, queueRow);
    const lines = [
      ...cluster.alarms.map((text) => ["Alarm", text]), ...cluster.rejected.map((text) => ["Not applied", text]),
      ...cluster.nodes.filter((node) => node.problem).map((node) => [names.get(node.name), node.problem]),
      ...cluster.asked.map((text) => ["Asked", text]),
    ];
    if (lines.length > ROWS) lines.splice(ROWS, lines.length, ["And", `${plural(lines.length - ROWS, "more line")} not shown here: run dlsched cluster status`]);
    $("hosts-lines").replaceChildren(...lines.map(([what, text]) => el("li", {}, el("b", { text: what }), text)));
    setHidden($("hosts-lines"), !lines.length);
  }
}

// As `dlsched cluster status` names them: by the host's name, where only one node has it.
function nodeNames(nodes) {
  const hosts = nodes.map((node) => node.host);
  const alone = ({ host }) => host && hosts.indexOf(host) === hosts.lastIndexOf(host);
  return new Map(nodes.map((node) => [node.name, alone(node) ? node.host : node.name]));
}

// Moves first, then what does not run.
function ranked(jobs) {
  const rank = (job) => (job.target !== null ? 0 : job.state !== "running" ? 1 : 2);
  return [...jobs].sort((a, b) => rank(a) - rank(b));
}

function fill(id, rows, row) {
  const table = $(id);
  const more = rows.length - ROWS;
  const columns = table.tHead.rows[0].cells.length;
  const made = rows.slice(0, ROWS).map(row);
  if (more > 0) made.push(el("tr", {}, el("td", { colspan: columns, class: "none", text: `${plural(more, "more row")} not shown here: run dlsched cluster status` })));
  table.tBodies[0].replaceChildren(...made);
  setHidden(table.parentElement, !rows.length);
}

function stateCell(word, more = "") {
  const [, shape] = STATES[word] ?? ["wait", "?"];
  return el("td", { class: "state" }, el("span", { class: "shape", "aria-hidden": "true", text: shape }), `${word}${more}`);
}

const rowOf = (word, ...cells) => el("tr", { "data-state": (STATES[word] ?? ["wait"])[0] }, ...cells);
const nameCell = (text, title = text) => el("th", { scope: "row", title, text });
const number = (text) => el("td", { class: "number", text });

function nodeRow(node, names) {
  const known = node.used_cores !== null && node.capacity_cores !== null;
  const meter = el("div", { class: "bar meter" }, el("i", { class: "fill" }));
  if (known && node.capacity_cores > 0) meter.firstChild.style.width = `${Math.min(100, 100 * node.used_cores / node.capacity_cores)}%`;
  const used = known ? `${node.used_cores.toFixed(1)} / ${metric(node.capacity_cores)}` : "?";
  const ends = node.ends_in_s === null ? (node.report_age_s === null ? "?" : "–") : seconds(node.ends_in_s);
  return rowOf(node.state,
    nameCell(names.get(node.name), `${node.name}, ${node.address}`),
    stateCell(node.state),
    number(node.jobs),
    el("td", {}, el("div", { class: "pair" }, meter, el("span", { class: "figure", text: used }))),
    number(ends),
    number(node.report_age_s === null ? "none yet" : `${seconds(Math.round(node.report_age_s))} old`));
}

function jobRow(job, names) {
  const name = (node) => names.get(node) ?? node;
  const where = job.target === null ? name(job.node) : `${name(job.node)} → ${name(job.target)}`;
  return rowOf(job.state,
    nameCell(job.name),
    el("td", { title: where, text: where }),
    stateCell(job.state, job.state === "running" ? "" : `, ${seconds(Math.round(job.since_s))}`),
    el("td", { title: job.goal, text: job.goal || "–" }),
    number(job.measured === null ? "–" : metric(job.measured)),
    number(job.granted_cores === null ? "–" : job.granted_cores.toFixed(2)),
    number(job.moves),
    el("td", { class: "why", text: [job.why, job.unmovable && `cannot be moved: ${job.unmovable}`].filter(Boolean).join("; ") }));
}

const queueRow = (job) => el("tr", {}, nameCell(job.name), number(seconds(Math.round(job.waits_s))), el("td", { class: "why", text: job.why }));

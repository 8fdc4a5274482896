// What is said in words: headline, banner, alarms, rejected files, GPUs, and what to do when there is no job.

import { $, el, setData, setHidden, setText } from "./dom.js";
import { clock, cores, gib, headline, idleTime, plural, share } from "./words.js";

const SPOKEN_EVERY_MS = 10000; // a screen reader is not told more often

export class Notices {
  constructor(app) {
    this.app = app;
    this.spokenAt = -Infinity;
    this.kept = {};
    $("others").addEventListener("click", () => {
      const open = $("others-list").hidden;
      setHidden($("others-list"), !open);
      $("others").setAttribute("aria-expanded", String(open));
    });
  }

  show(status) {
    const said = headline(status);
    const [targets, before, others, after] = said;
    setText($("targets"), targets);
    setText($("node"), before);
    setText($("others"), others);
    setHidden($("others"), !others);
    setText($("node-rest"), after);
    if (performance.now() - this.spokenAt >= SPOKEN_EVERY_MS) {
      this.spokenAt = performance.now();
      setText($("spoken"), `${targets} ${before}${others}${after}`);
    }
    this.#once("others", status.node.host_cpu, () => $("others-list").replaceChildren(...cpuUsers(status.node.host_cpu)));
    this.#once("alarms", [status.alarms, status.rejected, status.node.gpu_trouble], () => this.#alarms(status));
    this.#once("gpus", status.node.gpus, () => this.#gpus(status.node.gpus));
    setHidden($("empty"), status.jobs.length > 0);
    if (!status.jobs.length) this.#once("empty", this.app.store.about, () => $("empty").replaceChildren(...noJobs(this.app.store.about)));
    document.title = `${status.jobs.some((job) => job.judged === "slow") ? "▲ " : ""}dlsched: ${plural(status.jobs.length, "job")}`;
  }

  // How old what is shown is; told by the age of the last message.
  showAge(feed, store) {
    const news = feed.newsAt === null ? "none" : feed.old ? "old" : "live";
    setData(document.body, "news", document.hidden ? "hidden" : news);
    const banner = $("banner");
    if (news === "old") {
      const how = feed.state === "open" ? "The connection is open, but the daemon sends nothing" : "No connection, trying again";
      const from = store.series.x.at(-1) ?? Date.parse(store.status.now) / 1000;
      setText(banner, `No news for ${Math.floor(feed.ageMs / 1000)} s, what you see is from ${clock(from)}. ${how}.`);
    } else if (news === "none" && !store.status) {
      setText(banner, feed.refused ?? (feed.state === "retrying" ? "No connection to the daemon, trying again." : ""));
      setText($("targets"), feed.refused ? "The daemon runs, but has no answer yet." : "Waiting for the first message of the daemon.");
    } else setText(banner, "");
    setHidden(banner, banner.textContent === "");
  }

  #once(part, value, change) {
    const text = JSON.stringify(value);
    if (this.kept[part] === text) return;
    this.kept[part] = text;
    change();
  }

  #alarms(status) {
    const items = status.alarms.map((text) => el("li", {}, el("b", { text: "Alarm" }), text));
    if (status.node.gpu_trouble) items.push(el("li", {}, el("b", { text: "GPUs" }), status.node.gpu_trouble));
    for (const one of status.rejected) {
      items.push(el("li", {}, el("b", { text: `Not applied: ${one.file}` }), ...one.problems.map((text) => el("span", { text }))));
    }
    $("alarms").replaceChildren(el("ul", {}, ...items));
    setHidden($("alarms"), items.length === 0);
  }

  #gpus(gpus) {
    setHidden($("gpus-card"), gpus.length === 0);
    document.querySelector("#gpus tbody").replaceChildren(...gpus.map(gpuRow));
  }
}

// Who uses the CPU of the host, without jobs, and what would help while it is short.
function cpuUsers(cpu) {
  if (!cpu) return [el("p", { text: "Who uses the CPU is not known: the first two samples take 10 s; after that, dlsched cannot see the host's control groups." })];
  if (!cpu.users.length) return [el("p", { text: "No container, unit or process of the host uses 0.05 cores or more." })];
  const lines = cpu.users.map((one) => el("li", {}, el("b", { text: `${one.kind} ${one.name}` }), `${cores(one.cores)} cores`,
    one.command === null ? null : el("span", {}, "would help: ", el("code", { text: one.command }))));
  return [el("ul", {}, ...lines)];
}

function gpuRow(gpu) {
  const holders = gpu.jobs.map((one) => el("span", { class: "chip" }, el("span", { text: one.name }), el("b", { text: share(one.share) })));
  const notes = [
    ...gpu.kept_for.map((name) => `kept for ${name}`), gpu.reserved ? "reserved" : "",
    gpu.trouble ?? "",
  ].filter(Boolean).map((text) => el("span", { class: gpu.trouble === text ? "failed" : "none", text }));
  const meter = el("div", { class: "bar meter" }, el("i", { class: "fill" }));
  meter.firstChild.style.width = `${100 * (gpu.busy_ratio ?? 0)}%`;
  return el("tr", {},
    el("th", { scope: "row", title: gpu.uuid }, el("span", { text: `${gpu.index} ${gpu.model}` })),
    el("td", {}, el("div", { class: "pair" }, meter, el("span", { class: "figure", text: share(gpu.busy_ratio) }))),
    el("td", { class: "number", text: `${gib(gpu.memory_used_bytes)} / ${gib(gpu.memory_bytes)}` }),
    el("td", { class: "holders" }, ...holders, ...notes, holders.length || notes.length ? null : "–"),
    el("td", { class: "held" }, gpu.holders.length ? holderList(gpu) : gpu.trouble === null ? "nothing" : "–"));
}

// What holds memory of the GPU, whose it is, and for how long it has not used the GPU.
function holderList(gpu) {
  const lines = gpu.holders.map((one) => {
    const owner = one.user ?? (one.uid === null ? "" : `uid ${one.uid}`);
    const parts = [one.kind, one.pid === null && owner ? `owner ${owner}` : "", one.memory_bytes === null ? "memory unknown" : gib(one.memory_bytes)].filter(Boolean).join(", ");
    const container = one.job !== null && one.name !== null && one.name !== one.job ? ` (${one.name})` : "";
    return el("li", { "data-kind": one.kind }, el("b", { text: `${one.text}${container}` }), ` ${parts}, `,
      el("span", { class: one.idle_too_long ? "failed" : "none", text: use(gpu, one) }));
  });
  if (gpu.holders_left_out) lines.push(el("li", { text: `and ${gpu.holders_left_out} more` }));
  return el("ul", {}, ...lines);
}

function use(gpu, one) {
  if (one.idle_s !== null) return `idle for ${idleTime(one.idle_s)}`;
  if (one.computes) return "in use";
  return gpu.part_of === null ? "use unknown" : "use unknown (MIG)";
}

function noJobs(about) {
  const watch = about?.watch ?? "the watch folder";
  const line = (text) => el("pre", { text });
  return [
    el("h2", { text: "No jobs yet" }),
    el("p", {}, "Keep a running container at a target, without a restart:"),
    line("sudo dlsched adopt NAME --latency 50ms --quantile p95 --metrics port=8000"),
    el("p", {}, "Or put a job file into ", el("code", { text: String(watch) }), ":"),
    line("sudo dlsched submit my-service.yaml"),
    el("p", {}, "Examples of job files are in the source code of dlsched, folder ", el("code", { text: "examples" }), ". To see which running containers can be measured, run ", el("code", { text: "dlsched probe" }), "."),
  ];
}

// The panel that says why: what the daemon answers to `dlsched why NAME`.

import { $, el, setData, setHidden } from "./dom.js";
import { afterwards, changed, cores, gib, latency, plural, share, stateOf } from "./words.js";

const ASK_EVERY_MS = 3000;

export class Why {
  constructor(app) {
    this.app = app;
    this.panel = $("why");
    this.job = null;
    this.askedAt = -Infinity;
    this.text = "";
  }

  open(job) {
    if (this.job !== job) { this.text = ""; this.askedAt = -Infinity; }
    if ((job === null) !== (this.job === null)) makeRoom(job !== null);
    this.job = job;
    setData(document.body, "why", job ?? "");
    if (job === null) { setHidden(this.panel, true); return; }
    this.ask();
  }

  async ask() {
    if (this.job === null || performance.now() - this.askedAt < ASK_EVERY_MS) return;
    this.askedAt = performance.now();
    const job = this.job;
    let answer;
    try {
      const got = await fetch(`v1/jobs/${encodeURIComponent(job)}/why?limit=10`);
      answer = await got.json();
      if (!got.ok) answer = { error: String(answer.error) };
    } catch {
      return; // the panel keeps what it has; the banner says how old it is
    }
    if (job !== this.job) return;
    const text = JSON.stringify(answer);
    if (text !== this.text) {
      this.text = text;
      if (answer.effects) this.app.store.takeEffects(job, answer.effects);
      this.app.redraw();
      this.panel.replaceChildren(...this.#content(job, answer));
    }
    setHidden(this.panel, false);
    setData(this.panel, "job", job);
  }

  #content(name, answer) {
    const command = `dlsched why ${name}`;
    const copy = el("button", { type: "button", id: "copy", title: `copy: ${command}`, text: "Copy command", onclick: () => copied(copy, command) });
    const close = el("button", { type: "button", title: "Esc", "aria-label": "Close", text: "✕", onclick: () => this.open(null) });
    const head = el("div", { class: "head" }, el("h2", {}, "Why ", el("span", { class: "name", text: name })), copy, close);
    if (answer.error) return [head, el("p", { class: "failed", text: answer.error })];
    return [head, el("div", { class: "sides" }, el("div", {}, ...this.#now(answer), ...said(answer)), el("div", {}, ...history(answer)))];
  }

  #now({ job, now, host_cpu: cpu }) {
    const lines = [];
    const line = (label, text, kind = "") => { if (text) lines.push(el("dt", { text: label }), el("dd", { class: kind, text })); };
    if (job) {
      const state = stateOf(job);
      line("state", `${state.shape} ${state.word}${job.reason ? `: ${job.reason}` : ""}`, state.key);
      line("target", job.target && `${job.target.text}${job.ratio === null && job.uncertain !== "unclear" ? "" : `, measured ${latency(job)} over ${plural(job.requests, "request")}`}`);
      line("bottleneck", job.bottleneck && `${job.bottleneck.cause}. ${job.bottleneck.evidence} ${job.bottleneck.remedy}`, "failed");
      line("diverged", job.diverged, "failed");
      line("failing", job.failing, "failed");
      line(job.uncertain, job.failing ? null : job.blind ?? job.idle, job.blind ? "failed" : "");
    } else line("state", "the job is gone: only its history is left");
    line("last cycle", now.why);
    line("guard", now.guard, "guard");
    for (const outcome of now.outcomes) {
      line("did", `${outcome.action.kind}: ${outcome.status}${outcome.detail ? `, ${outcome.detail}` : ""}`, outcome.status);
    }
    for (const one of job?.outlook ?? []) {
      line(one.tier === "latency" ? "forecast" : `forecast, ${one.tier}`, one.sentence);
      line("needs", one.givers);
    }
    const wire = job?.sidecar.wire;
    line("sockets", wire?.text);
    line("contradiction", wire?.contradiction, "failed");
    line("called by", wire?.called_by);
    line("host CPU", cpu?.text);
    if (job?.gpu) line("GPU", gpuText(job.gpu));
    line("memory", job?.memory?.text || (job?.memory_bytes ? gib(job.memory_bytes) : ""), job?.memory?.filling ? "failed" : "");
    line("threads", job?.threads?.spinning, "failed");
    const { shadow } = now;
    if (shadow) line(`${shadow.policy} would`, shadow.trouble ?? [shadow.limits && `give ${cores(shadow.limits.cpu_cores)} cores`, shadow.why, shadow.guard].filter(Boolean).join(": "));
    return [el("dl", { class: "facts" }, ...lines)];
  }
}

function gpuText(gpu) {
  const parts = [plural(gpu.count, "GPU"), gpu.uuids.join(", ")];
  if (gpu.actual_share !== null) parts.push(`share ${share(gpu.actual_share)}`);
  if (gpu.used_ratio !== null) parts.push(`used ${share(gpu.used_ratio)}`);
  for (const [what, bound] of Object.entries(gpu.bounds)) parts.push(`${what} ${bound.enforced ? "enforced" : "advisory"}: ${bound.by}`);
  return parts.filter(Boolean).join("; ");
}

// Changes with what was measured before and after; no cause is claimed.
function history({ changes, effects }) {
  if (!changes.length) return [el("p", { class: "none", text: "No change is recorded." })];
  const effectOf = new Map(effects.map((one) => [one.cycle, one]));
  const rows = changes.map((change) => {
    const effect = change.kind === "resize" ? effectOf.get(change.cycle) : null;
    const came = afterwards(change, effect);
    return el("tr", { "data-verdict": effect?.verdict ?? "" },
      el("td", {}, el("time", { text: new Date(change.wall_time).toLocaleTimeString("en-GB") })),
      el("td", { text: changed(change) }),
      el("td", {}, came ? el("p", { class: "effect", text: came }) : null,
        el("p", { text: change.why }), change.guard ? el("p", { class: "guard", text: `guard: ${change.guard}` }) : null,
        change.status === "done" ? null : el("p", { class: change.status, text: [change.status, change.detail].filter(Boolean).join(": ") })));
  });
  return [el("h3", { text: "Last changes, with what was measured 30 s before and 10 to 40 s after, and what the policy expected" }), el("table", { class: "changes" }, el("tbody", {}, ...rows))];
}

function said({ events }) {
  if (!events.length) return [];
  const items = events.map((one) => el("li", {}, el("time", { text: new Date(one.wall_time).toLocaleTimeString("en-GB") }),
    `${[one.kind, [one.before, one.after].filter(Boolean).join(" → ")].filter(Boolean).join(" ")}${one.reason ? `: ${one.reason}` : ""}`));
  return [el("h3", { text: "Events" }), el("ol", {}, ...items)];
}

// Below the jobs is room for one of both: while the panel is open, the decisions are below the charts.
function makeRoom(open) {
  if (open) $("right").append($("changes-card"));
  else $("why").after($("changes-card"));
}

async function copied(button, command) {
  try {
    await navigator.clipboard.writeText(command);
    button.textContent = "Copied";
  } catch {
    button.textContent = command; // no clipboard: to be selected by hand
  }
}

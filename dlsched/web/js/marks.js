// Decisions as marks at a chart's top edge; crowded ones are one mark with their number.

import { el, setHidden, setText } from "./dom.js";
import { $ } from "./dom.js";
import { afterwards, changed, clock } from "./words.js";

const APART_PIXELS = 17;
const NAMED = 6; // of a crowd

export class Marks {
  constructor(app) {
    this.app = app;
    this.changes = [];
    this.nodes = [];
  }

  place(plot) {
    const { min, max } = plot.scales.x;
    const groups = [];
    for (const change of this.changes) {
      if (change.x < min || change.x > max) continue;
      const left = plot.valToPos(change.x, "x");
      const last = groups.at(-1);
      if (last && left - last.left < APART_PIXELS) last.changes.push(change);
      else groups.push({ left, changes: [change] });
    }
    if (this.over !== plot.over) { this.nodes = []; this.over = plot.over; }
    while (this.nodes.length < groups.length) this.nodes.push(this.#make(plot.over));
    this.nodes.forEach((node, at) => {
      const group = groups[at];
      setHidden(node, !group);
      if (!group) return;
      node.group = group;
      node.style.left = `${group.left.toFixed(1)}px`;
      const own = group.changes.some((one) => one.job === this.app.selected);
      node.className = `mark${group.changes.length > 1 ? " many" : ""}${own ? " own" : ""}` +
        `${group.changes.some((one) => one.status === "failed") ? " failed" : ""}`;
      setText(node, group.changes.length > 1 ? String(group.changes.length) : "");
    });
  }

  #make(over) {
    const node = el("span", {
      class: "mark",
      onpointerenter: () => showTip(node, node.group.changes, this.app.store),
      onpointerleave: hideTip,
      onclick: () => {
        const change = node.group.changes.at(-1);
        this.app.pointAt(change.x);
        this.app.select(change.job, true);
      },
    });
    over.append(node);
    return node;
  }
}

export function describe(change, effect) {
  const lines = [el("p", {}, el("b", { text: change.job }), ` ${changed(change)}`)];
  if (change.why) lines.push(el("p", { text: change.why }));
  if (change.guard) lines.push(el("p", { class: "guard", text: `guard: ${change.guard}` }));
  if (change.status !== "done") lines.push(el("p", { class: change.status, text: `${change.status}${change.detail ? `: ${change.detail}` : ""}` }));
  const came = afterwards(change, effect);
  if (came) lines.push(el("p", { class: "effect", text: came }));
  return lines;
}

function showTip(node, changes, store) {
  const tip = $("tip");
  const more = changes.length - NAMED;
  tip.replaceChildren(
    el("time", { text: clock(changes[0].x) }),
    ...changes.slice(-NAMED).flatMap((change) => describe(change, store.effectOf(change))),
    more > 0 ? el("p", { text: `and ${more} more` }) : "",
  );
  tip.hidden = false;
  const at = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(innerWidth - own.width - 8, at.left - own.width / 2))}px`;
  tip.style.top = `${Math.min(innerHeight - own.height - 8, at.bottom + 8)}px`;
}

export function hideTip() { $("tip").hidden = true; }

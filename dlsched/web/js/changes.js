// The list of decisions, newest first, and what was measured before and after each.

import { $, el, setData, setText } from "./dom.js";
import { describe } from "./marks.js";
import { clock, plural } from "./words.js";

const SHOWN_MAX = 60;
const JUDGED_S = 41; // the daemon compares what is measured until 40 s after a change
const LATER = "not yet"; // the verdict while that time is not over
const ASK_EVERY_MS = 2000; // one question at a time: each reads the journal

export class Changes {
  constructor(app) {
    this.app = app;
    this.list = $("changes");
    this.shown = "";
    this.askedAt = -Infinity;
    this.asked = new Map(); // by job, the newest change when it was asked
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("li[data-job]");
      if (!item) return;
      this.app.select(item.dataset.job, true);
      this.app.pointAt(Number(item.dataset.x));
    });
  }

  show(changes, selected) {
    const { store } = this.app;
    const own = selected ? changes.filter((one) => one.job === selected) : changes;
    const last = own.slice(-SHOWN_MAX).reverse();
    setText($("changes-of"), `${selected ? `of ${selected}, ` : ""}${plural(own.length, "change")} in the time shown`);
    const key = JSON.stringify(last.map((one) => [one.cycle, one.job, one.x, store.effectOf(one)?.text]));
    setData(document.body, "changes", own.length);
    if (key === this.shown) return;
    this.shown = key;
    this.list.replaceChildren(...last.map((one) => this.#item(one)));
    if (!last.length) this.list.append(el("li", { class: "none", text: selected ? "No change of this job in the time shown." : "No change in the time shown." }));
  }

  #item(change) {
    const effect = this.app.store.effectOf(change);
    const item = el("li", { "data-job": change.job, "data-x": change.x, "data-verdict": effect?.verdict ?? "" });
    const lines = describe(change, effect);
    lines[0].prepend(el("time", { text: clock(change.x) }));
    item.append(...lines);
    return item;
  }

  // Asks for effects of changes in the list, one job at a time.
  async ask(changes, selected) {
    const { store } = this.app;
    const now = store.series.x.at(-1);
    if (performance.now() - this.askedAt < ASK_EVERY_MS || now === undefined) return;
    const own = (selected ? changes.filter((one) => one.job === selected) : changes).slice(-SHOWN_MAX).reverse();
    const due = own.find((one) => one.kind === "resize" && one.status === "done" && now - one.x > JUDGED_S &&
      (store.effectOf(one)?.verdict ?? LATER) === LATER && !(this.asked.get(one.job) >= one.cycle));
    if (!due) return;
    this.askedAt = performance.now();
    this.asked.set(due.job, due.cycle);
    try {
      const answer = await fetch(`v1/jobs/${encodeURIComponent(due.job)}/why?limit=${SHOWN_MAX}`);
      if (answer.ok) store.takeEffects(due.job, (await answer.json()).effects);
    } catch { /* the banner says that there is no connection */ }
  }
}

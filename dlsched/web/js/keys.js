// Everything can be done without a pointer; the keys are on the page.

import { $ } from "./dom.js";

const RANGES = ["live", "1h", "6h", "1d"];

export function keys(app) {
  const filter = $("filter");
  $("help-open").addEventListener("click", () => $("help").showModal());
  filter.addEventListener("input", () => app.redraw());
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { filter.value = ""; filter.blur(); app.redraw(); }
    if (event.key === "Enter") { filter.blur(); app.step(0); }
    event.stopPropagation();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const pressed = event.target.closest?.("button") && (event.key === "Enter" || event.key === " ");
    const scrolled = event.target.closest?.("#hosts-card .scroll") && event.key.startsWith("Arrow");
    if (pressed || scrolled) return;
    const does = {
      j: () => app.step(1), ArrowDown: () => app.step(1), k: () => app.step(-1), ArrowUp: () => app.step(-1),
      Enter: () => app.selected && app.select(app.selected, true),
      t: () => app.selected && app.pin(app.selected),
      h: () => app.hosts.focus(),
      "/": () => filter.focus(), p: () => app.pause(!app.paused), "?": () => $("help").showModal(), Escape: () => app.back(),
    }[event.key] ?? (RANGES["1234".indexOf(event.key)] && (() => app.show(RANGES["1234".indexOf(event.key)])));
    if (!does) return;
    event.preventDefault();
    does();
  });
}

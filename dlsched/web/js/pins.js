// Jobs that are pinned to the top. The browser keeps their names for this address of the page.

const KEY = "dlsched.pins";
const MAX = 100; // the oldest are forgotten: jobs come and go

// null: this browser keeps nothing.
function read() {
  try {
    const names = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return new Set(Array.isArray(names) ? names.filter((name) => typeof name === "string") : []);
  } catch (error) {
    return error instanceof SyntaxError ? new Set() : null;
  }
}

export class Pins {
  constructor() {
    this.names = read() ?? new Set();
    this.keeps = true;
  }

  has(name) { return this.names.has(name); }

  toggle(name) {
    if (this.keeps) this.names = read() ?? this.names; // another page may have pinned some
    if (!this.names.delete(name)) this.names.add(name);
    try {
      localStorage.setItem(KEY, JSON.stringify([...this.names].slice(-MAX)));
    } catch { this.keeps = false; } // full, or refused: until the page is closed
  }

  // The same names, pinned ones first.
  first(names) { return [...names.filter((name) => this.has(name)), ...names.filter((name) => !this.has(name))]; }
}

// Follows /v1/stream. News are messages: an open connection that says nothing is not news.

const AGAIN_MS = 2000; // after an answer that is no stream, which a browser does not ask for again
const PERIODS = 3; // silence after so many cycles is old news
const OLD_MS = 3000; // and at least this

export class Feed {
  constructor(store, changed) {
    this.store = store;
    this.changed = changed; // called with the kind of message
    this.source = null;
    this.state = "connecting";
    this.newsAt = null; // performance.now() of the last message, or of the first answer
    this.refused = null; // the daemon's sentence when it answers, but not with a stream
    this.again = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  open() {
    if (this.source || document.hidden) return;
    this.#set("connecting");
    const after = this.store.lastId ? `?after=${encodeURIComponent(this.store.lastId)}` : "";
    const source = new EventSource(`v1/stream${after}`);
    this.source = source;
    source.onopen = () => this.#set("open");
    source.onerror = () => {
      if (source !== this.source) return;
      if (source.readyState === EventSource.CLOSED) {
        this.source = null;
        this.again = setTimeout(() => this.open(), AGAIN_MS);
        this.#ask();
      }
      this.#set("retrying");
    };
    const on = (kind, take) => source.addEventListener(kind, (message) => {
      take(message);
      this.newsAt = performance.now();
      this.refused = null;
      this.changed(kind);
    });
    on("events", (message) => this.store.takeEvents(JSON.parse(message.data)));
    on("point", (message) => this.store.takePoint(message.lastEventId, JSON.parse(message.data)));
    on("status", (message) => this.store.takeStatus(JSON.parse(message.data)));
    this.#ask();
  }

  // A hidden page follows nothing: a browser has six connections for all pages of an origin.
  close() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
    this.#set("closed");
  }

  get ageMs() { return this.newsAt === null ? null : performance.now() - this.newsAt; }

  get old() { return this.ageMs !== null && this.ageMs > Math.max(OLD_MS, PERIODS * 1000 * this.store.periodS); }

  // The first sight comes before 15 minutes have been replayed; and the reason where there is none.
  async #ask() {
    try {
      const answer = await fetch("v1/jobs");
      const body = await answer.json();
      this.refused = answer.ok ? null : String(body.error);
      if (answer.ok && !this.store.status) {
        this.store.takeStatus(body);
        this.newsAt ??= performance.now();
      }
      this.changed("status");
    } catch {
      this.refused = null;
    }
  }

  #set(state) {
    this.state = state;
    document.body.dataset.stream = state;
  }
}

// Loaded first, and no module: where a file of the page did not arrive, the page is loaded again.
// Containers that come and go change the host's network, on which browsers there drop connections.

const AGAIN_AFTER_MS = 1000;

addEventListener("error", (event) => {
  const { target } = event;
  if (target instanceof HTMLScriptElement || target instanceof HTMLLinkElement) setTimeout(() => location.reload(), AGAIN_AFTER_MS);
}, true);

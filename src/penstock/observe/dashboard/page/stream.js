// The line to the server: it comes back by itself, and says so while it is away.
//
// Times are taken from performance.now(), which does not jump when somebody sets the clock.

const SILENT = 16000; // milliseconds without a word, after which the line counts as dead
const LOOK = 1000;
const SOONEST = 500;
const LATEST = 5000;
const HIDDEN = 60000; // a page that nobody looks at gives up its place after this long

export function listen({ onHistory, onUpdate, onState }) {
  let source = null;
  let heard = performance.now();
  let awaySince = null;
  let pause = SOONEST;
  let retry = null;
  let hide = null;
  let reason = "";

  function open() {
    retry = null;
    close();
    heard = performance.now();
    const opened = new EventSource("/events");
    source = opened;
    opened.addEventListener("history", (event) => {
      alive();
      onHistory(JSON.parse(event.data));
    });
    opened.addEventListener("update", (event) => {
      alive();
      onUpdate(JSON.parse(event.data));
    });
    opened.addEventListener("ping", alive);
    opened.addEventListener("error", () => {
      if (source === opened) lost();
    });
  }

  function close() {
    if (source !== null) source.close();
    source = null;
  }

  function alive() {
    heard = performance.now();
    pause = SOONEST;
    reason = "";
    if (awaySince !== null) {
      awaySince = null;
      onState({ live: true });
    }
  }

  function lost() {
    close();
    if (awaySince === null) awaySince = heard;
    tell();
    if (retry !== null || document.hidden) return;
    retry = setTimeout(ask, pause * (0.75 + Math.random() / 2));
    pause = Math.min(pause * 1.6, LATEST);
  }

  // An EventSource does not say why it was refused, so ask in a way that does.
  async function ask() {
    retry = null;
    try {
      const answer = await fetch("/snapshot.json", { cache: "no-store" });
      if (answer.status === 401) {
        location.reload(); // the form for the token
        return;
      }
      reason = answer.headers.get("x-penstock-full") ? "Too many browsers watch this dashboard; close one of them." : "";
    } catch {
      reason = "";
      lost();
      return;
    }
    open();
  }

  function tell() {
    if (awaySince !== null) onState({ live: false, seconds: (performance.now() - awaySince) / 1000, reason });
  }

  setInterval(() => {
    if (document.hidden && source === null) return;
    if (source !== null && performance.now() - heard > SILENT) lost();
    tell();
  }, LOOK);

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hide);
    if (document.hidden) {
      hide = setTimeout(close, HIDDEN);
    } else if (source === null && retry === null) {
      open();
    }
  });

  // Leaving the page closes the line at once, so that the server has a place for the next one.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });

  awaySince = performance.now();
  open();
}

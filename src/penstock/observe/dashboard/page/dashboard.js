// The page: takes each update, and draws it once the browser is ready to draw.

import { Charts, Series } from "./charts.js";
import { showBatches, showErrors, showSubscribers } from "./panels.js";
import { Picture, detailRows } from "./picture.js";
import { listen } from "./stream.js";
import { label, level, make, placed, rate, seconds, setText, whole } from "./text.js";

const QUIET = 5000; // milliseconds between two announcements of the verdict

const at = (id) => document.getElementById(id);
const series = new Series();
const charts = new Charts();
const picture = new Picture((id) => select(id === selected ? null : id));
let latest = null;
let instance = null;
let version = null;
let selected = null;
let pending = false;

// ---------------------------------------------------------------- what comes in
listen({
  onHistory(history) {
    instance = history.instance;
    series.replace(history);
    schedule();
  },
  onUpdate(update) {
    if (version !== null && update.version !== version) {
      location.reload(); // the server is of another version, and so is its page
      return;
    }
    version = update.version;
    if (update.instance !== instance) return; // of a server that is no longer there
    latest = update;
    remember(update);
    schedule();
  },
  onState: showConnection,
});

function remember({ snapshot, rates = [], trouble }) {
  if (trouble !== undefined) return;
  const measured = new Map(rates.map((each) => [each.hop, each]));
  const figures = new Map();
  for (const hop of snapshot.hops ?? []) {
    const now = measured.get(hop.id);
    figures.set(hop.id, {
      rate: now ? Math.max(now.records_in ?? 0, now.records_out ?? 0) : null,
      level: level(hop),
      lag: hop.lag_seconds ?? hop.oldest_seconds ?? null,
    });
  }
  series.add(snapshot.clock, figures);
}

function schedule() {
  if (pending) return;
  pending = true;
  const draw = () => {
    pending = false;
    if (latest !== null) show(latest);
  };
  // A page in the background is not drawn; the latest figures are drawn when it is seen again.
  requestAnimationFrame(draw);
}

// ---------------------------------------------------------------- drawing
function show(update) {
  const { snapshot, rates = [] } = update;
  const hops = snapshot.hops ?? [];
  const verdict = snapshot.verdict ?? null;
  const others = snapshot.other_verdicts ?? [];
  const names = new Map(hops.map((hop) => [hop.id, placed(hop)]));
  const view = {
    hops,
    rates: new Map(rates.map((each) => [each.hop, each])),
    limiting: new Set([verdict, ...others].map((each) => each?.limiting).filter(Boolean)),
    also: verdict?.also ?? [],
  };
  setText(at("subject"), update.title ?? "");
  document.title = verdict?.limiting ? `${names.get(verdict.limiting) ?? "a hop"} limits the flow · Penstock` : "Penstock";
  showVerdict(verdict);
  showOthers(others);
  showTrouble(update);
  picture.draw(view);
  showSummary(view, update);
  showDetail(view);
  charts.draw(hops, series);
  showSubscribers(snapshot.subscribers ?? [], update.subscribers_left_out ?? 0);
  showBatches(snapshot.batches ?? [], names);
  showErrors(snapshot.errors ?? [], hops, names);
  const time = new Date(snapshot.at * 1000);
  setText(at("stamp"), `Figures of ${time.toLocaleTimeString("en-GB")} by the server's clock, Penstock ${update.version}.`);
  document.body.dataset.updates = String(Number(document.body.dataset.updates ?? 0) + 1);
}

function showVerdict(verdict) {
  const sentence = verdict?.sentence ?? "Waiting for a second look: it takes two to see who waits for whom.";
  setText(at("sentence"), sentence);
  at("verdict").classList.toggle("limited", Boolean(verdict?.limiting));
  const since = verdict?.since ? ` So for ${seconds(verdict.since)}.` : "";
  at("advice").hidden = !verdict?.advice && !since;
  setText(at("advice"), `${verdict?.advice ? `Try: ${verdict.advice}${/[.!?]$/.test(verdict.advice) ? "" : "."}` : ""}${since}`.trim());
  const evidence = (verdict?.evidence ?? []).filter((each) => !sentence.includes(each));
  at("evidence").hidden = !evidence.length;
  const said = evidence.join("\n");
  if (at("evidence").dataset.said !== said) {
    at("evidence").dataset.said = said;
    at("evidence").replaceChildren(...evidence.map((each) => make("li", {}, each)));
  }
  if (verdict !== null) announceVerdict(verdict.limiting ?? "", sentence);
}

// The verdicts on other pipelines, which share no hop with the one above.
function showOthers(verdicts) {
  const said = verdicts.map((each) => `${each.sentence}${each.advice ? ` Try: ${each.advice}.` : ""}`);
  at("other-verdicts").hidden = !said.length;
  if (at("other-verdicts").dataset.said === said.join("\n")) return;
  at("other-verdicts").dataset.said = said.join("\n");
  at("other-verdicts").replaceChildren(...said.map((each) => make("li", {}, each)));
}

// A screen reader hears the verdict when another hop limits the flow, and not when a figure in it changes.
let announced = null;
let announcedAt = -Infinity;

function announceVerdict(limiting, sentence) {
  if (limiting === announced || performance.now() - announcedAt < QUIET) return;
  announced = limiting;
  announcedAt = performance.now();
  announce(sentence);
}

function announce(text) {
  at("announcements").textContent = text;
}

function showTrouble({ trouble, trouble_seconds: since }) {
  at("trouble").hidden = trouble === undefined;
  if (trouble !== undefined) setText(at("trouble"), `No new figures for ${seconds(since ?? 0)}: ${trouble}`);
}

function showSummary({ hops, rates }, { hops_left_out: leftOut = 0 }) {
  const downstream = new Set(hops.flatMap((hop) => hop.upstream ?? []));
  const sources = hops.filter((hop) => !hop.upstream?.length);
  const ends = hops.filter((hop) => !downstream.has(hop.id));
  const sum = (list, name) => list.reduce((total, hop) => total + (rates.get(hop.id)?.[name] ?? 0), 0);
  const said = `${whole(hops.length + leftOut)} hops; ${rate(sum(sources, "records_out"))} in, ${rate(Math.max(sum(ends, "records_out"), sum(ends, "records_in")))} out`;
  setText(at("picture-summary"), leftOut ? `${said}; ${whole(leftOut)} not shown` : said);
}

// ---------------------------------------------------------------- one hop in full
function select(id) {
  selected = id;
  picture.select(id);
  if (latest !== null) show(latest);
}

function showDetail({ hops, rates }) {
  const hop = hops.find((each) => each.id === selected);
  at("detail").hidden = hop === undefined;
  if (hop === undefined) return;
  setText(at("detail-title"), `${hop.kind} ${label(hop)}`);
  const rows = detailRows(hop, rates.get(hop.id)).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
  at("detail-list").replaceChildren(...rows);
}

at("detail-close").addEventListener("click", () => {
  const card = document.querySelector('.hop[aria-pressed="true"]');
  select(null);
  card?.focus();
});

// ---------------------------------------------------------------- the line to the server
function showConnection({ live, seconds: gone, reason }) {
  const wasAway = document.body.classList.contains("away");
  document.body.classList.toggle("away", !live);
  if (live) {
    setText(at("connection-text"), "Live");
    at("away").hidden = true;
    if (wasAway && latest !== null) announce("The dashboard is back.");
    return;
  }
  setText(at("connection-text"), latest === null ? "Connecting" : "Away");
  // The first second or two are normal when a server is restarted quickly.
  if (latest === null && gone < 3) return;
  at("away").hidden = false;
  const text = reason || "The dashboard does not answer; it may have been stopped.";
  setText(at("away"), `${text} The figures below are ${seconds(gone)} old. Trying again by itself.`);
  if (!wasAway) announce("The dashboard does not answer. Trying again.");
}

// ---------------------------------------------------------------- light and dark
const THEMES = ["system", "light", "dark"];

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function setTheme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("penstock-theme", chosen);
  } catch {
    // The browser keeps nothing, so the choice lasts as long as the page.
  }
  setText(at("theme"), `Theme: ${chosen}`);
  charts.retheme();
}

at("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]));
setText(at("theme"), `Theme: ${theme()}`);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.retheme());

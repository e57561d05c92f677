// Subscribers, batches and errors.

import { make, seconds, setAttribute, setText, short, whole } from "./text.js";

const PHASES = ["addBatch", "latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets"];
const TALL = 120;

// ---------------------------------------------------------------- subscribers
const rows = new Map();

export function showSubscribers(subscribers, leftOut) {
  const body = document.querySelector("#subscribers tbody");
  const away = subscribers.filter((each) => each.state === "away").length;
  const total = subscribers.length + leftOut;
  const said = total ? `${whole(total)}${away ? `, ${whole(away)} away` : ""}${leftOut ? `; those ${subscribers.length} that lag most` : ""}` : "none";
  setText(document.getElementById("subscribers-summary"), said);
  const seen = new Set();
  const worst = Math.max(1, ...subscribers.map((each) => each.lag_records ?? 0));
  for (const each of subscribers) {
    const key = `${each.gateway}\n${each.hop}\n${each.name}`;
    seen.add(key);
    let row = rows.get(key);
    if (row === undefined) {
      const cells = ["State", "Cursor", "Acknowledged", "Behind"].map((label) => make("td", { "data-label": label }));
      const name = make("span", { class: "subscriber-name" });
      const place = make("span", { class: "place" });
      const head = make("th", { scope: "row" }, name, place);
      const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span", {}));
      const lag = make("span", {});
      cells[3].append(lag, bar);
      row = { item: make("tr", {}, head, ...cells), name, place, cells, lag, bar: bar.firstElementChild };
      rows.set(key, row);
    }
    setText(row.name, each.name || "(no id)");
    setText(row.place, [each.gateway, each.address].filter(Boolean).join(" ← "));
    const lease = each.lease_seconds === undefined ? "" : `, kept for ${seconds(each.lease_seconds)}`;
    setText(row.cells[0], `${each.state}${each.required === false ? ", optional" : ""}${lease}`);
    setText(row.cells[1], whole(each.cursor ?? 0));
    setText(row.cells[2], whole(each.acknowledged ?? 0));
    setText(row.lag, `${whole(each.lag_records ?? 0)}${each.lag_seconds === undefined ? "" : `, ${seconds(each.lag_seconds)}`}`);
    row.bar.style.width = `${Math.round(((each.lag_records ?? 0) / worst) * 100)}%`;
    body.append(row.item);
  }
  for (const [key, row] of rows) {
    if (!seen.has(key)) {
      row.item.remove();
      rows.delete(key);
    }
  }
}

// ---------------------------------------------------------------- batches
let drawnBatches = "";

export function showBatches(batches, names) {
  const panel = document.getElementById("batches-panel");
  panel.hidden = !batches.length;
  const signature = batches.map((each) => `${each.query}:${each.number}:${each.seconds}`).join();
  if (signature === drawnBatches) return;
  drawnBatches = signature;
  const box = document.getElementById("batches");
  const longest = Math.max(0.001, ...batches.map((each) => each.seconds));
  const used = new Set();
  const bars = batches.slice(-40).map((batch) => {
    const parts = Object.entries(phasesOf(batch)).map(([phase, taken]) => {
      used.add(phase);
      const part = make("span", { class: `phase p${PHASES.indexOf(phase)}` });
      part.style.height = `${Math.max(0, (taken / longest) * TALL)}px`;
      return part;
    });
    const bar = make("span", { class: "batch", title: `batch ${batch.number}: ${seconds(batch.seconds)}, ${whole(batch.rows_in ?? 0)} rows` }, ...parts);
    return bar;
  });
  box.replaceChildren(...bars);
  const legend = [...PHASES, "other"].filter((phase) => used.has(phase));
  document.getElementById("batches-legend").replaceChildren(
    ...legend.map((phase) => make("span", {}, make("i", { class: `key phase p${PHASES.indexOf(phase)}` }), phase)),
  );
  const last = batches.at(-1);
  if (last === undefined) return;
  const queries = [...new Set(batches.map((each) => names.get(each.query) ?? each.query))].join(", ");
  setText(document.getElementById("batches-summary"), `${queries}: batch ${last.number} took ${seconds(last.seconds)} for ${short(last.rows_in ?? 0)} rows`);
  setAttribute(box, "aria-label", `The last ${bars.length} batches took between ${seconds(Math.min(...batches.map((each) => each.seconds)))} and ${seconds(longest)}; the newest one ${seconds(last.seconds)}`);
  const body = document.querySelector("#batches-table tbody");
  body.replaceChildren(
    ...[...batches].reverse().slice(0, 40).map((batch) => {
      const [phase, taken] = Object.entries(batch.phases ?? {}).sort((a, b) => b[1] - a[1])[0] ?? ["–", undefined];
      const cells = [seconds(batch.seconds), whole(batch.rows_in ?? 0), whole(batch.rows_out), taken === undefined ? "–" : `${phase}, ${seconds(taken)}`];
      return make("tr", {}, make("th", { scope: "row" }, String(batch.number)), ...cells.map((text) => make("td", {}, text)));
    }),
  );
}

function phasesOf(batch) {
  const shown = {};
  let known = 0;
  for (const phase of PHASES) {
    const taken = batch.phases?.[phase];
    if (taken) {
      shown[phase] = taken;
      known += taken;
    }
  }
  const rest = batch.seconds - known;
  if (rest > 0.001) shown.other = rest;
  return shown;
}

// ---------------------------------------------------------------- errors
let drawnErrors = null;

export function showErrors(errors, hops, names) {
  const total = hops.reduce((sum, hop) => sum + (hop.errors ?? 0), 0);
  setText(document.getElementById("errors-summary"), total || errors.length ? `${whole(Math.max(total, errors.length))} in all` : "none");
  const signature = JSON.stringify(errors);
  if (signature === drawnErrors) return;
  drawnErrors = signature;
  const items = [...errors].reverse().map((error) => {
    const when = new Date(error.at * 1000);
    const time = make("time", { datetime: when.toISOString() }, when.toLocaleTimeString("en-GB"));
    const hop = make("span", { class: "error-hop" }, names.get(error.hop) ?? error.hop);
    return make("li", {}, time, hop, make("span", { class: "error-text" }, error.message));
  });
  document.getElementById("errors").replaceChildren(...items);
}

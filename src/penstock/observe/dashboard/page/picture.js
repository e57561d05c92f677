// The pipeline as a picture: data goes to the right, demand to the left, queues are tanks with a level.
//
// The hops are a list of buttons, which keyboards and screen readers can use; the pipes between them are drawn
// behind. Hops stand in columns by their distance from the sources. Columns that do not fit continue below,
// like the words of a text; on a phone there is one column, and data goes down. Pipelines that share no hop, such
// as the streams of a gateway, stand one below the other, each with its name.

import { LINES, keysOf, makePipe, showPipe, spreadLinks, stackLinks } from "./pipes.js";
import { bytes, label, level, make, percent, rate, seconds, setAttribute, setText, short, whole } from "./text.js";

const CARD = 164;
const TALL = 128;
const GAP = 84;
const BETWEEN = 18; // between the cards of a column
const MARGIN = 26; // at the right, for the pipes to the next line
const HEADING = 30; // above each of several pipelines
const APART = 40; // between two pipelines
const MOST = 4; // cards in a column; the others are counted

export class Picture {
  constructor(onSelect) {
    this.box = document.getElementById("picture");
    this.list = document.getElementById("hops");
    this.pipes = document.getElementById("pipes");
    this.cards = new Map();
    this.drawn = new Map();
    this.chosen = new Map();
    this.onSelect = onSelect;
    this.selected = null;
    this.last = null;
    new ResizeObserver(() => this.last && this.draw(this.last)).observe(this.box);
  }

  select(id) {
    this.selected = id;
    for (const [key, card] of this.cards) {
      if (card.tank !== undefined) setAttribute(card.button, "aria-pressed", String(key === id));
    }
  }

  draw(view) {
    this.last = view;
    const width = this.box.clientWidth - MARGIN;
    const most = Math.max(1, Math.floor((width + GAP) / (CARD + GAP)));
    const isStack = most === 1;
    const found = pipelines(view.hops);
    const bands = [];
    let top = 0;
    for (const hops of found) {
      const columns = this.columns(hops, view.limiting);
      const heading = found.length > 1 ? { key: `band:${hops[0].id}`, text: nameOf(hops) } : null;
      const places = new Map();
      if (heading !== null) {
        places.set(heading.key, { x: 0, y: top, width: width + MARGIN, height: HEADING });
        top += HEADING;
      }
      const lines = Math.max(1, Math.ceil(columns.length / most));
      const across = Math.ceil(columns.length / lines) || 1;
      const end = isStack ? stack(columns, width + MARGIN, top, places) : spread(columns, across, width, top, places);
      bands.push({ columns, heading, places });
      top = end + APART;
    }
    this.box.style.height = `${Math.max(0, top - APART)}px`;
    this.fill(view, bands);
    this.connect(view, bands, isStack);
  }

  // Which hops of a pipeline stand in which column, and which are only counted.
  columns(hops, limiting) {
    const depth = new Map();
    const found = [];
    for (const hop of hops) {
      const above = hop.upstream?.filter((id) => depth.has(id)).map((id) => depth.get(id)) ?? [];
      const at = above.length ? Math.max(...above) + 1 : 0;
      depth.set(hop.id, at);
      (found[at] ??= []).push(hop);
    }
    return found.map((column, at) => {
      const key = `more:${at}:${hops[0].id}`;
      if (column.length <= MOST) return { shown: column, more: [], key };
      // The choice stays as it is while it can: cards that change places every second cannot be read.
      const before = (this.chosen.get(key) ?? []).filter((id) => column.some((hop) => hop.id === id));
      const keep = new Set(before.slice(0, MOST - 1));
      const limits = column.find((hop) => limiting.has(hop.id))?.id;
      if (limits !== undefined && !keep.has(limits)) {
        if (keep.size >= MOST - 1) keep.delete([...keep].pop());
        keep.add(limits);
      }
      const rest = [...column].sort((a, b) => (b.lag_records ?? 0) - (a.lag_records ?? 0));
      for (const hop of rest) if (keep.size < MOST - 1) keep.add(hop.id);
      this.chosen.set(key, [...keep]);
      const more = column.filter((hop) => !keep.has(hop.id));
      return { shown: column.filter((hop) => keep.has(hop.id)), more, key };
    });
  }

  fill(view, bands) {
    const seen = new Set();
    let before = null;
    const put = (key, places, create, update) => {
      let card = this.cards.get(key);
      if (card === undefined) {
        card = create();
        this.cards.set(key, card);
      }
      seen.add(key);
      const next = before === null ? this.list.firstElementChild : before.nextElementSibling;
      if (next !== card.item) this.list.insertBefore(card.item, next);
      before = card.item;
      const place = places.get(key);
      card.item.style.transform = `translate(${place.x}px, ${place.y}px)`;
      card.item.style.width = `${place.width}px`;
      card.item.style.height = `${place.height}px`;
      update(card);
    };
    for (const { columns, heading, places } of bands) {
      if (heading !== null) put(heading.key, places, makeHeading, (card) => setText(card.button, heading.text));
      for (const column of columns) {
        for (const hop of column.shown) put(hop.id, places, () => makeCard(() => this.onSelect(hop.id)), (card) => showHop(card, hop, view));
        if (column.more.length) put(column.key, places, makeMore, (card) => showMore(card, column.more, view));
      }
    }
    for (const [key, card] of this.cards) {
      if (!seen.has(key)) {
        card.item.remove();
        this.cards.delete(key);
      }
    }
    this.select(this.selected);
  }

  connect(view, bands, isStack) {
    const width = this.box.clientWidth;
    setAttribute(this.pipes, "width", String(width));
    setAttribute(this.pipes, "height", String(parseFloat(this.box.style.height) || 0));
    const seen = new Set();
    for (const { columns, places } of bands) {
      const links = isStack ? stackLinks(view, columns, places) : spreadLinks(view, columns, places, width);
      for (const link of links) {
        seen.add(link.key);
        let drawn = this.drawn.get(link.key);
        if (drawn === undefined) {
          drawn = makePipe();
          this.drawn.set(link.key, drawn);
          this.pipes.append(drawn.group);
        }
        showPipe(drawn, link);
      }
    }
    for (const [key, drawn] of this.drawn) {
      if (!seen.has(key)) {
        drawn.group.remove();
        this.drawn.delete(key);
      }
    }
  }
}

// ---------------------------------------------------------------- places

// The hops that have to do with each other, together, in the order of their first hops.
function pipelines(hops) {
  const leads = new Map(hops.map((hop) => [hop.id, hop.id]));
  const lead = (id) => {
    while (leads.get(id) !== id) id = leads.get(id);
    return id;
  };
  for (const hop of hops) {
    for (const id of hop.upstream ?? []) if (leads.has(id)) leads.set(lead(hop.id), lead(id));
  }
  const found = new Map();
  for (const hop of hops) {
    const key = lead(hop.id);
    found.set(key, [...(found.get(key) ?? []), hop]);
  }
  return [...found.values()];
}

// What a pipeline is called: by its first log, whose endpoint has the name of the stream.
const nameOf = (hops) => label(hops.find((hop) => hop.kind === "log") ?? hops[0]);

// Columns side by side, in as many lines as needed; returns where they end.
function spread(columns, across, width, begin, places) {
  const keys = columns.map(keysOf);
  const used = across * CARD + (across - 1) * GAP;
  const gap = across > 1 ? Math.min(150, GAP + (width - used) / (across - 1)) : GAP;
  let top = begin;
  for (let first = 0; first < keys.length; first += across) {
    const line = keys.slice(first, first + across);
    const tallest = Math.max(...line.map((column) => column.length));
    const height = tallest * TALL + (tallest - 1) * BETWEEN;
    line.forEach((column, at) => {
      const own = column.length * TALL + (column.length - 1) * BETWEEN;
      column.forEach((key, row) => {
        const y = top + (height - own) / 2 + row * (TALL + BETWEEN);
        places.set(key, { x: at * (CARD + gap), y, width: CARD, height: TALL, line: first / across });
      });
    });
    top += height + LINES;
  }
  return top - LINES;
}

// One below the other.
function stack(columns, width, begin, places) {
  let top = begin;
  for (const column of columns) {
    for (const key of keysOf(column)) {
      places.set(key, { x: 0, y: top, width, height: TALL, line: 0 });
      top += TALL + 8;
    }
    top += 44;
  }
  return top - 52;
}

// ---------------------------------------------------------------- cards

function makeCard(onClick) {
  const parts = {};
  for (const name of ["kind", "flag", "name", "figures", "lag", "spoken"]) parts[name] = make("span", { class: name });
  parts.spoken.classList.add("unseen");
  parts.fill = make("span", { class: "fill" });
  const tank = make("span", { class: "tank", "aria-hidden": "true" }, parts.fill);
  const times = make("span", { class: "times", "aria-hidden": "true" });
  times.append(...["working", "for-demand", "for-data"].map((name) => make("span", { class: name })));
  const head = make("span", { class: "head" }, parts.kind, " ", parts.flag);
  const body = make("span", { class: "body" }, head, " ", parts.name, " ", parts.figures, " ", parts.lag, " ", parts.spoken, times);
  const button = make("button", { type: "button", class: "hop", "aria-pressed": "false" }, tank, body);
  button.addEventListener("click", onClick);
  return { item: make("li", {}, button), button, tank, times, ...parts };
}

function makeHeading() {
  const text = make("span", { class: "band" });
  return { item: make("li", {}, text), button: text };
}

function makeMore() {
  const text = make("span", { class: "more-text" });
  const button = make("div", { class: "hop more" }, text);
  return { item: make("li", {}, button), button, text };
}

function showMore(card, hops, { rates }) {
  const total = hops.reduce((sum, hop) => sum + (rates.get(hop.id)?.records_out ?? 0), 0);
  const worst = Math.max(...hops.map((hop) => hop.lag_records ?? 0));
  setText(card.text, `and ${whole(hops.length)} more, ${rate(total)} together, at most ${short(worst)} behind`);
}

function showHop(card, hop, { rates, limiting, also }) {
  const now = rates.get(hop.id);
  const full = level(hop);
  const speed = now ? Math.max(now.records_in ?? 0, now.records_out ?? 0) : null;
  setText(card.kind, hop.kind);
  const limits = limiting.has(hop.id);
  const flag = limits ? "limits" : also.includes(hop.id) ? "close behind" : hop.state !== "running" ? hop.state : "";
  setText(card.flag, flag);
  setAttribute(card.flag, "class", `flag ${limits ? "limits" : hop.state ?? ""}`);
  setText(card.name, label(hop));
  setAttribute(card.name, "title", label(hop));
  setText(card.figures, now ? rate(speed) : "–");
  setText(card.lag, underneath(hop, full));
  setAttribute(card.button, "class", `hop${limits ? " limits" : ""}${["away", "ended"].includes(hop.state) ? " asleep" : ""}${hop.state === "failed" ? " failed" : ""}`);
  card.tank.hidden = full === null;
  card.fill.style.height = `${Math.round((full ?? 0) * 100)}%`;
  setAttribute(card.tank, "class", `tank${full !== null && full > 0.9 ? " high" : ""}`);
  const shares = now ? [now.working, now.waiting_for_demand, now.waiting_for_data] : [];
  const known = shares.some((share) => share !== undefined && share !== null);
  card.button.classList.toggle("no-times", !known);
  card.times.hidden = !known;
  [...card.times.children].forEach((part, at) => {
    part.style.width = `${Math.round((shares[at] ?? 0) * 100)}%`;
  });
  setText(card.spoken, spoken(hop, limits, shares));
}

function underneath(hop, full) {
  const said = [];
  if (full !== null) said.push(`${percent(full)} full`);
  else if (hop.waiting) said.push(`${short(hop.waiting)} waiting`);
  const late = hop.lag_seconds ?? hop.oldest_seconds;
  if (hop.lag_records) said.push(`${short(hop.lag_records)} behind${late ? `, ${seconds(late)}` : ""}`);
  else if (late && late >= 0.5) said.push(`oldest ${seconds(late)}`);
  if (hop.errors) said.push(`${whole(hop.errors)} error${hop.errors === 1 ? "" : "s"}`);
  return said.join(" · ");
}

function spoken(hop, limits, [working, forDemand, forData]) {
  const said = [];
  if (limits) said.push("this hop limits the flow");
  if (working !== undefined && working !== null) said.push(`works ${percent(working)} of the time`);
  if (forDemand) said.push(`waits for demand ${percent(forDemand)}`);
  if (forData) said.push(`waits for data ${percent(forData)}`);
  if (hop.demand !== undefined) said.push(`demand ${whole(hop.demand)}`);
  return said.length ? `. ${said.join(", ")}` : "";
}

// ---------------------------------------------------------------- one hop in full

export function detailRows(hop, now) {
  const rows = [
    ["State", hop.state ?? "running"],
    ["Lives in", hop.where],
    ["Required", hop.required === false ? "no: it may miss records" : "yes: hops above wait for it"],
    ["Records in", `${whole(hop.records_in)}${now ? `, ${rate(now.records_in)}` : ""}`],
    ["Records out", `${whole(hop.records_out)}${now ? `, ${rate(now.records_out)}` : ""}`],
    ["Bytes in", hop.bytes_in === undefined ? "" : `${bytes(hop.bytes_in)}${now?.bytes_in !== undefined ? `, ${bytes(now.bytes_in)}/s` : ""}`],
    ["Bytes out", hop.bytes_out === undefined ? "" : `${bytes(hop.bytes_out)}${now?.bytes_out !== undefined ? `, ${bytes(now.bytes_out)}/s` : ""}`],
    ["Waiting", hop.waiting === undefined ? "" : `${whole(hop.waiting)}${hop.capacity ? ` of ${whole(hop.capacity)} records` : " records"}`],
    ["Waiting bytes", hop.waiting_bytes === undefined ? "" : `${bytes(hop.waiting_bytes)}${hop.capacity_bytes ? ` of ${bytes(hop.capacity_bytes)}` : ""}`],
    ["Demand", hop.demand === undefined ? "" : whole(hop.demand)],
    ["Works", now?.working === undefined ? "" : percent(now.working)],
    ["Waits for demand", now?.waiting_for_demand === undefined ? "" : percent(now.waiting_for_demand)],
    ["Waits for data", now?.waiting_for_data === undefined ? "" : percent(now.waiting_for_data)],
    ["Lag", hop.lag_records === undefined ? "" : `${whole(hop.lag_records)} records${hop.lag_seconds === undefined ? "" : `, ${seconds(hop.lag_seconds)}`}`],
    ["Oldest record", hop.oldest_seconds === undefined ? "" : seconds(hop.oldest_seconds)],
    ["Full for", hop.full_seconds === undefined ? "" : seconds(hop.full_seconds)],
    ["Errors", whole(hop.errors ?? 0)],
    ...Object.entries(hop.details ?? {}).map(([name, value]) => [name.replaceAll("_", " "), short(value)]),
  ];
  return rows.filter(([, value]) => value);
}

// The pipeline as a picture: data goes to the right, demand to the left, queues are tanks with a level.
//
// The hops are a list of buttons, which keyboards and screen readers can use; the pipes between them are drawn
// behind. Hops stand in columns by their distance from the sources. Columns that do not fit continue below,
// like the words of a text; on a phone there is one column, and data goes down.

import { bytes, label, level, make, percent, rate, seconds, setAttribute, setText, short, whole } from "./text.js";

const CARD = 164;
const TALL = 128;
const GAP = 84;
const BETWEEN = 18; // between the cards of a column
const LINES = 58; // between two lines of columns
const MARGIN = 26; // at the right, for the pipes to the next line
const MOST = 4; // cards in a column; the others are counted
const SVG = "http://www.w3.org/2000/svg";

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
    for (const [key, card] of this.cards) setAttribute(card.button, "aria-pressed", String(key === id));
  }

  draw(view) {
    this.last = view;
    const columns = this.columns(view);
    const width = this.box.clientWidth - MARGIN;
    const most = Math.max(1, Math.floor((width + GAP) / (CARD + GAP)));
    const lines = Math.max(1, Math.ceil(columns.length / most));
    const across = Math.ceil(columns.length / lines) || 1;
    const places = most === 1 ? this.stack(columns, width + MARGIN) : this.spread(columns, across, width);
    this.fill(view, columns, places);
    this.connect(view, columns, places, most === 1);
  }

  // Which hops stand in which column, and which are only counted.
  columns({ hops, limiting }) {
    const depth = new Map();
    const found = [];
    for (const hop of hops) {
      const above = hop.upstream?.filter((id) => depth.has(id)).map((id) => depth.get(id)) ?? [];
      const at = above.length ? Math.max(...above) + 1 : 0;
      depth.set(hop.id, at);
      (found[at] ??= []).push(hop);
    }
    return found.map((column, at) => {
      if (column.length <= MOST) return { shown: column, more: [] };
      // The choice stays as it is while it can: cards that change places every second cannot be read.
      const before = (this.chosen.get(at) ?? []).filter((id) => column.some((hop) => hop.id === id));
      const keep = new Set(before.slice(0, MOST - 1));
      if (limiting && column.some((hop) => hop.id === limiting) && !keep.has(limiting)) {
        if (keep.size >= MOST - 1) keep.delete([...keep].pop());
        keep.add(limiting);
      }
      const rest = [...column].sort((a, b) => (b.lag_records ?? 0) - (a.lag_records ?? 0));
      for (const hop of rest) if (keep.size < MOST - 1) keep.add(hop.id);
      this.chosen.set(at, [...keep]);
      const more = column.filter((hop) => !keep.has(hop.id));
      return { shown: column.filter((hop) => keep.has(hop.id)), more };
    });
  }

  keys(columns) {
    return columns.map((column, at) => {
      const keys = column.shown.map((hop) => hop.id);
      return column.more.length ? [...keys, `more:${at}`] : keys;
    });
  }

  // Columns side by side, in as many lines as needed.
  spread(columns, across, width) {
    const places = new Map();
    const keys = this.keys(columns);
    const used = across * CARD + (across - 1) * GAP;
    const gap = across > 1 ? Math.min(150, GAP + (width - used) / (across - 1)) : GAP;
    let top = 0;
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
    this.box.style.height = `${Math.max(0, top - LINES)}px`;
    return places;
  }

  // One below the other.
  stack(columns, width) {
    const places = new Map();
    let top = 0;
    for (const column of this.keys(columns)) {
      for (const key of column) {
        places.set(key, { x: 0, y: top, width, height: TALL, line: 0 });
        top += TALL + 8;
      }
      top += 44;
    }
    this.box.style.height = `${Math.max(0, top - 52)}px`;
    return places;
  }

  fill(view, columns, places) {
    const seen = new Set();
    let before = null;
    const put = (key, update) => {
      let card = this.cards.get(key);
      if (card === undefined) {
        card = key.startsWith("more:") ? makeMore() : makeCard(() => this.onSelect(key));
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
    columns.forEach((column, at) => {
      for (const hop of column.shown) put(hop.id, (card) => showHop(card, hop, view));
      if (column.more.length) put(`more:${at}`, (card) => showMore(card, column.more, view));
    });
    for (const [key, card] of this.cards) {
      if (!seen.has(key)) {
        card.item.remove();
        this.cards.delete(key);
      }
    }
    this.select(this.selected);
  }

  connect(view, columns, places, isStack) {
    const width = this.box.clientWidth;
    setAttribute(this.pipes, "width", String(width));
    setAttribute(this.pipes, "height", String(parseFloat(this.box.style.height) || 0));
    const seen = new Set();
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
    for (const [key, drawn] of this.drawn) {
      if (!seen.has(key)) {
        drawn.group.remove();
        this.drawn.delete(key);
      }
    }
  }
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
  const limits = hop.id === limiting;
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

// ---------------------------------------------------------------- pipes

// What stands for a hop in the picture: itself, or the card that counts it.
function cardOf(columns) {
  const found = new Map();
  columns.forEach((column, at) => {
    for (const hop of column.shown) found.set(hop.id, hop.id);
    for (const hop of column.more) found.set(hop.id, `more:${at}`);
  });
  return found;
}

function joined(view, columns) {
  const card = cardOf(columns);
  const by = new Map(view.hops.map((hop) => [hop.id, hop]));
  const links = new Map();
  for (const hop of view.hops) {
    for (const id of hop.upstream ?? []) {
      if (!by.has(id) || !card.has(id)) continue;
      const key = `${card.get(id)}\n${card.get(hop.id)}`;
      const link = links.get(key) ?? { key, from: card.get(id), to: card.get(hop.id), flow: 0, demand: null };
      const only = (hop.upstream?.length ?? 0) === 1;
      link.flow += (only ? view.rates.get(hop.id)?.records_in : view.rates.get(id)?.records_out) ?? 0;
      if (by.get(id).demand !== undefined) link.demand = Math.max(link.demand ?? 0, by.get(id).demand);
      links.set(key, link);
    }
  }
  return [...links.values()];
}

function spreadLinks(view, columns, places, width) {
  const links = joined(view, columns);
  const below = new Map();
  const above = new Map();
  for (const { from, to } of links) {
    below.set(from, (below.get(from) ?? 0) + 1);
    above.set(to, (above.get(to) ?? 0) + 1);
  }
  for (const link of links) {
    const a = places.get(link.from);
    const b = places.get(link.to);
    const [ax, ay] = [a.x + a.width, a.y + a.height / 2];
    const [bx, by] = [b.x, b.y + b.height / 2];
    if (a.line === b.line && bx > ax) {
      const middle = (ax + bx) / 2;
      const curve = (from, to) => `M${ax + 3} ${from}C${middle} ${from} ${middle} ${to} ${bx - 3} ${to}`;
      const back = (from, to) => `M${bx - 3} ${from}C${middle} ${from} ${middle} ${to} ${ax + 3} ${to}`;
      link.data = curve(ay - 9, by - 9);
      link.wish = back(by + 9, ay + 9);
      const fans = below.get(link.from) > 1;
      const x = fans ? bx - 38 : above.get(link.to) > 1 ? ax + 38 : middle;
      const y = fans ? by : above.get(link.to) > 1 ? ay : (ay + by) / 2;
      link.at = [x, y - 15, x, y + 24];
    } else {
      // To the next line: out at the right, along below this line, in from the left.
      const out = Math.min(ax + 22, width - 4);
      const gap = b.y - LINES / 2;
      const enter = Math.max(bx - 22, 4);
      const start = b.x > 12 ? bx - 3 : bx + b.width / 2;
      if (b.x > 12) {
        link.data = `M${ax + 3} ${ay - 9}H${out}V${gap - 6}H${enter}V${by - 9}H${start}`;
        link.wish = `M${start} ${by + 9}H${enter - 8}V${gap + 6}H${out + 8}V${ay + 9}H${ax + 3}`;
      } else {
        link.data = `M${ax + 3} ${ay - 9}H${out}V${gap - 7}H${start - 9}V${b.y - 3}`;
        link.wish = `M${start + 9} ${b.y - 3}V${gap + 7}H${out + 0}V${ay + 9}H${ax + 3}`;
      }
      link.at = [start + 60, gap - 12, start + 60, gap + 22];
    }
  }
  return links;
}

function stackLinks(view, columns, places) {
  const depth = new Map();
  const cards = cardOf(columns);
  columns.forEach((column, at) => [...column.shown, ...column.more].forEach((hop) => depth.set(hop.id, at)));
  const sums = new Map();
  for (const link of joined(view, columns)) {
    const at = link.to.startsWith("more:") ? Number(link.to.slice(5)) : depth.get(link.to);
    const sum = sums.get(at) ?? { key: `stack:${at}`, flow: 0, demand: null };
    sum.flow += link.flow;
    if (link.demand !== null) sum.demand = Math.max(sum.demand ?? 0, link.demand);
    sums.set(at, sum);
  }
  const links = [];
  for (const [at, sum] of sums) {
    const first = columns[at].shown[0] ?? columns[at].more[0];
    const { y, width } = places.get(cards.get(first.id));
    const middle = width / 2;
    sum.data = `M${middle - 12} ${y - 48}V${y - 5}`;
    sum.wish = `M${middle + 12} ${y - 5}V${y - 48}`;
    sum.at = [middle - 48, y - 22, middle + 48, y - 22];
    links.push(sum);
  }
  return links;
}

function makePipe() {
  const part = (tag, name) => {
    const element = document.createElementNS(SVG, tag);
    element.setAttribute("class", name);
    return element;
  };
  const group = part("g", "pipe");
  const data = part("path", "data");
  const flow = part("path", "flow");
  const wish = part("path", "wish");
  const speed = part("text", "speed");
  const open = part("text", "open");
  group.append(data, flow, wish, speed, open);
  return { group, data, flow, wish, speed, open };
}

function showPipe(pipe, { flow, demand, data, wish, at }) {
  setAttribute(pipe.data, "d", data);
  setAttribute(pipe.flow, "d", data);
  setAttribute(pipe.wish, "d", wish);
  setAttribute(pipe.group, "class", `pipe${flow > 0.5 ? " flows" : ""}${demand === 0 ? " shut" : ""}`);
  setText(pipe.speed, rate(flow));
  setText(pipe.open, demand === null ? "" : demand === 0 ? "no demand" : demand > 1e15 ? "unbounded" : `asks ${short(demand)}`);
  for (const [text, x, y] of [[pipe.speed, at[0], at[1]], [pipe.open, at[2], at[3]]]) {
    setAttribute(text, "x", String(x));
    setAttribute(text, "y", String(y));
  }
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

// The pipes between the cards of the picture: data in one direction, demand in the other.

import { rate, setAttribute, setText, short } from "./text.js";

export const LINES = 58; // between two lines of columns
const SVG = "http://www.w3.org/2000/svg";

// What has a place in a column: its cards, and the one that counts the others.
export const keysOf = (column) => [...column.shown.map((hop) => hop.id), ...(column.more.length ? [column.key] : [])];

// What stands for a hop in the picture: itself, or the card that counts it.
function cardOf(columns) {
  const found = new Map();
  for (const column of columns) {
    for (const hop of column.shown) found.set(hop.id, hop.id);
    for (const hop of column.more) found.set(hop.id, column.key);
  }
  return found;
}

function joined(view, columns) {
  const card = cardOf(columns);
  const by = new Map(view.hops.map((hop) => [hop.id, hop]));
  const links = new Map();
  for (const hop of view.hops) {
    for (const id of hop.upstream ?? []) {
      if (!by.has(id) || !card.has(id) || !card.has(hop.id)) continue;
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

export function spreadLinks(view, columns, places, width) {
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

export function stackLinks(view, columns, places) {
  const depth = new Map();
  const cards = cardOf(columns);
  columns.forEach((column, at) => keysOf(column).forEach((key) => depth.set(key, at)));
  const sums = new Map();
  for (const link of joined(view, columns)) {
    const at = depth.get(link.to);
    const sum = sums.get(at) ?? { key: `stack:${columns[at].key}`, flow: 0, demand: null };
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

export function makePipe() {
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

export function showPipe(pipe, { flow, demand, data, wish, at }) {
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

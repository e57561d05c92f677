// Figures as people read them.

const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of UNITS) {
    if (size >= unit * 0.9995) {
      const scaled = value / unit;
      return `${scaled.toFixed(Math.abs(scaled) < 99.95 ? 1 : 0)}${letter}`;
    }
  }
  return size >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${short(value)}/s`);

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, letter] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= unit) return `${(value / unit).toFixed(1)} ${letter}`;
  }
  return `${Math.round(value)} B`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 119.5) return `${Math.round(value)} s`;
  if (value < 7170) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.round(value / 86400)} d`;
}

// How full a hop is, by records or by bytes, whichever is more; null if it has no bound.
export function level(hop) {
  const shares = [];
  if (hop.waiting !== undefined && hop.capacity) shares.push(hop.waiting / hop.capacity);
  if (hop.waiting_bytes !== undefined && hop.capacity_bytes) shares.push(hop.waiting_bytes / hop.capacity_bytes);
  return shares.length ? Math.min(1, Math.max(...shares)) : null;
}

// There is one log at an endpoint, so the endpoint is its name for people.
export const label = (hop) => (hop.kind === "log" && hop.where ? hop.where : hop.name);

// The same where hops of several streams stand side by side.
export function placed(hop) {
  const stream = /^tcp:\/\/[^/]+\/(.+)$/.exec(hop.where ?? "")?.[1];
  return hop.kind === "log" || stream === undefined ? label(hop) : `${label(hop)} of ${stream}`;
}

// An element with text or children. Everything that a peer sent goes through textContent, never through HTML.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
